"""Weights of other libraries: against what those computed once, without them; and Equinox, which is here."""

import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from support.registry import assert_close

import recurrent_laplace as rl
from recurrent_laplace.interop import equinox, flax, torch

FOLDER = Path(__file__).parents[1] / "fixtures" / "interop"
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}

TORCH = {
    "torch-lstm": None,
    "torch-lstm-cell": None,
    "torch-gru": None,
    "torch-gru-no-bias": None,
    "torch-rnn-tanh": "rnn_tanh",
    "torch-rnn-relu": "rnn_relu",
}
LINEN = {
    "linen-lstm": "LSTMCell",
    "linen-lstm-optimized": "OptimizedLSTMCell",
    "linen-gru": "GRUCell",
    "linen-simple": "SimpleCell",
}


def test_every_fixture_is_used():
    assert {path.stem for path in FOLDER.iterdir()} == {*TORCH, *LINEN}


def load(name: str) -> dict[str, np.ndarray]:
    return load_file(FOLDER / f"{name}.safetensors")


def nested(flat: dict[str, np.ndarray]) -> dict:
    tree: dict = {}
    for path, value in flat.items():
        *folders, name = path.split("/")
        part = tree
        for folder in folders:
            part = part.setdefault(folder, {})
        part[name] = value
    return tree


def assert_same(memory: rl.Memory, recorded: dict[str, np.ndarray]) -> None:
    """Outputs at every step, and the last state of every layer, are those that were recorded."""
    tolerance = TOLERANCE[str(recorded["inputs"].dtype)]
    inputs = jnp.asarray(recorded["inputs"])
    trace = memory.unroll(inputs)
    assert_close(trace.features, recorded["outputs"], tolerance=tolerance)
    assert trace.features.dtype == inputs.dtype
    carry = memory.init()
    for x in inputs:
        carry, _ = memory.step(carry, x)
    layers = (*carry[0], carry[1]) if memory.below else (carry,)
    hidden, state = recorded["h"].reshape(len(layers), -1), recorded.get("c")
    for index, layer in enumerate(layers):
        if state is not None:
            layer, c = layer
            assert_close(c, state.reshape(hidden.shape)[index], tolerance=tolerance)
        assert_close(layer, hidden[index], tolerance=tolerance)


@pytest.mark.parametrize("name", TORCH)
def test_torch(name):
    recorded = load(name)
    assert_same(torch.from_state_dict(recorded, TORCH[name], prefix="core", readout="head"), recorded)


@pytest.mark.parametrize("name", LINEN)
def test_linen(name):
    recorded = load(name)
    params = nested(recorded)
    memory = flax.from_linen(params, LINEN[name], readout=params["params"]["head"])
    assert_same(memory, recorded)


def core() -> dict[str, np.ndarray]:
    return {key: value for key, value in load("torch-lstm").items() if key.startswith("core.")}


def test_a_lower_layer_stands_alone():
    recorded = load("torch-lstm")
    lower = torch.from_state_dict(recorded, prefix="core", layer=0)
    assert lower.below == ()
    whole = torch.from_state_dict(recorded, prefix="core.", layer=-1)
    assert_close(whole.below[0], lower.cell)
    last = lower.unroll(jnp.asarray(recorded["inputs"])).carries[0][-1]
    assert_close(last, recorded["h"][0], tolerance=1e-12)


def test_weights_are_copied():
    weights = core()
    memory = torch.from_state_dict(weights, prefix="core")
    before = np.array(memory.cell.weight_hh)
    for array in weights.values():
        array.flags.writeable = True
        array[...] = 0
    assert_close(memory.cell.weight_hh, before)


def test_float64_is_never_rounded():
    with jax.enable_x64(False), pytest.raises(ValueError, match=r"is float64.*'jax_enable_x64', True"):
        torch.from_state_dict(core(), prefix="core")


def test_lazy_and_light():
    code = (
        "import sys, recurrent_laplace as rl\n"
        "assert 'interop' in dir(rl) and 'torch' in dir(rl.interop)\n"
        "rl.interop.torch.from_state_dict, rl.interop.flax.from_linen, rl.interop.equinox.from_equinox\n"
        "print({'torch', 'flax'} & set(sys.modules))\n"
        "sys.path.clear()  # nothing more can be imported\n"
        "for call in (rl.interop.torch.from_torch, rl.interop.torch.to_torch, rl.interop.flax.from_nnx):\n"
        "    try:\n"
        "        call(None)\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    missing = '{0} is not installed: pip install "recurrent-laplace[{0}]".'
    expected = ["set()", *(missing.format(name) for name in ("torch", "torch", "flax"))]
    assert done.stdout.splitlines() == expected, done.stderr
    with pytest.raises(AttributeError, match="no attribute 'keras'"):
        _ = rl.interop.keras


def linen_gru() -> dict:
    return nested(load("linen-gru"))["params"]


WIDE, NARROW = np.zeros((16, 3)), np.zeros((16, 3), np.float32)
STATE, BIAS = np.zeros((16, 4)), np.zeros(16)
SMALL = {"weight_ih_l0": WIDE, "weight_hh_l0": STATE}

REFUSED = {
    "prefix": (
        lambda: torch.from_state_dict(load("torch-gru")),
        r"prefix='' must name .*; there is 'core'\.",
    ),
    "no-weights": (lambda: torch.from_state_dict({"head.weight": WIDE}), "none of the names.*: head.weight"),
    "nothing": (lambda: torch.from_state_dict({}), "there are none"),
    "reverse": (
        lambda: torch.from_state_dict({**SMALL, "weight_ih_l0_reverse": WIDE}),
        "got weight_ih_l0_reverse, of a bidirectional network",
    ),
    "projection": (
        lambda: torch.from_state_dict({**SMALL, "weight_hr_l0": STATE}),
        "without proj_size; got weight_hr_l0",
    ),
    "unknown": (lambda: torch.from_state_dict({**SMALL, "peephole_i": BIAS}), "got peephole_i beside them"),
    "one-bias": (
        lambda: torch.from_state_dict({**SMALL, "bias_ih_l0": BIAS}),
        "layer 0 must have .* got weight_ih, weight_hh, bias_ih",
    ),
    "gap": (
        lambda: torch.from_state_dict({**SMALL, "weight_ih_l2": WIDE, "weight_hh_l2": STATE}),
        "layer 1 must have .* got nothing",
    ),
    "activation": (
        lambda: torch.from_state_dict(load("torch-rnn-tanh"), prefix="core"),
        "kind must be 'rnn_tanh' or 'rnn_relu' for a plain RNN",
    ),
    "rows": (
        lambda: torch.from_state_dict({"weight_ih": WIDE, "weight_hh": np.zeros((16, 8))}),
        r"weight_hh must have 4 H rows \(LSTM\), 3 H \(GRU\) or H \(RNN\); got \(16, 8\)",
    ),
    "kind": (lambda: torch.from_state_dict(SMALL, "mgu"), "kind must be one of 'lstm', .*; got 'mgu'"),
    "wrong-kind": (lambda: torch.from_state_dict(SMALL, "gru"), r"weight_ih must have shape \(12, 3\); got"),
    "layer": (lambda: torch.from_state_dict(SMALL, layer=1), r"layer must be in \[-1, 0\], .*; got 1"),
    "readout-below": (
        lambda: torch.from_state_dict(load("torch-lstm"), prefix="core", readout="head", layer=0),
        "readout must be None for layer 0",
    ),
    "readout-name": (
        lambda: torch.from_state_dict(SMALL, readout="head"),
        "readout='head' must name a linear layer; weights have no 'head.weight'",
    ),
    "types": (
        lambda: torch.from_state_dict({**SMALL, "weight_ih_l0": NARROW}),
        "must be of one type; got float32 and float64",
    ),
    "readout-type": (
        lambda: torch.from_state_dict({**SMALL, "head.weight": np.zeros((2, 4), np.float32)}, readout="head"),
        "must be of one type; got float32 and float64",
    ),
    "half": (
        lambda: torch.from_state_dict({**SMALL, "weight_hh_l0": STATE.astype(np.float16)}),
        "weight_hh must be an array of float32 or float64; got float16",
    ),
    "list": (lambda: torch.from_state_dict({**SMALL, "weight_hh_l0": [1.0]}), "float64; got list"),
    "linen-cell": (lambda: flax.from_linen({}, "MGUCell"), "cell must be one of 'LSTMCell', .*'MGUCell'"),
    "linen-other": (
        lambda: flax.from_linen(linen_gru(), "LSTMCell"),
        r"whose layers are ii, if, .*; got core \(cell\), head \(bias, kernel\)",
    ),
    "linen-empty": (lambda: flax.from_linen({}, "GRUCell"), "got nothing"),
    "linen-several": (
        lambda: flax.from_linen({"a": linen_gru(), "b": linen_gru()}, "GRUCell"),
        "must hold one GRUCell; got a/.*, b/",
    ),
    "linen-bias": (
        lambda: flax.from_linen({"i": {"kernel": WIDE}, "h": {"kernel": STATE}}, "SimpleCell"),
        "i must hold kernel and bias; got kernel",
    ),
    "linen-readout": (
        lambda: flax.from_linen(linen_gru(), "GRUCell", readout={"scale": BIAS}),
        "readout must hold kernel and bias or kernel; got scale",
    ),
    "linen-tuple": (lambda: flax.from_linen((1, 2), "GRUCell"), "params must be a dictionary .*; got tuple"),
    "equinox-cell": (
        lambda: equinox.from_equinox(eqx.nn.Linear(2, 3, key=jax.random.key(0))),
        "cell must be an eqx.nn.LSTMCell or eqx.nn.GRUCell; got Linear",
    ),
    "equinox-readout": (
        lambda: equinox.from_equinox(eqx.nn.GRUCell(2, 3, key=jax.random.key(0)), readout=jnp.tanh),
        "readout must be an eqx.nn.Linear or None; got ",
    ),
    "to-equinox-elman": (
        lambda: equinox.to_equinox(rl.Memory(rl.Elman(2, 3, key=jax.random.key(0)))),
        "memory must be of an LSTM or GRU cell for Equinox; got Elman",
    ),
    "to-equinox-stack": (
        lambda: equinox.to_equinox(torch.from_state_dict(core(), prefix="core")),
        "memory must have one layer for Equinox; got 2",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("make", [eqx.nn.LSTMCell, eqx.nn.GRUCell])
@settings(max_examples=4)
@given(st.data())
def test_equinox(make, data):
    sizes = st.integers(1, 6)
    input_size, hidden_size, features = data.draw(st.tuples(sizes, sizes, sizes))
    use_bias, dtype = data.draw(st.booleans()), data.draw(st.sampled_from([jnp.float32, jnp.float64]))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))

    def filled(make, *shape):
        shapes = eqx.filter_eval_shape(lambda key: make(*shape, use_bias, dtype, key=key), jax.random.key(0))
        return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), dtype), shapes)

    cell, readout = filled(make, input_size, hidden_size), filled(eqx.nn.Linear, hidden_size, features)
    inputs = jnp.asarray(random.normal(size=(4, input_size)), dtype)

    memory = equinox.from_equinox(cell, readout)
    trace = memory.unroll(inputs)
    carry, outputs = memory.init(), []
    for x in inputs:
        carry = cell(x, carry)
        outputs.append(readout(memory.cell.hidden(carry)))
    tolerance = TOLERANCE[jnp.dtype(dtype).name]
    assert_close(trace.features, jnp.stack(outputs), tolerance=tolerance)
    assert_close(jax.tree.map(lambda leaf: leaf[-1], trace.carries), carry, tolerance=tolerance)

    back = equinox.to_equinox(memory)
    assert eqx.tree_equal(back, (cell, readout))
    assert equinox.to_equinox(rl.Memory(memory.cell))[1] is None


def test_equinox_under_a_gradient():
    cell = eqx.nn.GRUCell(2, 3, key=jax.random.key(0))

    def loss(cell):
        return equinox.from_equinox(cell).unroll(jnp.ones((3, 2))).features.sum()

    assert jnp.any(eqx.filter_grad(loss)(cell).weight_hh != 0)
