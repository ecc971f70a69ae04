"""Calibration of the scales of a Laplace posterior on validation tasks; the network is kept."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_choice, check_shape
from recurrent_laplace.gaussians import AbstractGaussian
from recurrent_laplace.posterior import LaplacePosterior
from recurrent_laplace.posterior.laplace import Scales

Loss = Callable[[AbstractGaussian], Float[Array, ""]]
"""Function from beliefs with leading axes of tasks and time to a number to minimise."""

RANGES = {
    "prior_stddev": (1e-2, 1e2),
    "damping_precision": (1e-4, 1e4),
    "temperature": (1e-4, 1e4),
    "forgetting": (0.5, 1.0),
}
"""Search range of each scale, extended to the initial one."""
POINTS = 5
"""Grid points per range, tried first since the loss can be flat where beliefs are narrow."""
MOST_EVALUATIONS = 120
"""Maximum evaluations of the local search from the best grid point."""
TOLERANCE = 1e-3
"""Diameter of the simplex, in logarithms of the scales, at which the search ends."""
ALMOST_ONE = 1 - 1e-5
"""Forgetting factor from which on it counts as 1, which has no log-odds."""


class Calibration(NamedTuple):
    """Result of `rl.calibrate`: the posterior with fitted scales, and its loss.

    **Arguments:**

    - `posterior`: the posterior with fitted scales.
    - `before`, `after`: the loss on the validation tasks with the initial and the fitted scales.
    - `evaluations`: how often the loss was evaluated.

    ```python
    memory = rl.Memory(rl.GRU(2, 4, key=jax.random.key(0)))
    inputs = jax.random.normal(jax.random.key(1), (8, 5, 2))
    found = rl.calibrate(rl.LaplacePosterior(memory), inputs, lambda beliefs: jnp.mean(beliefs.entropy()))
    isinstance(found, rl.Calibration), found.after <= found.before  # (True, True)
    ```
    """

    posterior: LaplacePosterior
    before: float
    after: float
    evaluations: int


class Case(NamedTuple):
    """Posterior, inputs of validation tasks, and the loss of its beliefs along them."""

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
    """Fit the scales of a Laplace posterior to minimise a loss of its beliefs on validation tasks.

    The loss can be a negative predictive log-likelihood, the distance of a coverage from its level, and so
    on. Test on other tasks.

    **Arguments:**

    - `posterior`: the initial posterior; the result is never worse on these tasks.
    - `inputs`: the inputs of the validation tasks, `(N, T, D)`.
    - `loss(beliefs)`: a traceable function of beliefs with leading axes `(N, T)`.
    - `fit`: names of scales; by default the prior's (or the damping, without accumulation) and the
      temperature. `"forgetting"` can be fitted where precisions accumulate.

    ```python
    posterior = rl.LaplacePosterior(rl.Memory(rl.GRU(2, 4, key=jax.random.key(0))))
    inputs = jax.random.normal(jax.random.key(1), (8, 5, 2))
    z = jax.random.normal(jax.random.key(2), (8, 5, 4))  # what the beliefs should make likely
    found = rl.calibrate(posterior, inputs, lambda beliefs: -jnp.mean(beliefs.log_prob(z)))
    found.posterior, found.before, found.after
    ```
    """
    return calibrate_together([Case(posterior, inputs, loss)], fit=fit)


def calibrate_together(cases: Sequence[Case], *, fit: Sequence[str] | None = None) -> Calibration:
    """Fit common scales of several posteriors, such as the seeds of a run, to minimise the mean loss.

    The posteriors differ only in their memories. The first one is returned, with the fitted scales.
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
    initial = first.scales
    curvatures = eqx.filter_jit(lambda posterior, inputs: jax.vmap(posterior.curvatures)(inputs))
    moments = [curvatures(posterior, jnp.asarray(inputs)) for posterior, inputs, _ in cases]

    @eqx.filter_jit
    def case_loss(
        posterior: LaplacePosterior, loss: Loss, moments: tuple[Array, Array], scales: Scales
    ) -> Float[Array, ""]:
        return loss(jax.vmap(lambda means, c: posterior.scaled(means, c, scales))(*moments))

    def mean_loss(scales: Scales) -> float:
        traced = Scales(*(jnp.asarray(scale, first.memory.dtype) for scale in scales))
        losses = [
            case_loss(posterior, loss, means_and_curvatures, traced)
            for (posterior, _, loss), means_and_curvatures in zip(cases, moments, strict=True)
        ]
        return float(np.mean(np.asarray(losses, float)))

    initial_point = np.array([_to_search(name, getattr(initial, name)) for name in fit])
    low, high = np.array([[_to_search(name, bound) for bound in RANGES[name]] for name in fit]).T
    grid = tuple(zip(low, high, strict=True))
    low, high = np.minimum(low, initial_point), np.maximum(high, initial_point)
    count = 0

    def scales_at(point: np.ndarray) -> dict[str, float]:
        return {name: _from_search(name, value) for name, value in zip(fit, point, strict=True)}

    def loss_at(point: np.ndarray) -> float:
        # SciPy's bounds would flatten the simplex against them.
        if np.any(point < low) or np.any(point > high):
            return np.inf
        nonlocal count
        count += 1
        value = mean_loss(initial._replace(**scales_at(point)))
        return value if np.isfinite(value) else np.inf

    before = mean_loss(initial)
    if not np.isfinite(before):
        raise ValueError(f"loss must be finite at the posterior's own scales; got {before}.")
    start, least, *_ = scipy.optimize.brute(loss_at, grid, Ns=POINTS, finish=None, full_output=True)
    start = np.atleast_1d(start) if least < before else initial_point
    # The simplex extends away from the nearer bound.
    steps = np.where(start < (low + high) / 2, 1.0, -1.0)
    found = scipy.optimize.minimize(
        loss_at,
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
    return Calibration(dataclasses.replace(first, **scales_at(found.x)), before, float(found.fun), count)


def is_at_bound(name: str, value: float) -> bool:
    """Whether a scale is at a bound of its search range; a forgetting factor of 1 is none."""
    bounds = RANGES[name][:1] if name == "forgetting" else RANGES[name]
    return any(abs(_to_search(name, value) - _to_search(name, bound)) < 0.1 for bound in bounds)


def effective_scales(accumulate: str) -> tuple[str, ...]:
    """Names of the scales that affect a posterior with that accumulation."""
    if accumulate == "none":
        return ("damping_precision", "temperature")
    return ("prior_stddev", "temperature", "forgetting")


def _to_search(name: str, value: float) -> float:
    """Search coordinate of a scale: its logarithm, or the log-odds of a forgetting factor."""
    if name == "forgetting":
        value = min(value, ALMOST_ONE)
        return float(np.log(value / (1 - value)))
    # A damping of 0 has no logarithm.
    return float(np.log(value or RANGES[name][0]))


def _from_search(name: str, value: float) -> float:
    if name == "forgetting":
        factor = float(1 / (1 + np.exp(-value)))
        return 1.0 if factor > ALMOST_ONE - 1e-9 else factor
    return float(np.exp(value))
