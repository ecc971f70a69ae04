"""Predictive heads fitted on recorded episodes, with the network frozen."""

import dataclasses
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_choice
from recurrent_laplace.models.config import PREDICTED
from recurrent_laplace.models.layers import ResidualHead
from recurrent_laplace.monitoring.episode import Episode
from recurrent_laplace.monitoring.monitor import source_of
from recurrent_laplace.monitoring.recording import Recording, check_recordings
from recurrent_laplace.posterior import (
    AbstractLikelihood,
    AbstractPosterior,
    BernoulliLikelihood,
    GaussianLikelihood,
    JointLikelihood,
    LikelihoodPosterior,
    Predictor,
)
from recurrent_laplace.posterior.targets import check_targets
from recurrent_laplace.scoring.predictor import Rows, fit_head

FEWEST_EPISODES = 8
"""Fewest episodes: half to fit, a quarter each to select and to test."""
LEVEL = 0.9
"""Nominal level of the intervals in the report."""


@dataclasses.dataclass(frozen=True)
class Explained:
    """Mean deviance of a target on test episodes, under three predictions.

    The deviance is the squared error of Gaussian targets, otherwise twice the negative log-likelihood.
    """

    constant: float
    """Of the best constant."""
    observation: float
    """Of a head that sees the observation and the action, not the belief."""
    full: float
    """Of the fitted head."""
    coverage: float
    """Fraction of Gaussian targets inside their 90% intervals; NaN for others."""

    @property
    def beyond_constant(self) -> float:
        """Fraction of the deviance of a constant that is explained: R^2 for Gaussian targets."""
        return _fraction(self.full, self.constant)

    @property
    def beyond_observation(self) -> float:
        """Fraction of the deviance given the observation alone that is explained."""
        return _fraction(self.full, self.observation)


def _fraction(deviance: float, reference: float) -> float:
    return 1 - deviance / reference if reference > 0 else 0.0


@dataclasses.dataclass(frozen=True)
class PredictorFit:
    """Result of `rl.fit_predictor`: the predictive head, a posterior with its curvature, what it explains.

    `str(fit)` is a report.

    **Arguments:**

    - `predictor`: the fitted `rl.Predictor`, whose queries are an observation and an action (`queries`).
    - `posterior`: an `rl.LikelihoodPosterior` on the same network, to be saved with `rl.save`; None if the
      means of the given posterior are not the features.
    - `explained`: results on test episodes by target.
    - `has_network`: whether a network was better than the ridge regression on the validation episodes.

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
    has_network: bool

    def queries(self, episode: Episode | Recording) -> Float[Array, "T Q"]:
        """Queries that the inputs of an `episode` answer: the previous observation and action.

        The first input answers none: NaN.
        """
        recording = Recording.of(episode)
        asked = _queries(recording, self.predictor.actions)[:-1]
        return jnp.asarray(np.concatenate([np.full_like(asked[:1], np.nan), asked]), jnp.result_type(float))

    def targets(self, episode: Episode | Recording) -> Float[Array, "T K"]:
        """Targets that arrive with the inputs of an `episode`, aligned with `queries`; the first is NaN."""
        target = _targets(Recording.of(episode), tuple(self.explained))
        return jnp.asarray(np.concatenate([np.full_like(target[:1], np.nan), target]), jnp.result_type(float))

    def __str__(self) -> str:
        lines = []
        for name, result in self.explained.items():
            line = (
                f"Predicts the next {name} {result.beyond_observation:.0%} better than the observation "
                f"alone, and {result.beyond_constant:.0%} better than a constant"
            )
            if np.isfinite(result.coverage):
                line += f"; its {LEVEL:.0%} intervals cover {result.coverage:.0%}"
            lines.append(f"{line}.")
        return "\n".join(lines)


def fit_predictor(
    posterior: AbstractPosterior,
    episodes: Sequence[Episode | Recording],
    *,
    targets: Sequence[str] | None = None,
    likelihoods: Mapping[str, AbstractLikelihood] | None = None,
    hidden_sizes: tuple[int, ...] = (64,),
) -> PredictorFit:
    """Fit a predictive head for an agent on recorded episodes, with the network frozen.

    The head predicts the reward and the next observation from the mean of the belief, the observation and
    the action. It starts as a ridge regression (for logits: one Newton step from a constant), to which a
    network is added. Penalty, network and noise are chosen on a quarter of the episodes; what the head
    explains is measured on another.

    **Arguments:**

    - `posterior`: any posterior over the memory of the agent, such as an `rl.PointPosterior`.
    - `episodes`: `rl.Recording`s, or episodes recorded with an `rl.Monitor`; at least 8.
    - `targets`: `"reward"`, `"observation"`, or both; by default those that vary.
    - `likelihoods`: likelihood of each target, as those of `task.targets()`. By default rewards of 0 and 1
      are Bernoulli, all else is Gaussian.
    - `hidden_sizes`: sizes of the hidden layers of the network; `()` for a ridge regression alone.

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
            f"episodes must be at least {FEWEST_EPISODES}, to fit, select and test on; got {len(episodes)}."
        )
    recordings = [Recording.of(episode) for episode in episodes]
    memory = posterior.memory
    check_recordings(recordings, input_size=memory.input_size, source=source_of(posterior))
    names = _choose_targets(recordings, targets)
    likelihood = _make_likelihood(recordings, names, likelihoods)
    discrete = recordings[0].actions.ndim == 1
    actions = 1 + max(int(recording.actions.max()) for recording in recordings) if discrete else 0
    means = _means(posterior, recordings)

    def rows_of(episodes: slice) -> Rows:
        chosen = recordings[episodes]
        z = [mean[:-1] for mean in means[episodes]]
        queries = [_queries(recording, actions)[:-1] for recording in chosen]
        following = [_targets(recording, names) for recording in chosen]
        z, query, target = (jnp.asarray(np.concatenate(a), memory.dtype) for a in (z, queries, following))
        return Rows(z, query, target)

    half, three_quarters = len(recordings) // 2, len(recordings) - len(recordings) // 4
    fit, validation = rows_of(slice(half)), rows_of(slice(half, three_quarters))
    test = rows_of(slice(three_quarters, None))
    blind, blind_validation = (split._replace(z=jnp.zeros_like(split.z)) for split in (fit, validation))
    predictor = fit_head(fit, validation, likelihood, actions, hidden_sizes)
    without = fit_head(blind, blind_validation, likelihood, actions, hidden_sizes)
    explained = _explain(predictor, without, fit, test)
    head = predictor.head
    assert isinstance(head, ResidualHead)
    made = LikelihoodPosterior(memory, predictor) if posterior.mean_is_features else None
    return PredictorFit(predictor, made, explained, head.network is not None)


def _choose_targets(recordings: Sequence[Recording], targets: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the targets, in their order; those that vary by default."""
    values = {name: np.concatenate([_target(each, name) for each in recordings]) for name in PREDICTED}
    vary = [name for name in PREDICTED if np.ptp(values[name], axis=0).max() > 0]
    if targets is None:
        if not vary:
            raise ValueError("episodes must have rewards or observations that vary, to predict them.")
        return tuple(vary)
    if not targets:
        raise ValueError("targets must name at least one of 'reward', 'observation'; got none.")
    for name in targets:
        check_choice("targets", name, PREDICTED)
        if name not in vary:
            raise ValueError(
                f"episodes must have a {name} that varies, to predict it; all are {values[name][0]}: "
                "leave it out of targets."
            )
    return tuple(name for name in PREDICTED if name in targets)


def _make_likelihood(
    recordings: Sequence[Recording], names: tuple[str, ...], given: Mapping[str, AbstractLikelihood] | None
) -> JointLikelihood:
    """Likelihood of all targets: those given, otherwise Bernoulli for rewards of 0 and 1, or Gaussian."""
    for name in given or {}:
        check_choice("likelihoods", name, PREDICTED)
    parts = []
    for name in names:
        values = np.concatenate([_target(recording, name) for recording in recordings])
        part = (given or {}).get(name)
        if part is None:
            is_binary = name == "reward" and set(np.unique(values)) == {0, 1}
            part = BernoulliLikelihood(1) if is_binary else GaussianLikelihood(jnp.zeros(values.shape[1]))
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


def _target(recording: Recording, name: str) -> Float[np.ndarray, "T K"]:
    """What follows each step but the last."""
    if name == "reward":
        return np.asarray(recording.rewards, float)[:-1, None]
    return np.asarray(recording.observations, float)[1:]


def _targets(recording: Recording, names: tuple[str, ...]) -> Float[np.ndarray, "T K"]:
    return np.concatenate([_target(recording, name) for name in names], axis=-1)


def _queries(recording: Recording, actions: int) -> Float[np.ndarray, "T Q"]:
    """Observation and action of each step."""
    if actions and recording.actions.max() >= actions:
        raise ValueError(
            f"actions must be below {actions}, as in the episodes that the head was fitted on; "
            f"got {recording.actions.max()}."
        )
    taken = np.eye(actions)[recording.actions] if actions else np.asarray(recording.actions, float)
    return np.concatenate([np.asarray(recording.observations, float), taken], axis=-1)


def _means(posterior: AbstractPosterior, recordings: Sequence[Recording]) -> list[Float[np.ndarray, "T F"]]:
    """Means of the beliefs along each episode."""
    longest = max(len(recording.inputs) for recording in recordings)
    inputs = np.stack([np.pad(each.inputs, ((0, longest - len(each.inputs)), (0, 0))) for each in recordings])

    @eqx.filter_jit
    def infer(posterior: AbstractPosterior, inputs: Array) -> Array:
        def of_episode(inputs: Array) -> Array:
            if posterior.mean_is_features:
                return posterior.memory.unroll(inputs).features
            return posterior.unroll(inputs).mean

        return jax.lax.map(of_episode, inputs)

    means = np.asarray(infer(posterior, jnp.asarray(inputs, posterior.memory.dtype)))
    return [mean[: len(each.inputs)] for mean, each in zip(means, recordings, strict=True)]


def _explain(predictor: Predictor, without: Predictor, fit: Rows, test: Rows) -> dict[str, Explained]:
    """Deviances of each target on the test rows."""
    joint = predictor.likelihood
    assert isinstance(joint, JointLikelihood)
    full = joint.split(eqx.filter_jit(predictor)(test.z, test.query))
    alone = joint.split(eqx.filter_jit(without)(jnp.zeros_like(test.z), test.query))
    targets, seen = joint.split(test.target), joint.split(fit.target)
    found = {}
    for index, (name, part) in enumerate(zip(joint.names, joint.parts, strict=True)):
        equal = part.mean(jnp.zeros(part.size, fit.target.dtype))
        mean = (jnp.sum(seen[index], axis=0) + equal) / (len(seen[index]) + 1)
        constant = part.outputs_of(mean)
        least, middle, most = (
            float(jnp.mean(part.deviance(outputs, targets[index])))
            for outputs in (full[index], alone[index], constant)
        )
        coverage = float("nan")
        if part.is_gaussian:
            reach = ndtri((1 + LEVEL) / 2) * jnp.sqrt(part.variance(full[index]))
            coverage = float(jnp.mean(jnp.abs(targets[index] - full[index]) <= reach))
        found[name] = Explained(constant=most, observation=middle, full=least, coverage=coverage)
    return found
