"""Predictive heads fitted on recorded episodes, with the network frozen."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_choice, check_size
from recurrent_laplace.models.config import PREDICTED
from recurrent_laplace.models.layers import ResidualHead
from recurrent_laplace.monitoring.checks import PredictionScores, explain, predict_alone, score_predictions
from recurrent_laplace.monitoring.episode import Episode
from recurrent_laplace.monitoring.forecast import forecast_episodes
from recurrent_laplace.monitoring.monitor import source_of
from recurrent_laplace.monitoring.recording import (
    MOST_ACTIONS,
    Recording,
    check_recordings,
    delayed,
    query_of,
    stacked,
    target_of,
)
from recurrent_laplace.monitoring.verdict import Explained, describe_all
from recurrent_laplace.posterior import (
    AbstractLikelihood,
    AbstractPosterior,
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    JointLikelihood,
    LikelihoodPosterior,
    Predictor,
)
from recurrent_laplace.posterior.targets import check_targets
from recurrent_laplace.scoring.calibration import calibrate
from recurrent_laplace.scoring.predictor import Rows, fit_head

FEWEST_EPISODES = 8
"""Fewest episodes: half to fit, a quarter each to select and to test."""
MOST_DENSE = 128
"""Features up to which the posterior of a fit is dense by default: a step needs F^3 / 3 products."""
MOST_ENTRIES = 2**22
"""Entries of all precisions along the episodes that scales are calibrated on."""


@dataclasses.dataclass(frozen=True)
class PredictorFit:
    """Result of `rl.fit_predictor`: the predictive head, a posterior with its curvature, what it explains.

    `str(fit)` is a report.

    **Arguments:**

    - `predictor`: the fitted `rl.Predictor`, whose queries are an observation and an action (`queries`).
    - `posterior`: an `rl.LikelihoodPosterior` on the same network, to be saved with `rl.save`; None if the
      means of the given posterior are not the features.
    - `explained`: results on test episodes by target.
    - `scores`: scores of the predictions of the posterior on test episodes by target.
    - `has_network`: whether a network was better than the ridge regression on the validation episodes.
    - `baseline`: the same head fitted to the observation and the action alone, for `rl.diagnose`.
    - `constant`: values of targets that are the same at every step, and so are not predicted.
    - `observation_size`: entries of an observation.

    ```python
    posterior = rl.PointPosterior(rl.Memory(rl.GRU(2, 4, key=jax.random.key(0))))
    random = np.random.default_rng(0)
    episodes = [rl.Recording(random.normal(size=(9, 2)), random.normal(size=(9, 1)), random.normal(size=9))
                for _ in range(8)]
    fit = rl.fit_predictor(posterior, episodes, hidden_sizes=())
    isinstance(fit, rl.PredictorFit), fit.explained["reward"].beyond_constant
    ```
    """

    predictor: Predictor
    posterior: LikelihoodPosterior | None
    explained: dict[str, Explained]
    scores: dict[str, PredictionScores]
    has_network: bool
    baseline: Predictor
    constant: dict[str, np.ndarray]
    observation_size: int

    @property
    def informative(self) -> bool:
        """Whether the belief predicts any target better than the observation and the action do."""
        return describe_all(self.explained)[0]

    def query(self, observation: Any, action: Any) -> Float[np.ndarray, "*lead Q"]:
        """Query of an observation and the action taken at it, for `Monitor.step` and `Monitor.predict`."""
        self._check_observation(observation)
        return query_of(observation, action, self.predictor.actions)

    def target(self, reward: Any, observation: Any) -> Float[np.ndarray, "*lead K"]:
        """Target of the reward and the observation that followed a query, for `Monitor.step`."""
        self._check_observation(observation)
        return target_of(tuple(self.explained), reward, observation)

    def queries(self, episode: Episode | Recording) -> Float[Array, "T Q"]:
        """Queries that the inputs of an `episode` answer: the previous observation and action.

        The first input answers none: NaN.
        """
        recording = Recording.of(episode)
        self._check_observation(recording.observations)
        return jnp.asarray(delayed(recording.queries(self.predictor.actions)), jnp.result_type(float))

    def targets(self, episode: Episode | Recording) -> Float[Array, "T K"]:
        """Targets that arrive with the inputs of an `episode`, aligned with `queries`; the first is NaN."""
        recording = Recording.of(episode)
        self._check_observation(recording.observations)
        return jnp.asarray(delayed(recording.targets(tuple(self.explained))), jnp.result_type(float))

    def _check_observation(self, observation: Any) -> None:
        if np.shape(observation)[-1:] != (self.observation_size,):
            raise ValueError(
                f"observations must have {self.observation_size} entries, as in the episodes that the head "
                f"was fitted on; got shape {np.shape(observation)}: use the environment of these episodes."
            )

    def __str__(self) -> str:
        _, lines = describe_all(self.explained)
        fixed = [
            f"The {name} is {', '.join(f'{v:g}' for v in value)} at every step, and not predicted."
            for name, value in self.constant.items()
        ]
        return "\n".join([*lines, *fixed])


def fit_predictor(
    posterior: AbstractPosterior,
    episodes: Sequence[Episode | Recording],
    *,
    targets: Sequence[str] | None = None,
    likelihoods: Mapping[str, AbstractLikelihood] | None = None,
    hidden_sizes: tuple[int, ...] = (64,),
    covariance: Literal["dense", "diagonal"] | None = None,
    actions: int | None = None,
) -> PredictorFit:
    """Fit a predictive head for an agent on recorded episodes, with the network frozen.

    The head predicts the reward and the next observation from the mean of the belief, the observation and
    the action. It starts as a ridge regression (for logits: one Newton step from a constant), to which a
    network is added. Penalty, network, noise and the scales of the posterior are chosen on a quarter of the
    episodes; what the head explains is measured on another.

    **Arguments:**

    - `posterior`: any posterior over the memory of the agent, such as an `rl.PointPosterior`.
    - `episodes`: `rl.Recording`s, or episodes recorded with an `rl.Monitor`; at least 8.
    - `targets`: `"reward"`, `"observation"`, or both; by default those that vary.
    - `likelihoods`: likelihood of each target, as those of `task.targets()`. By default rewards of 0 and 1
      are Bernoulli, one-hot observations categorical, others of 0 and 1 Bernoulli, all else is Gaussian.
    - `hidden_sizes`: sizes of the hidden layers of the network; `()` for a ridge regression alone.
    - `actions`: number of discrete actions; by default one more than the largest that was taken.
    - `covariance`: that of the posterior; by default `"dense"` up to 128 features, otherwise `"diagonal"`.

    ```python
    posterior = rl.PointPosterior(rl.Memory(rl.GRU(2, 4, key=jax.random.key(0))))
    random = np.random.default_rng(0)
    episodes = [rl.Recording(random.normal(size=(9, 2)), random.integers(3, size=9), random.normal(size=9))
                for _ in range(8)]
    print(rl.fit_predictor(posterior, episodes, hidden_sizes=()))
    ```
    """
    if len(episodes) < FEWEST_EPISODES:
        raise ValueError(
            f"episodes must be at least {FEWEST_EPISODES}, to fit, select and test on; got {len(episodes)}: "
            "record more."
        )
    recordings = [Recording.of(episode) for episode in episodes]
    memory = posterior.memory
    check_recordings(recordings, input_size=memory.input_size, source=source_of(posterior))
    names, constant = _choose_targets(recordings, targets)
    likelihood = _make_likelihood(recordings, names, likelihoods)
    count = _count_actions(recordings, actions)
    means = _means(posterior, recordings)

    def rows_of(episodes: slice) -> Rows:
        chosen = recordings[episodes]
        queries = [recording.queries(count) for recording in chosen]
        following = [recording.targets(names) for recording in chosen]
        z, query, target = (np.concatenate(a) for a in (means[episodes], queries, following))
        known = np.isfinite(target).all(axis=-1)
        return Rows(*(jnp.asarray(array[known], memory.dtype) for array in (z, query, target)))

    half, three_quarters = len(recordings) // 2, len(recordings) - len(recordings) // 4
    fit, validation = rows_of(slice(half)), rows_of(slice(half, three_quarters))
    test = rows_of(slice(three_quarters, None))
    blind, blind_validation = (split._replace(z=jnp.zeros_like(split.z)) for split in (fit, validation))
    predictor = fit_head(fit, validation, likelihood, count, hidden_sizes)
    without = fit_head(blind, blind_validation, likelihood, count, hidden_sizes)
    made = None
    if posterior.mean_is_features:
        covariance = covariance or ("dense" if memory.feature_size <= MOST_DENSE else "diagonal")
        made = LikelihoodPosterior(memory, predictor, covariance=covariance)
        made = _calibrated(made, recordings[half:three_quarters], names)
    mean, stddev = _predictions(predictor, made, test, recordings[three_quarters:])
    target, query = np.asarray(test.target, float), np.asarray(test.query, float)
    explained = explain(
        predictor.likelihood,
        target,
        constant=np.broadcast_to(np.asarray(fit.target, float).mean(axis=0), target.shape),
        alone=predict_alone(without, memory.feature_size, query),
        full=mean,
        stddev=stddev,
    )
    head = predictor.head
    assert isinstance(head, ResidualHead)
    return PredictorFit(
        predictor,
        made,
        explained,
        score_predictions(predictor.likelihood, mean, stddev, target),
        head.network is not None,
        without,
        constant,
        recordings[0].observations.shape[1],
    )


def _count_actions(recordings: Sequence[Recording], actions: int | None) -> int:
    """Number of discrete actions, 0 for continuous ones."""
    if recordings[0].actions.ndim > 1:
        if actions is not None:
            raise ValueError(
                f"actions must be left out, since those of the episodes are vectors; got {actions}."
            )
        return 0
    taken = 1 + max(int(recording.actions.max()) for recording in recordings)
    if actions is None:
        return taken
    check_size("actions", actions, least=taken)
    if actions > MOST_ACTIONS:
        raise ValueError(f"actions must be at most {MOST_ACTIONS}, since queries are one-hot; got {actions}.")
    return actions


def _calibrated(
    posterior: LikelihoodPosterior, recordings: Sequence[Recording], names: tuple[str, ...]
) -> LikelihoodPosterior:
    """Posterior with the scales that make the targets of these recordings most likely."""
    size = posterior.memory.feature_size
    entries = size**2 if posterior.covariance == "dense" else size
    steps = min(max(len(recording.inputs) for recording in recordings), max(MOST_ENTRIES // entries, 2))
    chosen = recordings[: max(MOST_ENTRIES // (entries * steps), 1)]
    inputs = stacked([each.inputs[:steps] for each in chosen], fill=0.0)
    queries = [delayed(each.queries(posterior.predictor.actions))[:steps] for each in chosen]
    targets = [delayed(each.targets(names))[:steps] for each in chosen]
    arrays = (inputs, stacked(queries, fill=np.nan), stacked(targets, fill=np.nan))
    inputs, queries, targets = (jnp.asarray(array, posterior.memory.dtype) for array in arrays)
    fit = posterior.effective_scales
    return calibrate(posterior, inputs, fit=fit, queries=queries, targets=targets).posterior


def _predictions(
    predictor: Predictor,
    posterior: LikelihoodPosterior | None,
    rows: Rows,
    recordings: Sequence[Recording],
) -> tuple[Float[np.ndarray, "N K"], Float[np.ndarray, "N K"]]:
    """Means and standard deviations of the targets of rows, from the beliefs if there is a posterior."""
    if posterior is None:
        outputs = eqx.filter_jit(predictor)(rows.z, rows.query)
        mean, variance = predictor.likelihood.mean(outputs), predictor.likelihood.variance(outputs)
        return np.asarray(mean, float), np.sqrt(np.asarray(variance, float))
    mean, stddev, target = (
        np.concatenate(arrays)
        for arrays in zip(*forecast_episodes(posterior, predictor.likelihood, recordings), strict=True)
    )
    known = np.isfinite(target).all(axis=-1)
    return mean[known], stddev[known]


def _choose_targets(
    recordings: Sequence[Recording], targets: Sequence[str] | None
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Names of the targets, in their order, those that vary by default; and the values of constant ones."""
    values = {name: _values(recordings, name) for name in PREDICTED}
    constant = {name: array[0] for name, array in values.items() if np.ptp(array, axis=0).max() == 0}
    if targets is None:
        if len(constant) == len(PREDICTED):
            raise ValueError(
                "episodes must have rewards or observations that vary, to predict them; all are the same: "
                "record episodes in which something happens."
            )
        return tuple(name for name in PREDICTED if name not in constant), constant
    if not targets:
        raise ValueError("targets must name at least one of 'reward', 'observation'; got none.")
    for name in targets:
        check_choice("targets", name, PREDICTED)
        if name in constant:
            raise ValueError(
                f"episodes must have a {name} that varies, to predict it; all are {constant[name]}: "
                "leave it out of targets."
            )
    return tuple(name for name in PREDICTED if name in targets), {}


def _values(recordings: Sequence[Recording], name: str) -> Float[np.ndarray, "N K"]:
    """Known values of a target."""
    values = np.concatenate([recording.target(name) for recording in recordings])
    return values[np.isfinite(values).all(axis=-1)]


def _make_likelihood(
    recordings: Sequence[Recording], names: tuple[str, ...], given: Mapping[str, AbstractLikelihood] | None
) -> JointLikelihood:
    """Likelihood of all targets: those given, otherwise that of the values that occur."""
    for name in given or {}:
        check_choice("likelihoods", name, PREDICTED)
    parts = []
    for name in names:
        values = _values(recordings, name)
        part = (given or {}).get(name, _likelihood_of(values))
        if not isinstance(part, AbstractLikelihood):
            raise ValueError(
                f"likelihoods must be of AbstractLikelihood, such as rl.GaussianLikelihood; got a "
                f"{type(part).__name__} for the {name}."
            )
        if part.size != values.shape[1]:
            raise ValueError(
                f"likelihoods must have the size of their targets: {values.shape[1]} for the {name}; "
                f"got {part.size}."
            )
        parts.append(part)
        check_targets(JointLikelihood((name,), (part,)), values)
    return JointLikelihood(names, tuple(parts))


def _likelihood_of(values: Float[np.ndarray, "N K"]) -> AbstractLikelihood:
    """Categorical for one-hot values, Bernoulli for others of 0 and 1, otherwise Gaussian."""
    size = values.shape[1]
    if set(np.unique(values)) != {0, 1}:
        return GaussianLikelihood(jnp.zeros(size))
    is_one_hot = size > 1 and np.all(values.sum(axis=1) == 1)
    return CategoricalLikelihood(size) if is_one_hot else BernoulliLikelihood(size)


def _means(posterior: AbstractPosterior, recordings: Sequence[Recording]) -> list[Float[np.ndarray, "T F"]]:
    """Means of the beliefs along each episode."""
    inputs = stacked([recording.inputs for recording in recordings], fill=0.0)

    @eqx.filter_jit
    def infer(posterior: AbstractPosterior, inputs: Array) -> Array:
        def of_episode(inputs: Array) -> Array:
            if posterior.mean_is_features:
                return posterior.memory.unroll(inputs).features
            return posterior.unroll(inputs).mean

        return jax.lax.map(of_episode, inputs)

    means = np.asarray(infer(posterior, jnp.asarray(inputs, posterior.memory.dtype)))
    return [mean[: len(each.inputs)] for mean, each in zip(means, recordings, strict=True)]
