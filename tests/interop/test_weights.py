"""Weights of PyTorch and Flax, against the libraries themselves, over random shapes."""

import inspect
import re
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.registry import assert_close, memories

import recurrent_laplace as rl
from recurrent_laplace.interop.flax import from_linen, from_nnx
from recurrent_laplace.interop.torch import from_state_dict, from_torch, to_torch

torch = pytest.importorskip("torch")
nn = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")

pytestmark = pytest.mark.interop

TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
SIZES = st.integers(1, 6)
DTYPES = st.sampled_from(["float32", "float64"])
FEW = settings(max_examples=4)

MODULES = {
    "LSTM": (torch.nn.LSTM, {}),
    "GRU": (torch.nn.GRU, {}),
    "RNN tanh": (torch.nn.RNN, {}),
    "RNN relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
}
CELLS = {
    "LSTMCell": (torch.nn.LSTMCell, {}),
    "GRUCell": (torch.nn.GRUCell, {}),
    "RNNCell tanh": (torch.nn.RNNCell, {}),
    "RNNCell relu": (torch.nn.RNNCell, {"nonlinearity": "relu"}),
}


def layers_of(memory: rl.Memory, carry):
    return [*carry[0], carry[1]] if memory.below else [carry]


def last_carry(memory: rl.Memory, inputs):
    carry = memory.init()
    for x in inputs:
        carry, _ = memory.step(carry, x)
    return layers_of(memory, carry)


def array(tensor) -> np.ndarray:
    return tensor.detach().numpy()


@pytest.mark.parametrize("name", MODULES)
@FEW
@given(st.data())
def test_torch_module(name, data):
    make, options = MODULES[name]
    dtype, size, hidden, features = data.draw(st.tuples(DTYPES, SIZES, SIZES, SIZES))
    count = data.draw(st.integers(1, 3))
    layer = data.draw(st.integers(-count, count - 1))
    bias, batch_first = data.draw(st.tuples(st.booleans(), st.booleans()))
    torch.manual_seed(data.draw(st.integers(0, 99)))
    kind = getattr(torch, dtype)
    net = make(size, hidden, count, bias=bias, batch_first=batch_first, dtype=kind, **options)
    inputs = torch.randn(5, size, dtype=kind)
    outputs, last = net(inputs)
    top = layer in (-1, count - 1)
    readout = torch.nn.Linear(hidden, features, bias=bias, dtype=kind) if top else None
    memory = from_torch(net, readout, layer)

    tolerance, ours = TOLERANCE[dtype], jnp.asarray(array(inputs))
    trace = memory.unroll(ours)
    assert memory.dtype == trace.features.dtype == dtype
    assert len(memory.below) == layer % count
    if top:
        assert_close(trace.features, array(readout(outputs)), tolerance=tolerance)
    states = [array(state) for state in (last if isinstance(last, tuple) else (last,))]
    for index, carry in enumerate(last_carry(memory, ours)):
        expected = [state[index] for state in states]
        assert_close(jax.tree.leaves(carry), expected, tolerance=tolerance)
    at_end = jax.tree.map(lambda leaf: leaf[-1], trace.carries)
    assert_close(jax.tree.leaves(at_end), [state[layer] for state in states], tolerance=tolerance)

    # The same by names alone, and there and back without a bit changed.
    assert eqx.tree_equal(from_state_dict(net.state_dict(), memory_kind(name), layer=layer).cell, memory.cell)
    again, head = to_torch(memory)
    assert eqx.tree_equal(from_torch(again, head), memory)
    if top:
        assert_close(array(again(inputs)[0]), array(outputs), tolerance=tolerance)
        assert_close(array(head(outputs)), array(readout(outputs)), tolerance=0)


def memory_kind(name: str) -> str | None:
    """RNNs need to say their activation; others are told from shapes."""
    return name.lower().replace(" ", "_") if name.startswith("RNN") else None


@pytest.mark.parametrize("name", CELLS)
@FEW
@given(st.data())
def test_torch_cell(name, data):
    make, options = CELLS[name]
    dtype, size, hidden, bias = data.draw(st.tuples(DTYPES, SIZES, SIZES, st.booleans()))
    torch.manual_seed(data.draw(st.integers(0, 99)))
    net = make(size, hidden, bias=bias, dtype=getattr(torch, dtype), **options)
    inputs = torch.randn(5, size, dtype=getattr(torch, dtype))
    trace = from_torch(net).unroll(jnp.asarray(array(inputs)))
    state = None
    for t, x in enumerate(inputs):
        state = net(x, state)
        expected = [array(part) for part in (state if isinstance(state, tuple) else (state,))]
        carry = jax.tree.leaves(jax.tree.map(lambda leaf, t=t: leaf[t], trace.carries))
        assert_close(carry, expected, tolerance=TOLERANCE[dtype])


def random_params(shapes, random: np.random.Generator):
    """Flax's biases start as zeros, which would hide where they go."""
    return jax.tree.map(lambda leaf: jnp.asarray(random.uniform(-1, 1, leaf.shape), leaf.dtype), shapes)


def swapped(carry):
    """Flax's `(c, h)` is our `(h, c)`."""
    return carry[::-1] if isinstance(carry, tuple) else carry


@pytest.mark.parametrize("name", ["LSTMCell", "OptimizedLSTMCell", "GRUCell", "SimpleCell"])
@FEW
@given(st.data())
def test_linen(name, data):
    dtype, size, hidden, features = data.draw(st.tuples(DTYPES, SIZES, SIZES, SIZES))
    use_bias, random = data.draw(st.booleans()), np.random.default_rng(data.draw(st.integers(0, 99)))
    cell, inputs = (
        getattr(nn, name)(hidden, param_dtype=dtype),
        jnp.asarray(random.normal(size=(4, size)), dtype),
    )
    head, zeros = nn.Dense(features, use_bias=use_bias, param_dtype=dtype), jnp.zeros(hidden, dtype)
    carry, key = (zeros, zeros) if "LSTM" in name else zeros, jax.random.key(0)
    params = random_params(jax.eval_shape(cell.init, key, carry, inputs[0]), random)
    readout = random_params(jax.eval_shape(head.init, key, zeros), random)

    memory = from_linen(params, name, readout)
    trace = memory.unroll(inputs)
    for t, x in enumerate(inputs):
        carry, output = cell.apply(params, carry, x)
        got = trace.features[t], jax.tree.map(lambda leaf, t=t: leaf[t], trace.carries)
        assert_close(got, (head.apply(readout, output), swapped(carry)), tolerance=TOLERANCE[dtype])
    nested = {"Dense_0": readout["params"], "memory": {"cell": params["params"]}}
    assert eqx.tree_equal(from_linen(nested, name, nested["Dense_0"]), memory)


@pytest.mark.parametrize("name", ["LSTMCell", "OptimizedLSTMCell", "GRUCell", "SimpleCell"])
@FEW
@given(st.data())
def test_nnx(name, data):
    dtype, size, hidden, features = data.draw(st.tuples(DTYPES, SIZES, SIZES, SIZES))
    use_bias, seed = data.draw(st.booleans()), data.draw(st.integers(0, 99))
    rngs, random = nnx.Rngs(seed), np.random.default_rng(seed)
    cell = getattr(nnx, name)(size, hidden, dtype=jnp.dtype(dtype), param_dtype=jnp.dtype(dtype), rngs=rngs)
    readout = nnx.Linear(hidden, features, use_bias=use_bias, param_dtype=jnp.dtype(dtype), rngs=rngs)
    nnx.update(cell, random_params(nnx.state(cell, nnx.Param), random))
    inputs = jnp.asarray(random.normal(size=(4, size)), dtype)

    memory = from_nnx(cell, readout)
    trace, carry = memory.unroll(inputs), cell.initialize_carry((size,), rngs)
    for t, x in enumerate(inputs):
        carry, output = cell(carry, x)
        got = trace.features[t], jax.tree.map(lambda leaf, t=t: leaf[t], trace.carries)
        assert_close(got, (readout(output), swapped(carry)), tolerance=TOLERANCE[dtype])
    assert eqx.tree_equal(from_nnx(nnx.RNN(cell, rngs=rngs), readout), memory)


def nnx_cell(name: str = "GRUCell", **options):
    return getattr(nnx, name)(2, 3, rngs=nnx.Rngs(0), **options)


def started_elsewhere():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NNX would rather have it elsewhere
        return nnx_cell(carry_init=nnx.initializers.ones_init())


MEMORIES = memories(2, 3, 4, jnp.float32, jax.random.key(0))
LOWER = rl.LSTM(5, 2, key=jax.random.key(0))


class Special(torch.nn.LSTM):
    pass


REFUSED = {
    "bidirectional": (lambda: from_torch(torch.nn.GRU(2, 3, bidirectional=True)), "bidirectional=True"),
    "projection": (lambda: from_torch(torch.nn.LSTM(2, 3, proj_size=1)), "proj_size=0; got 1"),
    "dropout": (
        lambda: from_torch(torch.nn.LSTM(2, 3, num_layers=2, dropout=0.5)),
        r"dropout=0.5 in training mode: call module.eval\(\)",
    ),
    "module": (
        lambda: from_torch(torch.nn.Linear(2, 3)),
        "module must be a torch.nn.LSTM, GRU, RNN, LSTMCell, GRUCell or RNNCell; got Linear",
    ),
    "subclass": (lambda: from_torch(Special(2, 3)), "got Special"),
    "readout": (
        lambda: from_torch(torch.nn.LSTM(2, 3), torch.nn.Identity()),
        "readout must be a torch.nn.Linear or None; got Identity",
    ),
    "half": (lambda: from_torch(torch.nn.LSTM(2, 3).bfloat16()), "float32 or float64; got bfloat16"),
    "to-torch-linear": (lambda: to_torch(MEMORIES["linear"]), "LSTM, GRU or Elman cells .*; got Linear"),
    "to-torch-autodiff": (
        lambda: to_torch(MEMORIES["autodiff"]),
        "LSTM, GRU or Elman cells .*; got Autodiff",
    ),
    "to-torch-mixed": (
        lambda: to_torch(rl.Memory(MEMORIES["gru"].cell, below=(LOWER,))),
        "one kind and size for torch; got LSTM of 2 units with bias, GRU of 3 units with bias",
    ),
    "nnx-gate": (lambda: from_nnx(nnx_cell(gate_fn=nnx.hard_sigmoid)), "gate_fn=sigmoid; got hard_sigmoid"),
    "nnx-activation": (lambda: from_nnx(nnx_cell(activation_fn=nnx.relu)), "activation_fn=tanh; got relu"),
    "nnx-residual": (lambda: from_nnx(nnx_cell("SimpleCell", residual=True)), "residual=False"),
    "nnx-start": (lambda: from_nnx(started_elsewhere()), "module must start from zeros; got carry_init=ones"),
    "nnx-dtype": (
        lambda: from_nnx(nnx_cell(dtype=jnp.bfloat16)),
        "compute in the type of its parameters, float32; got dtype=bfloat16",
    ),
    "nnx-both-ways": (
        lambda: from_nnx(nnx.Bidirectional(nnx.RNN(nnx_cell()), nnx.RNN(nnx_cell()), rngs=nnx.Rngs(0))),
        "forwards only; got an nnx.Bidirectional",
    ),
    "nnx-backwards": (lambda: from_nnx(nnx.RNN(nnx_cell(), reverse=True)), "forwards only; got an nnx.RNN"),
    "nnx-module": (lambda: from_nnx(nnx.Linear(2, 3, rngs=nnx.Rngs(0))), "module must be an nnx.LSTMCell, "),
    "nnx-readout": (lambda: from_nnx(nnx_cell(), jnp.tanh), "readout must be an nnx.Linear or None; got "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_dropout_is_no_matter_when_off():
    net = torch.nn.LSTM(2, 3, num_layers=2, dropout=0.5).eval()
    inputs = torch.randn(5, 2)
    assert_close(from_torch(net).unroll(jnp.asarray(array(inputs))).features, array(net(inputs)[0]))


def test_training_on_does_not_reach_the_memory():
    net = torch.nn.GRU(2, 64)
    memory = from_torch(net)
    before = np.array(memory.cell.weight_hh)
    with torch.no_grad():
        net.weight_hh_l0.zero_()
    assert_close(memory.cell.weight_hh, before)


def test_float64_is_never_rounded():
    with jax.enable_x64(False), pytest.raises(ValueError, match="float64, which JAX would round"):
        from_torch(torch.nn.GRU(2, 3).double())


@pytest.mark.parametrize("function", [from_torch, from_state_dict, to_torch, from_linen, from_nnx])
def test_docstring_example(function):
    blocks = re.findall(r"```python\n(.*?)```", inspect.cleandoc(function.__doc__), re.DOTALL)
    names = {"rl": rl, "jax": jax, "jnp": jnp, "np": np, "nn": nn, "nnx": nnx, "torch": torch}
    with jax.enable_x64(False):  # as it is for those who paste it
        memory = rl.Memory(rl.LSTM(3, 4, key=jax.random.key(0)), features=2, key=jax.random.key(1))
        (block,) = blocks
        exec(block, {**names, "memory": memory})
