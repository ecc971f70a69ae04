"""Diagnosis of a posterior: whether its uncertainty varies with the inputs, tasks and time."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from recurrent_laplace.deprecations import renamed_argument
from recurrent_laplace.errors import check_shape, check_size
from recurrent_laplace.gaussians import AbstractGaussian
from recurrent_laplace.monitoring.checks import (
    PredictionCheck,
    PredictionScores,
    check_predictions,
    follow_predictions,
    order_sensitivity,
)
from recurrent_laplace.monitoring.episode import Episode
from recurrent_laplace.monitoring.monitor import Monitor
from recurrent_laplace.monitoring.readings import (
    NOT_FINITE,
    Heads,
    Policy,
    Reading,
    Value,
    all_finite,
    check_heads,
    finite_or_none,
    read_sequence,
)
from recurrent_laplace.monitoring.recording import Recording, delayed, stacked
from recurrent_laplace.monitoring.verdict import Explained, describe_all
from recurrent_laplace.posterior import AbstractPosterior, Predictor
from recurrent_laplace.scoring.prediction import Martingale

CONSTANT = 0.01
"""Coefficient of variation of the width below which the width counts as constant."""
CLOCK = 0.9
"""Fraction of the entropy's variance explained by t above which the belief is a clock."""
WIDE_POLICY = 0.1
"""Policy disagreement in nats above which sampling changes the behaviour."""
WIDE_VALUE = 0.5
"""Largest acceptable ratio of the value's stddev under the belief to its stddev over inputs."""
CLOCK_REMEDY = (
    "The recurrence is linear, so that every input adds the same curvature: use the likelihood posterior of "
    "rl.fit_predictor."
)
"""Finding for a posterior whose width depends on t by construction."""
REMEDY = (
    "Try rl.fit_predictor on recorded episodes: the width of its posterior depends on the data, and its "
    "predictions are in the units of the observations."
)
"""Finding for a posterior that is not informative and predicts nothing."""
SINGULAR = 1e6
"""Condition number above which float32 has few digits left for the narrow directions."""


@dataclasses.dataclass(frozen=True)
class Variation:
    """Two-way analysis of variance over tasks and time; the three fractions sum to one."""

    mean: float
    stddev: float
    time: float
    """Fraction explained by t alone."""
    task: float
    """Fraction between tasks, each averaged over time."""
    rest: float
    """Residual fraction: the interaction of task and time."""

    @classmethod
    def of(cls, values: Float[np.ndarray, "N T"]) -> "Variation":
        """Analyse one value per task and step; all NaN if a value is not finite."""
        values = np.asarray(values, np.float64)
        if not np.isfinite(values).all():
            return cls(*[float("nan")] * 5)
        total = values.var()
        time, task = values.mean(axis=0).var(), values.mean(axis=1).var()
        if total == 0:
            return cls(float(values.mean()), 0.0, 0.0, 0.0, 0.0)
        rest = max(total - time - task, 0.0)
        fractions = (float(part / total) for part in (time, task, rest))
        return cls(float(values.mean()), float(np.sqrt(total)), *fractions)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """Result of `rl.diagnose`: an analysis of variance of the uncertainty, and findings.

    `str(diagnosis)` is a report.

    ```python
    posterior = rl.LaplacePosterior(rl.Memory(rl.GRU(2, 4, key=jax.random.key(0))))
    diagnosis = rl.diagnose(posterior, jax.random.normal(jax.random.key(1), (3, 5, 2)))
    diagnosis.informative, diagnosis.variations["entropy"].time, diagnosis.words
    ```
    """

    informative: bool
    """Whether the belief predicts more than the observation alone, if there are predictions to compare.

    Otherwise it is false if the width of the belief is constant or a function of t alone. It is always false
    if a number is not finite.
    """
    variations: dict[str, Variation]
    """Analysis of variance of the entropy, the mean stddev, the KL and the predictive readings."""
    condition: float
    """Largest condition number of the covariances."""
    words: tuple[str, ...]
    """Findings, one sentence each."""
    finite: bool = True
    """Whether all inputs, queries, beliefs and outputs of the heads are finite."""
    predictions: dict[str, PredictionScores] = dataclasses.field(default_factory=dict)
    """Scores of the predictions of each target."""
    explained: dict[str, Explained] = dataclasses.field(default_factory=dict)
    """What the predictions of each target explain, if there was a baseline."""
    order: float | None = None
    """Influence of the order of exchangeable inputs on the mean: 0 if none, 1 if as much as another task."""
    martingale: Martingale | None = None
    """Statistics of the predictions of fixed queries, if the inputs are exchangeable."""

    def judged_by(self, check: PredictionCheck) -> "Diagnosis":
        """Diagnosis with a check of predictions, which decide what is informative if there is a baseline."""
        scores = tuple(f"Predictions of the {name}: {each}." for name, each in check.scores.items())
        made = dataclasses.replace(self, predictions=check.scores, explained=check.explained)
        if not check.explained:
            return dataclasses.replace(made, words=(*self.words, *scores))
        informative, words = describe_all(check.explained)
        _, *others = self.words
        width = (
            f"t alone explains {self.variations['entropy'].time:.0%} of the variance of the entropy: judge "
            "the uncertainty by the intervals of the forecasts."
        )
        return dataclasses.replace(made, informative=informative, words=(*words, *scores, width, *others))

    def __str__(self) -> str:
        rows = [
            f"{name:<20} {v.mean:>10.4g} ± {v.stddev:<10.4g} {v.time:>6.0%} {v.task:>6.0%} {v.rest:>6.0%}"
            if np.isfinite(v.mean)
            else f"{name:<20} {NOT_FINITE:>10}"
            for name, v in self.variations.items()
        ]
        title = f"{'':<20} {'mean':>10} ± {'stddev':<10} {'by t':>6} {'task':>6} {'rest':>6}"
        return "\n".join([*self.words, "", title, *rows])


@renamed_argument("seen", "context")
def diagnose(
    posterior: AbstractPosterior,
    inputs: Float[Array, "N T D"],
    *,
    policy: Policy | None = None,
    value: Value | None = None,
    context: Any = None,
    samples: int = 8,
    queries: Float[Array, "N T Q"] | None = None,
    targets: Float[Array, "N T K"] | None = None,
    baseline: Predictor | None = None,
    exchangeable: bool = False,
) -> Diagnosis:
    """Test whether the uncertainty of a posterior depends on the inputs, or on time alone.

    **Arguments:**

    - `posterior`: posterior over the memory of a trained agent.
    - `inputs`: the memory's inputs, at least two tasks and two steps.
    - `policy`, `value`: the agent's heads, as for `rl.Monitor`.
    - `context`: the heads' second argument at each step, `(N, T, ...)`.
    - `samples`: samples from the belief for `policy_disagreement`.
    - `queries`, `targets`: queries that the inputs answer, for an `rl.LikelihoodPosterior`, and their
      targets, whose predictions are then scored; NaN for none.
    - `baseline`: a predictor that sees the query alone, to compare the predictions with, such as that of
      `rl.fit_predictor`. With it, the posterior is informative if it predicts more.
    - `exchangeable`: whether the inputs of a task could have come in any order. The order test is then made,
      and the martingale test of the predictions of an `rl.LikelihoodPosterior`.

    ```python
    posterior = rl.LaplacePosterior(rl.Memory(rl.GRU(2, 4, key=jax.random.key(0))))
    print(rl.diagnose(posterior, jax.random.normal(jax.random.key(1), (3, 5, 2))))
    ```
    """
    if not posterior.has_density:
        raise ValueError(f"posterior must have a spread to be diagnosed; got a {type(posterior).__name__}.")
    check_shape("inputs", inputs, ("N", "T", posterior.memory.input_size or "D"))
    check_size("samples", samples)
    if min(inputs.shape[:2]) < 2:
        raise ValueError(f"inputs must have at least two tasks and two steps; got shape {inputs.shape}.")
    heads = Heads(policy, value)
    check_heads(posterior, heads, jax.tree.map(lambda leaf: leaf[0, 0], context))
    noise = jax.random.normal(jax.random.key(0), (samples, posterior.memory.feature_size))
    reading, spread = eqx.filter_jit(_readings)(
        posterior, heads, jnp.asarray(inputs), context, noise, queries
    )
    condition = _condition(spread)
    numbers = {"entropy": reading.entropy, "stddev": jnp.mean(reading.stddev, axis=-1), "kl": reading.kl}
    for name in ("value_stddev", "value_moved", "policy_disagreement", "policy_moved"):
        if getattr(reading, name) is not None:
            numbers[name] = getattr(reading, name)
    variations = {name: Variation.of(np.asarray(values)) for name, values in numbers.items()}
    # An infinite input can saturate all gates, so that the belief is finite.
    given = {"inputs": jnp.all(jnp.isfinite(inputs), axis=-1)}
    if queries is not None:
        given["queries"] = finite_or_none(jnp.asarray(queries))
    finite = np.asarray(reading.finite & jnp.all(jnp.stack([*given.values()]), axis=0))
    if not finite.all():
        names = [name for name, known in given.items() if not known.all()]
        names += [name for name, values in reading.numbers().items() if not all_finite(values)]
        return Diagnosis(False, variations, condition, (_not_finite(names, finite),), finite=False)
    value_spread = None if reading.value is None else float(jnp.std(reading.value))
    found = _judge(variations, condition, value_spread)
    words = [CLOCK_REMEDY] if posterior.is_clock else []
    if not (found.informative or posterior.is_clock) and posterior.query_size is None:
        words.append(REMEDY)
    if targets is not None:
        if posterior.likelihood is None or queries is None:
            raise ValueError(
                "targets must be left out unless an rl.LikelihoodPosterior predicts them, with queries; "
                f"got a {type(posterior).__name__}."
            )
        check = check_predictions(posterior, posterior.likelihood, inputs, queries, targets, baseline)
        found = found.judged_by(check)
    if exchangeable:
        order = order_sensitivity(posterior, jnp.asarray(inputs), queries)
        words.append(f"Shuffling the inputs moves the mean by {order:.0%} of the difference between tasks.")
        found = dataclasses.replace(found, order=order)
        if posterior.likelihood is not None and queries is not None:
            followed = follow_predictions(posterior, inputs, queries)
            words.append(_describe_martingale(followed))
            found = dataclasses.replace(found, martingale=followed)
    return dataclasses.replace(found, words=(*found.words, *words))


def diagnose_episodes(
    monitor: Monitor, episodes: Sequence[Episode], baseline: Predictor | None = None
) -> Diagnosis | None:
    """`diagnose` on episodes of a monitor; None for fewer than two episodes or steps.

    Readings are analysed on the common length of the episodes, predictions on all their steps.

    **Arguments:** `monitor`, of the posterior to diagnose, with its heads; `episodes`, recorded with it;
    `baseline`, as for `rl.diagnose`.

    ```python
    from recurrent_laplace.monitoring.episode import Episode

    posterior = rl.LaplacePosterior(rl.Memory(rl.GRU(2, 4, key=jax.random.key(0))))
    monitor, episodes = rl.Monitor(posterior), []
    for inputs in np.random.default_rng(0).normal(size=(2, 5, 2)):
        readings = [monitor.step(x, reset=t == 0) for t, x in enumerate(inputs)]
        episodes.append(Episode.of(list(inputs), [0] * 5, [1.0] * 5, readings))
    print(rl.diagnose_episodes(monitor, episodes))
    ```
    """
    posterior = monitor.posterior
    shortest = min(len(episode.inputs) for episode in episodes)
    if len(episodes) < 2 or shortest < 2:
        return None

    def common(arrays: list[Any]) -> Any:
        return jax.tree.map(lambda *leaves: jnp.stack([leaf[:shortest] for leaf in leaves]), *arrays)

    recordings = [Recording.of(episode) for episode in episodes]
    likelihood, queries = posterior.likelihood, None
    if likelihood is not None:
        queries = [delayed(recording.queries(posterior.query_actions)) for recording in recordings]
    found = diagnose(
        posterior,
        common([episode.inputs for episode in episodes]),
        policy=monitor.heads.policy,
        value=monitor.heads.value,
        context=common([episode.context for episode in episodes]),
        samples=monitor.samples,
        queries=None if queries is None else common(queries),
    )
    if likelihood is None or queries is None or not found.finite:
        return found
    names = [name for name, _ in likelihood.named_parts]
    targets = [delayed(recording.targets(names)) for recording in recordings]
    inputs = stacked([episode.inputs for episode in episodes], fill=0.0)
    asked, answers = (stacked(arrays, fill=np.nan) for arrays in (queries, targets))
    return found.judged_by(check_predictions(posterior, likelihood, inputs, asked, answers, baseline))


def _describe_martingale(found: Martingale) -> str:
    return (
        f"Predictions of fixed queries drift by {found.drift:.1f} standard errors (a martingale: about 1), "
        f"reverse {-found.reversal:.0%} of a change at the next step (0%), and move {found.movement:.2g} "
        "times as much as their variance falls (1)."
    )


def _readings(
    posterior: AbstractPosterior,
    heads: Heads,
    inputs: Array,
    context: Any,
    noise: Array,
    queries: Array | None,
) -> tuple[Reading, Any]:
    """Readings at every step of every task, and the spread of each task's beliefs."""

    def read_task(task: tuple[Array, Any, Array | None]) -> tuple[Reading, Any]:
        inputs, context, queries = task
        reading, beliefs = read_sequence(posterior, heads, inputs, context, noise, queries)
        return reading, _spread(beliefs)

    # One task at a time: covariances of all tasks at once would not fit into memory.
    return jax.lax.map(read_task, (inputs, context, queries))


def _spread(beliefs: Any) -> Float[Array, "T F"] | AbstractGaussian:
    """Eigenvalues of the covariances if the family has them, else the last belief, the most anisotropic."""
    eigenvalues = beliefs.eigenvalues()
    return beliefs[-1] if eigenvalues is None else eigenvalues


def _condition(spread: Float[Array, "N T F"] | AbstractGaussian) -> float:
    """Largest condition number of the covariances; NaN if one is not finite."""
    if isinstance(spread, AbstractGaussian):
        covariance = np.asarray(spread.covariance())
        if not np.isfinite(covariance).all():
            return float("nan")
        # NumPy, because compiled programs of this package must not call LAPACK.
        variances = np.linalg.eigvalsh(covariance)
    else:
        variances = np.asarray(spread)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(variances.max(axis=-1) / variances.min(axis=-1)))


def _not_finite(names: list[str], finite: Bool[np.ndarray, "N T"]) -> str:
    """Sentence naming what is not finite, and at how many steps."""
    return (
        f"Not finite: {', '.join(names)}, at {np.sum(~finite)} of {finite.size} steps. "
        "Look for NaN and infinity in the inputs, the weights and the heads."
    )


def _judge(variations: dict[str, Variation], condition: float, value_spread: float | None) -> Diagnosis:
    """Turn the numbers into findings."""
    words = []
    width = variations["stddev"]
    constant = width.stddev < CONSTANT * width.mean
    clock = not constant and variations["entropy"].time > CLOCK
    if constant:
        words.append(
            f"Not informative: the width of the belief is the same everywhere (stddev {width.mean:.3g}, "
            f"give or take {width.stddev / width.mean:.1%})."
        )
    elif clock:
        explained = variations["entropy"].time
        words.append(f"A clock: t alone explains {explained:.0%} of the entropy; tasks hardly differ.")
    else:
        entropy = variations["entropy"]
        words.append(
            f"Informative: {1 - entropy.time:.0%} of the entropy's variance is not explained by t "
            f"({entropy.task:.0%} is between tasks)."
        )
    predictive = variations.get("value_stddev")
    if predictive is not None:
        assert value_spread is not None
        words.append(
            f"The value is uncertain by {predictive.mean:.3g} on average, its spread over inputs is "
            f"{value_spread:.3g}; t alone explains {predictive.time:.0%} of how this varies."
        )
        if predictive.mean > WIDE_VALUE * value_spread:
            words.append(
                "The belief is too wide for the value head: sampling noise would dominate the value. "
                "Calibrate the belief, or act on its mean."
            )
    if "policy_disagreement" in variations:
        disagreement = variations["policy_disagreement"].mean
        hurts = disagreement > WIDE_POLICY
        words.append(
            f"Policies at samples are {disagreement:.3g} nats from the policy at the mean: "
            + ("sampling changes what the agent does." if hurts else "sampling hardly changes behaviour.")
        )
    if condition > SINGULAR:
        words.append(f"Nearly singular: variances of directions differ by a factor of {condition:.2g}.")
    return Diagnosis(not (constant or clock), variations, condition, tuple(words))
