"""Forecasts of targets in their own units."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.monitoring.recording import Recording, delayed, stacked
from recurrent_laplace.posterior import AbstractLikelihood, AbstractPosterior

MOST_SHOWN = 4
"""Entries of a target that are printed."""


@dataclasses.dataclass(frozen=True)
class Forecast:
    """Predicted targets under a belief, the result of `rl.Monitor.predict`: means and standard deviations.

    `str(forecast)` is a text such as `next reward 0.3 ± 0.2`.

    **Arguments:** `mean` and `stddev`, both by name of the target, of shape `(K,)` or `(streams, K)`.

    ```python
    print(rl.Forecast(mean={"reward": np.array([0.31])}, stddev={"reward": np.array([0.2])}))
    ```
    """

    mean: dict[str, np.ndarray]
    stddev: dict[str, np.ndarray]

    def __str__(self) -> str:
        texts = []
        for name, mean in self.mean.items():
            pairs = list(zip(np.ravel(mean), np.ravel(self.stddev[name]), strict=True))
            shown = ", ".join(f"{value:.2g} ± {stddev:.1g}" for value, stddev in pairs[:MOST_SHOWN])
            texts.append(f"next {name} {shown}{', ...' if len(pairs) > MOST_SHOWN else ''}")
        return "; ".join(texts)


class Forecasts(NamedTuple):
    """One-step forecasts along an episode, each in the row of the step at which it is made."""

    mean: Float[np.ndarray, "T K"]
    stddev: Float[np.ndarray, "T K"]
    target: Float[np.ndarray, "T K"]
    """What followed the step; NaN where it was not recorded."""


def forecast_episodes(
    posterior: AbstractPosterior, likelihood: AbstractLikelihood, recordings: Sequence[Recording]
) -> list[Forecasts]:
    """Forecasts of what followed each step of recorded episodes, from the belief at that step.

    `likelihood` is that of the targets which the posterior predicts.
    """
    names = [name for name, _ in likelihood.named_parts]
    asked = [recording.queries(posterior.query_actions) for recording in recordings]
    answered = stacked([delayed(queries) for queries in asked], fill=np.nan)
    inputs = stacked([recording.inputs for recording in recordings], fill=0.0)

    mean, stddev = forecast_all(posterior, inputs, answered, stacked(asked, fill=0.0))
    return [
        Forecasts(mean[index, : len(each.inputs)], stddev[index, : len(each.inputs)], each.targets(names))
        for index, each in enumerate(recordings)
    ]


def forecast_all(
    posterior: AbstractPosterior,
    inputs: Float[Any, "N T D"],
    answered: Float[Any, "N T Q"],
    asked: Float[Any, "N T Q"],
) -> tuple[Float[np.ndarray, "N T K"], Float[np.ndarray, "N T K"]]:
    """Means and standard deviations of the targets of the queries `asked`, from the belief at each step.

    `answered` are the queries that the inputs answer.
    """
    dtype = posterior.memory.dtype
    mean, stddev = _forecast_all(posterior, *(jnp.asarray(a, dtype) for a in (inputs, answered, asked)))
    return np.asarray(mean, float), np.asarray(stddev, float)


@eqx.filter_jit
def _forecast_all(
    posterior: AbstractPosterior, inputs: Array, answered: Array, asked: Array
) -> tuple[Array, Array]:
    def of_episode(episode: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        inputs, answered, asked = episode
        predictive = posterior.predict(posterior.unroll(inputs, queries=answered), asked)
        return predictive.mean(), predictive.stddev()

    return jax.lax.map(of_episode, (inputs, answered, asked))


def split_by_target(likelihood: AbstractLikelihood, values: np.ndarray) -> dict[str, np.ndarray]:
    """Entries of the last axis of each target, by name."""
    parts = likelihood.named_parts
    ends = np.cumsum([part.size for _, part in parts])[:-1]
    return dict(zip((name for name, _ in parts), np.split(values, ends, axis=-1), strict=True))
