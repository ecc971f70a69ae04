"""Difference between converted networks and their sources: the table of docs/lab/parity.md.

For each kind of network, 5 random ones (1 to 32 inputs, 1 to 64 units, T 50): the largest difference of any
output or final state, relative where the value is above 1 and absolute below.
"""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

import recurrent_laplace as rl

NETWORKS, T = 5, 50
Case = tuple[rl.Memory, np.ndarray, Any]
"""A memory, inputs `(T, D)`, and the source's outputs and final state."""


def from_torch(random: np.random.Generator, dtype: str, kind: type, **options: Any) -> Case:
    """A random PyTorch module of one to three layers; final states of the top layer."""
    size, hidden, layers = sizes(random)
    net = kind(size, hidden, layers, **options).to(getattr(torch, dtype))
    inputs = random.normal(size=(T, size)).astype(dtype)
    with torch.no_grad():
        outputs, last = net(torch.from_numpy(inputs))
    last = tuple(part[-1].numpy() for part in last) if isinstance(last, tuple) else last[-1].numpy()
    return rl.interop.torch.from_torch(net), inputs, (outputs.numpy(), last)


def from_linen(random: np.random.Generator, dtype: str, name: str) -> Case:
    """Random parameters of a Linen cell."""
    size, hidden, _ = sizes(random)
    inputs, key = random.normal(size=(T, size)).astype(dtype), jax.random.key(0)
    net = nn.RNN(getattr(nn, name)(hidden, param_dtype=dtype), return_carry=True)
    shapes = jax.eval_shape(net.init, key, inputs)
    params = jax.tree.map(lambda leaf: draw(random, leaf.shape, hidden, dtype), shapes)
    carry, outputs = net.apply(params, inputs)
    return rl.interop.flax.from_linen(params, name), inputs, (outputs, swapped(carry))


def from_nnx(random: np.random.Generator, dtype: str, name: str) -> Case:
    """A random NNX cell."""
    size, hidden, _ = sizes(random)
    inputs = random.normal(size=(T, size)).astype(dtype)
    kind = jnp.dtype(dtype)
    cell = getattr(nnx, name)(size, hidden, dtype=kind, param_dtype=kind, rngs=nnx.Rngs(0))
    state = nnx.state(cell, nnx.Param)
    nnx.update(cell, jax.tree.map(lambda leaf: draw(random, leaf.shape, hidden, dtype), state))
    carry, outputs = nnx.RNN(cell, return_carry=True)(jnp.asarray(inputs))
    return rl.interop.flax.from_nnx(cell), inputs, (outputs, swapped(carry))


def from_equinox(random: np.random.Generator, dtype: str, name: str) -> Case:
    """A random Equinox cell."""
    size, hidden, _ = sizes(random)
    inputs = random.normal(size=(T, size)).astype(dtype)
    key = jax.random.key(int(random.integers(2**31)))
    cell = getattr(eqx.nn, name)(size, hidden, dtype=jnp.dtype(dtype), key=key)
    memory = rl.interop.equinox.from_equinox(cell)

    def step(carry: Any, x: jax.Array) -> tuple[Any, jax.Array]:
        carry = cell(x, carry)
        return carry, memory.cell.hidden(carry)

    carry, outputs = jax.lax.scan(step, memory.init(), jnp.asarray(inputs))
    return memory, inputs, (outputs, carry)


def sizes(random: np.random.Generator) -> tuple[int, int, int]:
    """Inputs, units and layers."""
    return int(random.integers(1, 33)), int(random.integers(1, 65)), int(random.integers(1, 4))


def draw(random: np.random.Generator, shape: tuple[int, ...], hidden: int, dtype: str) -> jax.Array:
    """Weights and biases as large as PyTorch's own."""
    return jnp.asarray(random.uniform(-1, 1, shape) * hidden**-0.5, dtype)


def swapped(carry: Any) -> Any:
    """Flax's `(c, h)` is our `(h, c)`."""
    return carry[::-1] if isinstance(carry, tuple) else carry


def differences(case: Case) -> Iterator[float]:
    """The largest difference in each array that a source gives."""
    memory, inputs, expected = case
    trace = memory.unroll(jnp.asarray(inputs))
    ours = trace.features, jax.tree.map(lambda leaf: leaf[-1], trace.carries)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape, f"{a.shape} and {b.shape}"
        assert a.dtype == b.dtype, f"{a.dtype} and {b.dtype}"
        yield float(np.max(np.abs(a - b) / np.maximum(1, np.abs(b))))


def largest(make: Callable[..., Case], dtype: str, **options: Any) -> float:
    """Over all networks of one kind."""
    random = np.random.default_rng(0)
    torch.manual_seed(0)
    return max(d for _ in range(NETWORKS) for d in differences(make(random, dtype, **options)))


ROWS: dict[str, tuple[Callable[..., Case], dict[str, Any]]] = {
    "torch `nn.LSTM`": (from_torch, {"kind": torch.nn.LSTM}),
    "torch `nn.GRU`": (from_torch, {"kind": torch.nn.GRU}),
    "torch `nn.RNN`, tanh": (from_torch, {"kind": torch.nn.RNN}),
    "torch `nn.RNN`, relu": (from_torch, {"kind": torch.nn.RNN, "nonlinearity": "relu"}),
    **{
        f"{library} `{name}`": (make, {"name": name})
        for library, make in (("Linen", from_linen), ("NNX", from_nnx))
        for name in ("LSTMCell", "OptimizedLSTMCell", "GRUCell", "SimpleCell")
    },
    "Equinox `LSTMCell`": (from_equinox, {"name": "LSTMCell"}),
    "Equinox `GRUCell`": (from_equinox, {"name": "GRUCell"}),
}

if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    print("| source | float32 | float64 |\n|---|---|---|")
    for row, (make, options) in ROWS.items():
        values = [f"{largest(make, dtype, **options):.0e}" for dtype in ("float32", "float64")]
        print(f"| {row} | {' | '.join(values)} |", flush=True)
