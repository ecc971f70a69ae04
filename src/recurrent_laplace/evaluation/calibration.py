"""The scales of a Laplace belief, fitted on validation tasks. The network is not touched."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_choice, check_shape
from recurrent_laplace.gaussians import AbstractGaussian
from recurrent_laplace.posterior import LaplacePosterior

Loss = Callable[[AbstractGaussian], Float[Array, ""]]
"""From beliefs with leading axes of tasks and time to a number: lower is better."""

SCALES = ("prior_stddev", "damping_precision", "temperature", "forgetting")

RANGES = {
    "prior_stddev": (1e-2, 1e2),
    "damping_precision": (1e-4, 1e4),
    "temperature": (1e-4, 1e4),
    "forgetting": (0.5, 1.0),
}
"""Where scales are looked for, and at the given ones."""
POINTS = 5
"""Of each range that are tried first: the loss can be flat where beliefs are narrow."""
MOST_EVALUATIONS = 120
"""From the best of these points on."""
TOLERANCE = 1e-3
"""The search ends when all candidates are this close, in logarithms of the scales."""
ALMOST_ONE = 1 - 1e-5
"""A forgetting factor from here on counts as 1, which has no log-odds."""


class Calibration(NamedTuple):
    """A posterior with fitted scales, and the loss before and after, on the tasks it was fitted on."""

    posterior: LaplacePosterior
    before: float
    after: float
    evaluations: int


class Case(NamedTuple):
    """A posterior, the inputs of validation tasks, and what is asked of its beliefs along them."""

    posterior: LaplacePosterior
    inputs: Float[Array, "N T D"]
    loss: Loss


def calibrate(
    posterior: LaplacePosterior,
    inputs: Float[Array, "N T D"],
    loss: Loss,
    *,
    fit: Sequence[str] | None = None,
) -> Calibration:
    """Fit scales of a Laplace posterior so that `loss` of its beliefs on validation tasks is least.

    The loss says what a good belief is: a negative predictive log-likelihood, the distance of a coverage
    from its level, and so on. Test on other tasks.

    **Arguments:**

    - `posterior`: where the search begins, and what it improves on: never worse on these tasks.
    - `inputs` of the validation tasks.
    - `loss(beliefs)`: a traceable function of beliefs with leading axes `(N, T)`.
    - `fit`: names of scales; by default the prior's (or the damping, without accumulation) and the
      temperature. `"forgetting"` can be fitted where precisions accumulate.

    ```python
    found = rl.calibrate(posterior, inputs, lambda beliefs: -jnp.mean(log_likelihood(beliefs)))
    found.posterior, found.before, found.after
    ```
    """
    return calibrate_together([Case(posterior, inputs, loss)], fit=fit)


def calibrate_together(cases: Sequence[Case], *, fit: Sequence[str] | None = None) -> Calibration:
    """`calibrate` for several networks, the seeds of a run, that are to have the same scales.

    The posteriors differ in nothing but their memories. What is least is the mean of the losses; the first
    posterior is returned.
    """
    for posterior, inputs, _ in cases:
        if not isinstance(posterior, LaplacePosterior):
            raise ValueError(f"posterior must be a LaplacePosterior; got a {type(posterior).__name__}.")
        check_shape("inputs", inputs, ("N", "T", posterior.memory.input_size or "D"))
    first = cases[0].posterior
    effective = effective_scales(first.accumulate)
    fit = [name for name in effective if name != "forgetting"] if fit is None else fit
    for name in fit:
        check_choice("fit", name, effective)
    if not fit:
        raise ValueError("fit must name at least one scale; got none.")
    given = {name: getattr(first, name) for name in SCALES}
    curvatures = eqx.filter_jit(lambda posterior, inputs: jax.vmap(posterior.curvatures)(inputs))
    prepared = [curvatures(posterior, jnp.asarray(inputs)) for posterior, inputs, _ in cases]

    @eqx.filter_jit
    def loss_of(
        posterior: LaplacePosterior, loss: Loss, prepared: tuple[Array, Array], scales: dict[str, Array]
    ) -> Float[Array, ""]:
        return loss(jax.vmap(lambda means, c: posterior.scaled(means, c, **scales))(*prepared))

    def mean_loss(scales: dict[str, float]) -> float:
        traced = {name: jnp.asarray(scale) for name, scale in scales.items()}
        losses = [
            loss_of(case.posterior, case.loss, ready, traced)
            for case, ready in zip(cases, prepared, strict=True)
        ]
        return float(np.mean(np.asarray(losses, float)))

    own = np.array([_to_search(name, given[name]) for name in fit])
    low, high = np.array([[_to_search(name, end) for end in RANGES[name]] for name in fit]).T
    grid = tuple(zip(low, high, strict=True))
    low, high = np.minimum(low, own), np.maximum(high, own)
    count = 0

    def at(point: np.ndarray) -> float:
        # The method's own bounds would flatten its simplex against them.
        if np.any(point < low) or np.any(point > high):
            return np.inf
        nonlocal count
        count += 1
        value = mean_loss(
            given | {name: _from_search(name, one) for name, one in zip(fit, point, strict=True)}
        )
        return value if np.isfinite(value) else np.inf

    before = mean_loss(given)
    if not np.isfinite(before):
        raise ValueError(f"loss must be finite at the posterior's own scales; got {before}.")
    start, least, *_ = scipy.optimize.brute(at, grid, Ns=POINTS, finish=None, full_output=True)
    start = np.atleast_1d(start) if least < before else own
    # Away from the nearer end.
    steps = np.where(start < (low + high) / 2, 1.0, -1.0)
    found = scipy.optimize.minimize(
        at,
        start,
        method="Nelder-Mead",
        options={
            "initial_simplex": np.concatenate([start[None], start + np.diag(steps)]),
            "maxfev": MOST_EVALUATIONS,
            "xatol": TOLERANCE,
            "fatol": 1e-9,
        },
    )
    if not found.fun < before:
        return Calibration(first, before, before, count)
    better = {name: _from_search(name, value) for name, value in zip(fit, found.x, strict=True)}
    return Calibration(with_scales(first, **better), before, float(found.fun), count)


def with_scales(posterior: LaplacePosterior, **scales: float) -> LaplacePosterior:
    """The same posterior with other scales."""
    fields: dict[str, Any] = {
        field.name: getattr(posterior, field.name) for field in dataclasses.fields(posterior)
    }
    for name, value in scales.items():
        fields[name] = float(value)
    return LaplacePosterior(**fields)


def is_at_an_end(name: str, value: float) -> bool:
    """Whether a scale is where the search could go no further, and might have."""
    ends = RANGES[name][:1] if name == "forgetting" else RANGES[name]
    return any(abs(_to_search(name, value) - _to_search(name, end)) < 0.1 for end in ends)


def effective_scales(accumulate: str) -> tuple[str, ...]:
    """The scales that make a difference to a posterior with that accumulation."""
    if accumulate == "none":
        return ("damping_precision", "temperature")
    return ("prior_stddev", "temperature", "forgetting")


def _to_search(name: str, value: float) -> float:
    """Scales are searched as logarithms, a share as its log-odds."""
    if name == "forgetting":
        value = min(value, ALMOST_ONE)
        return float(np.log(value / (1 - value)))
    # A damping of 0 has no logarithm.
    return float(np.log(value or RANGES[name][0]))


def _from_search(name: str, value: float) -> float:
    if name == "forgetting":
        share = float(1 / (1 + np.exp(-value)))
        return 1.0 if share > ALMOST_ONE - 1e-9 else share
    return float(np.exp(value))
