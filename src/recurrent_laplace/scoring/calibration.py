"""Calibration of the scales of a posterior on validation tasks; the network is kept."""

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
from recurrent_laplace.posterior import AbstractScaledPosterior

Loss = Callable[[AbstractGaussian], Float[Array, ""]]
"""Function from beliefs with leading axes of tasks and time to a number to minimise."""

RANGES = {
    "prior_stddev": (1e-2, 1e2),
    "damping_precision": (1e-4, 1e4),
    "temperature": (1e-4, 1e4),
    "noise_scale": (1e-2, 1e2),
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

    posterior: Any
    before: float
    after: float
    evaluations: int


class Case(NamedTuple):
    """Posterior, inputs of validation tasks, and the loss of its beliefs along them."""

    posterior: AbstractScaledPosterior
    inputs: Float[Array, "N T D"]
    loss: Loss | None
    """None: the posterior's own loss of predicted targets."""
    queries: Float[Array, "N T Q"] | None = None
    targets: Float[Array, "N T K"] | None = None


def calibrate(
    posterior: AbstractScaledPosterior,
    inputs: Float[Array, "N T D"],
    loss: Loss | None = None,
    *,
    fit: Sequence[str] | None = None,
    queries: Float[Array, "N T Q"] | None = None,
    targets: Float[Array, "N T K"] | None = None,
) -> Calibration:
    """Fit the scales of a posterior to minimise a loss of its beliefs on validation tasks.

    The loss can be a negative predictive log-likelihood, the distance of a coverage from its level, and so
    on. Test on other tasks.

    **Arguments:**

    - `posterior`: the initial posterior, a Laplace, likelihood or conjugate one; the result is never worse on
      these tasks.
    - `inputs`: the inputs of the validation tasks, `(N, T, D)`.
    - `loss(beliefs)`: a traceable function of beliefs with leading axes `(N, T)`. None, with `targets`, for
      the negative log-likelihood of the targets that an `rl.LikelihoodPosterior` predicts.
    - `fit`: names of scales; by default the prior's (or the damping, without accumulation) and the
      temperature, or the noise of a likelihood. `"forgetting"` can be fitted where precisions accumulate.
    - `queries`, `targets`: queries that the inputs answer, `(N, T, Q)`, where the posterior needs them, and
      their targets, `(N, T, K)`; NaN for none.

    ```python
    posterior = rl.LaplacePosterior(rl.Memory(rl.GRU(2, 4, key=jax.random.key(0))))
    inputs = jax.random.normal(jax.random.key(1), (8, 5, 2))
    z = jax.random.normal(jax.random.key(2), (8, 5, 4))  # what the beliefs should make likely
    found = rl.calibrate(posterior, inputs, lambda beliefs: -jnp.mean(beliefs.log_prob(z)))
    found.posterior, found.before, found.after
    ```
    """
    return calibrate_together([Case(posterior, inputs, loss, queries, targets)], fit=fit)


def calibrate_together(cases: Sequence[Case], *, fit: Sequence[str] | None = None) -> Calibration:
    """Fit common scales of several posteriors, such as the seeds of a run, to minimise the mean loss.

    The posteriors differ only in their memories. The first one is returned, with the fitted scales.
    """
    for case in cases:
        _check_case(case)
    first = cases[0].posterior
    effective = first.effective_scales
    fit = [name for name in effective if name != "forgetting"] if fit is None else fit
    for name in fit:
        check_choice("fit", name, effective)
    if not fit:
        raise ValueError("fit must name at least one scale; got none.")
    initial = first.scales

    @eqx.filter_jit
    def statistics_of(case: Case) -> tuple[Array, Array]:
        queries = None if case.queries is None else jnp.asarray(case.queries)
        return jax.vmap(case.posterior.statistics)(jnp.asarray(case.inputs), queries)

    statistics = [statistics_of(case) for case in cases]

    @eqx.filter_jit
    def case_loss(case: Case, statistics: tuple[Array, Array], scales: Any) -> Float[Array, ""]:
        beliefs: Any = jax.vmap(lambda a, b: case.posterior.scaled(a, b, scales))(*statistics)
        if case.loss is not None:
            return case.loss(beliefs)
        return case.posterior.prediction_loss(beliefs, case.queries, case.targets, scales)

    def mean_loss(scales: Any) -> float:
        traced = type(scales)(*(jnp.asarray(scale, first.memory.dtype) for scale in scales))
        losses = [case_loss(case, each, traced) for case, each in zip(cases, statistics, strict=True)]
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


def _check_case(case: Case) -> None:
    """Raise if the posterior has no scales, or inputs, queries and targets do not fit it."""
    posterior = case.posterior
    if not isinstance(posterior, AbstractScaledPosterior):
        raise ValueError(
            "posterior must be a LaplacePosterior, a LikelihoodPosterior or a ConjugatePosterior to be "
            f"calibrated; got a {type(posterior).__name__}."
        )
    check_shape("inputs", case.inputs, ("N", "T", posterior.memory.input_size or "D"))
    lead = case.inputs.shape[:2]
    _check_finite("inputs must be finite", np.asarray(case.inputs))
    if posterior.query_size is not None:
        check_shape("queries", case.queries, (*lead, posterior.query_size))
        queries = np.asarray(case.queries)
        none = np.isnan(queries).all(axis=-1, keepdims=True)
        _check_finite("queries must be finite, or NaN for none", np.where(none, 0, queries))
    elif case.queries is not None:
        raise ValueError(f"queries must be left out, since a {type(posterior).__name__} takes none.")
    if case.loss is None:
        check_shape("targets", case.targets, (*lead, "K"))
        assert case.targets is not None
        posterior.check_targets(case.targets)


def _check_finite(requirement: str, values: np.ndarray) -> None:
    """Raise `ValueError` for an array with axes of tasks and time that is not finite."""
    broken = ~np.isfinite(values)
    if broken.any():
        task, step, _ = np.argwhere(broken)[0]
        raise ValueError(f"{requirement}; got {values[broken][0]} in task {task} at step {step}.")


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
