"""Is a posterior informative? A belief can have the same width everywhere and look fine."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.deploy.readings import Heads, Policy, Reading, Value, check_heads, read_sequence
from recurrent_laplace.errors import check_shape, check_size
from recurrent_laplace.gaussians import DenseGaussian, DiagonalGaussian
from recurrent_laplace.posterior import AbstractPosterior, PointPosterior

CONSTANT = 0.01
"""A width that varies by less than this, relative to its mean, is constant."""
CLOCK = 0.9
"""A number of which t alone explains this share is a clock."""
WIDE_POLICY = 0.1
"""Draws' policies this far in nats from the policy at the mean change what the agent does."""
WIDE_VALUE = 0.5
"""So does a value whose stddev under the belief is this share of its spread over inputs."""
SINGULAR = 1e6
"""Beyond this, float32 has few digits left for the narrow directions."""


@dataclasses.dataclass(frozen=True)
class Variation:
    """Where the variance of a number over tasks and time comes from; the three shares sum to one."""

    mean: float
    stddev: float
    time: float
    """Share that t alone explains."""
    task: float
    """Share of the differences between tasks, each averaged over time."""
    rest: float
    """Share of neither: what this task at this moment adds."""

    @classmethod
    def of(cls, values: Float[np.ndarray, "N T"]) -> "Variation":
        """Two-way analysis of variance of a number for each task and step."""
        values = np.asarray(values, np.float64)
        total = values.var()
        time, task = values.mean(axis=0).var(), values.mean(axis=1).var()
        if total == 0:
            return cls(float(values.mean()), 0.0, 0.0, 0.0, 0.0)
        rest = max(total - time - task, 0.0)
        return cls(
            float(values.mean()), float(np.sqrt(total)), *(float(part / total) for part in (time, task, rest))
        )


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found: `numbers` by name, and `words`, one sentence for each finding."""

    informative: bool
    """False if the width of the belief is constant, or nothing but a clock."""
    variations: dict[str, Variation]
    """Of the entropy, the mean stddev, and the predictive readings, where heads were given."""
    condition: float
    """Largest ratio of the widest to the narrowest direction, as variances."""
    words: tuple[str, ...]

    def __str__(self) -> str:
        rows = [
            f"{name:<20} {v.mean:>10.4g} ± {v.stddev:<10.4g} {v.time:>6.0%} {v.task:>6.0%} {v.rest:>6.0%}"
            for name, v in self.variations.items()
        ]
        title = f"{'':<20} {'mean':>10} ± {'stddev':<10} {'by t':>6} {'task':>6} {'rest':>6}"
        return "\n".join([*self.words, "", title, *rows])


def diagnose(
    posterior: AbstractPosterior,
    inputs: Float[Array, "N T D"],
    *,
    policy: Policy | None = None,
    value: Value | None = None,
    seen: Any = None,
    samples: int = 8,
) -> Diagnosis:
    """Say in words and numbers whether a posterior tells inputs, tasks and times apart.

    **Arguments:** `posterior`; `inputs` of at least two tasks and two steps; the agent's heads, and what
    they see beside the belief (`(N, T, ...)`), as for a `Monitor`; `samples` for the policy's disagreement.

    ```python
    print(rl.diagnose(posterior, inputs))
    ```
    """
    if isinstance(posterior, PointPosterior):
        raise ValueError("posterior must have a spread to be diagnosed; got a PointPosterior.")
    check_shape("inputs", inputs, ("N", "T", posterior.memory.input_size or "D"))
    check_size("samples", samples)
    if min(inputs.shape[:2]) < 2:
        raise ValueError(f"inputs must have at least two tasks and two steps; got shape {inputs.shape}.")
    heads = Heads(policy, value)
    check_heads(posterior, heads, jax.tree.map(lambda leaf: leaf[0, 0], seen))
    noise = jax.random.normal(jax.random.key(0), (samples, posterior.memory.feature_size))
    reading, condition = eqx.filter_jit(_readings)(posterior, heads, jnp.asarray(inputs), seen, noise)
    numbers = {"entropy": reading.entropy, "stddev": jnp.mean(reading.stddev, axis=-1), "kl": reading.kl}
    for name in ("value_stddev", "value_moved", "policy_disagreement", "policy_moved"):
        if getattr(reading, name) is not None:
            numbers[name] = getattr(reading, name)
    variations = {name: Variation.of(np.asarray(values)) for name, values in numbers.items()}
    value_spread = None if reading.value is None else float(jnp.std(reading.value))
    return _judge(variations, float(jnp.max(condition)), value_spread)


def _readings(
    posterior: AbstractPosterior, heads: Heads, inputs: Array, seen: Any, noise: Array
) -> tuple[Reading, Array]:
    """Readings of all steps of all tasks, and the conditioning of each belief."""

    def of_task(inputs: Array, seen: Any) -> tuple[Reading, Array]:
        reading, beliefs = read_sequence(posterior, heads, inputs, seen, noise)
        return reading, _condition(beliefs)

    # One task at a time: covariances of all tasks at once would not fit.
    return jax.lax.map(lambda task: of_task(*task), (inputs, seen))


def _condition(beliefs: Any) -> Float[Array, " T"]:
    """Ratio of the largest to the smallest variance over directions."""
    match beliefs:
        case DiagonalGaussian():
            variances = beliefs.variance()
        case DenseGaussian():
            # Of the last step, where it is worst, and one matrix is enough.
            variances = jnp.linalg.eigvalsh(beliefs[-1].covariance())[None]
        case _:
            variances = jnp.exp(beliefs.log_eigenvalues)
    return jnp.max(variances, axis=-1) / jnp.min(variances, axis=-1)


def _judge(variations: dict[str, Variation], condition: float, value_spread: float | None) -> Diagnosis:
    """The findings in words."""
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
        share = variations["entropy"].time
        words.append(f"A clock: t alone explains {share:.0%} of the entropy; tasks hardly differ.")
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
                "The belief is too wide for the value head: draws from it would drown the value. "
                "Calibrate it, or act on the mean."
            )
    if "policy_disagreement" in variations:
        disagreement = variations["policy_disagreement"].mean
        hurts = disagreement > WIDE_POLICY
        words.append(
            f"Policies of draws are {disagreement:.3g} nats from the policy at the mean: "
            + ("sampling changes what the agent does." if hurts else "sampling hardly changes behaviour.")
        )
    if condition > SINGULAR:
        words.append(f"Nearly singular: variances of directions differ by a factor of {condition:.2g}.")
    return Diagnosis(
        informative=not (constant or clock), variations=variations, condition=condition, words=tuple(words)
    )
