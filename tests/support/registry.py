"""Every exported kind of cell, memory and belief, for product tests; comparisons with tolerances."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recurrent_laplace as rl

CELLS = (
    "lstm",
    "lstm-no-bias",
    "gru",
    "gru-no-bias",
    "elman-tanh",
    "elman-tanh-no-bias",
    "elman-relu",
    "elman-relu-no-bias",
    "linear",
    "linear-no-bias",
    "autodiff",
)
GATED_CELLS = tuple(name for name in CELLS if name != "autodiff")
MEMORIES = tuple(f"{name}{suffix}" for name in CELLS for suffix in ("", "-readout"))
# One memory for each kind of cell, with and without bias and readout, for tests that are slow to compile.
FEW_MEMORIES = (
    "lstm-readout",
    "lstm-no-bias",
    "gru-readout",
    "gru-no-bias",
    "elman-tanh-readout",
    "elman-relu",
    "linear-no-bias-readout",
    "autodiff-readout",
)
DENSITIES = ("diagonal", "dense", "spectral")
BELIEFS = ("point", *DENSITIES)
DTYPES = (jnp.float64, jnp.float32)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__)

TOLERANCE = {"float64": 1e-10, "float32": 1e-5}


def exported(base: type) -> set[type]:
    """Concrete subclasses of `base` that the package exports."""
    values = [getattr(rl, name) for name in rl.__all__]
    return {
        value
        for value in values
        if inspect.isclass(value) and issubclass(value, base) and not inspect.isabstract(value)
    }


def cells(input_size: int, hidden_size: int, dtype: Any, key: jax.Array) -> dict[str, rl.AbstractCell]:
    """Every kind of cell, by the names in `CELLS`."""
    keys = dict(zip(CELLS, jax.random.split(key, len(CELLS)), strict=True))

    def make(name: str) -> rl.AbstractCell:
        kind, *rest = name.split("-")
        options = {"use_bias": "bias" not in rest, "dtype": dtype, "key": keys[name]}
        if kind == "elman":
            return rl.Elman(input_size, hidden_size, activation=rest[0], **options)
        kinds = {"lstm": rl.LSTM, "gru": rl.GRU, "linear": rl.Linear}
        return kinds[kind](input_size, hidden_size, **options)

    made = {name: make(name) for name in GATED_CELLS}
    made["autodiff"] = _autodiff(input_size, hidden_size, dtype, keys["autodiff"])
    return made


def _autodiff(input_size: int, hidden_size: int, dtype: Any, key: jax.Array) -> rl.Autodiff:
    """A carry `({"slow", "count"}, h)` that starts away from zero; `hidden` picks `h`."""
    random = _generator(key)
    limit = hidden_size**-0.5
    weight_x = jnp.asarray(random.uniform(-limit, limit, (hidden_size, input_size)), dtype)
    weight_h = jnp.asarray(random.uniform(-limit, limit, (hidden_size, hidden_size)), dtype)

    def step(carry: Any, x: jax.Array) -> Any:
        rest, h = carry
        slow = 0.75 * rest["slow"] + 0.25 * h**2
        new = jnp.tanh(weight_x @ x + weight_h @ h + slow * rest["slow"] + 0.125 * rest["count"])
        return {"slow": slow, "count": rest["count"] / 2 + 1}, new

    rest = {"slow": jnp.full(hidden_size, 0.25, dtype), "count": jnp.ones((), dtype)}
    start = (rest, jnp.asarray(random.uniform(-limit, limit, hidden_size), dtype))
    return rl.Autodiff(step, start, hidden=lambda carry: carry[1], input_size=input_size)


def memories(
    input_size: int, hidden_size: int, features: int, dtype: Any, key: jax.Array
) -> dict[str, rl.Memory]:
    """Every cell, without a readout and with one to `features`, by the names in `MEMORIES`."""
    key_cells, key_readouts = jax.random.split(key)
    made: dict[str, rl.Memory] = {}
    for index, (name, cell) in enumerate(cells(input_size, hidden_size, dtype, key_cells).items()):
        made[name] = rl.Memory(cell)
        made[f"{name}-readout"] = rl.Memory(cell, features, key=jax.random.fold_in(key_readouts, index))
    return made


def beliefs(lead: tuple[int, ...], size: int, dtype: Any, key: jax.Array) -> dict[str, rl.AbstractBelief]:
    """Every family of beliefs with leading axes `lead` over `size` features; well conditioned."""
    random = _generator(key)

    def array(values: np.ndarray) -> jax.Array:
        return jnp.asarray(values, dtype)

    def mean() -> jax.Array:
        return array(random.normal(size=(*lead, size)))

    root = random.normal(size=(*lead, size, size)) / np.sqrt(size)
    basis, _ = np.linalg.qr(random.normal(size=(*lead, size, size)))
    return {
        "point": rl.PointBelief(mean()),
        "diagonal": rl.DiagonalGaussian(mean(), array(random.uniform(0.5, 2.0, (*lead, size)))),
        "dense": rl.DenseGaussian(
            mean(), array(np.linalg.cholesky(np.eye(size) + root @ np.swapaxes(root, -1, -2)))
        ),
        "spectral": rl.SpectralGaussian(
            mean(), array(random.uniform(-1.0, 1.0, (*lead, size))), array(basis)
        ),
    }


def random_carry(cell: rl.AbstractCell, key: jax.Array) -> Any:
    """A carry of standard normal numbers."""
    random = _generator(key)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), leaf.dtype), cell.init())


def with_hidden(cell: rl.AbstractCell, carry: Any, h: jax.Array) -> Any:
    """`carry` with its hidden state replaced, all else held fixed."""
    if isinstance(cell, rl.LSTM):
        return h, carry[1]
    if isinstance(cell, rl.Autodiff):
        return carry[0], h
    return h


def assert_close(actual: Any, expected: Any, *, dtype: Any = None, tolerance: float | None = None) -> None:
    """Assert that all leaves are equal within 1e-10 (float64) or 1e-5 (float32), absolute or relative.

    The dtype is that of `actual`'s leaves unless it is given; NaN equals nothing.
    """
    actual_leaves, treedef = jax.tree.flatten(actual)
    expected_leaves, expected_treedef = jax.tree.flatten(expected)
    if len(expected_leaves) != len(actual_leaves):
        raise AssertionError(f"structures differ: {treedef} and {expected_treedef}")
    for a, e in zip(actual_leaves, expected_leaves, strict=True):
        a, e = np.asarray(a), np.asarray(e)
        limit = tolerance or TOLERANCE[str(np.dtype(dtype or a.dtype))]
        assert a.shape == e.shape, f"shapes differ: {a.shape} and {e.shape}"
        np.testing.assert_allclose(a, e, rtol=limit, atol=limit, equal_nan=False)


def assert_gradient(function: Any, tree: Any) -> None:
    """Assert that the gradient of a scalar function is its central difference in a random direction."""
    function = jax.jit(function)
    random = np.random.default_rng(9)
    direction = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape)), tree)
    gradient = jax.grad(function)(tree)
    slope = sum(jax.tree.leaves(jax.tree.map(jnp.vdot, gradient, direction)))
    step = 1e-6
    up = function(jax.tree.map(lambda leaf, d: leaf + step * d, tree, direction))
    down = function(jax.tree.map(lambda leaf, d: leaf - step * d, tree, direction))
    assert abs(slope) > 1e-2
    # Values of up to about 100 lose 1e-14 / step to rounding.
    assert_close(slope, (up - down) / (2 * step), tolerance=1e-7)


def _generator(key: jax.Array) -> np.random.Generator:
    """NumPy generator, which needs no compilation for new shapes."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))
