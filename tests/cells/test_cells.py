"""Cells and memories against explicit formulas, `jax.jacfwd` and Equinox."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import registry
from support.registry import assert_close, assert_gradient, each_dtype, random_carry, with_hidden

import recurrent_laplace as rl

D, H, F, T = 3, 5, 4, 6


@functools.cache
def cells(dtype):
    return registry.cells(D, H, dtype, jax.random.key(0))


@functools.cache
def memories(dtype):
    return registry.memories(D, H, F, dtype, jax.random.key(1))


def inputs_of(dtype, *lead, seed=2):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(*lead, D)), dtype)


each_cell = pytest.mark.parametrize("name", registry.CELLS)
each_memory = pytest.mark.parametrize("name", registry.MEMORIES)
few_memories = pytest.mark.parametrize("name", registry.FEW_MEMORIES)
gated_cells = pytest.mark.parametrize("name", registry.GATED_CELLS)
# All in float64; in float32 those that differ most.
FEW_MEMORIES_AND_DTYPES = [
    *((name, jnp.float64) for name in registry.FEW_MEMORIES),
    *((name, jnp.float32) for name in ("lstm-readout", "gru-readout", "autodiff-readout")),
]


def test_registry_has_every_exported_cell():
    assert registry.exported(rl.AbstractCell) == {type(cell) for cell in cells(jnp.float64).values()}


@gated_cells
def test_other_input_weights_keep_the_recurrence(name):
    cell = cells(jnp.float64)[name]
    carry = random_carry(cell, jax.random.key(3))
    mix = jnp.asarray(np.random.default_rng(4).normal(size=(D, 7)))
    x = jnp.asarray(np.random.default_rng(5).normal(size=7))
    folded = cell.with_input_weights(cell.weight_ih @ mix)
    assert folded.input_size == 7
    assert_close(folded.step(carry, x), cell.step(carry, mix @ x))
    assert_close(folded.jacobian(carry, x), cell.jacobian(carry, mix @ x))
    assert cell.input_size == D, "the original cell is unchanged"
    with pytest.raises(ValueError, match="weight_ih"):
        cell.with_input_weights(mix)


# The step


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def by_hand(name, cell, carry, x):
    """One step by PyTorch's documented equations, gate by gate, in NumPy's float64."""
    kind = name.split("-")[0]
    x = np.asarray(x, np.float64)
    gates = {"lstm": "ifgo", "gru": "rzn", "elman": "h", "linear": "h"}[kind]

    def rows(array, gate):
        start = gates.index(gate) * H
        return np.asarray(array, np.float64)[start : start + H]

    def w(gate):
        bias = 0.0 if cell.bias is None else rows(cell.bias, gate)
        return rows(cell.weight_ih, gate) @ x + bias

    def u(gate, h):
        return rows(cell.weight_hh, gate) @ h

    if kind == "lstm":
        h, c = (np.asarray(leaf, np.float64) for leaf in carry)
        i, f, o = (sigmoid(w(gate) + u(gate, h)) for gate in "ifo")
        c = f * c + i * np.tanh(w("g") + u("g", h))
        return o * np.tanh(c), c
    h = np.asarray(carry, np.float64)
    if kind == "gru":
        b_hn = 0.0 if cell.bias_n is None else np.asarray(cell.bias_n, np.float64)
        r, z = (sigmoid(w(gate) + u(gate, h)) for gate in "rz")
        n = np.tanh(w("n") + r * (u("n", h) + b_hn))
        return (1 - z) * n + z * h
    total = w("h") + u("h", h)
    if kind == "linear":
        return total
    return np.tanh(total) if "tanh" in name else np.maximum(total, 0)


@each_dtype
@gated_cells
def test_step_is_the_documented_formula(name, dtype):
    cell = cells(dtype)[name]
    carry = random_carry(cell, jax.random.key(3))
    x = inputs_of(dtype)
    new = cell.step(carry, x)
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(new))
    assert_close(new, by_hand(name, cell, carry, x))


@gated_cells
def test_gated_cell_starts_at_zero_with_the_documented_layout(name):
    cell = cells(jnp.float64)[name]
    gates = {"lstm": 4, "gru": 3}.get(name.split("-")[0], 1)
    assert cell.weight_ih.shape == (gates * H, D)
    assert cell.weight_hh.shape == (gates * H, H)
    biases = [cell.bias, cell.bias_n] if isinstance(cell, rl.GRU) else [cell.bias]
    shapes = [None] * len(biases) if "no-bias" in name else [(gates * H,), (H,)][: len(biases)]
    assert [bias if bias is None else bias.shape for bias in biases] == shapes
    assert (cell.input_size, cell.hidden_size) == (D, H)
    assert_close(cell.init(), (np.zeros(H), np.zeros(H)) if "lstm" in name else np.zeros(H))


def test_initial_weights_fill_plus_minus_one_over_root_hidden():
    cell = rl.LSTM(30, 100, key=jax.random.key(4))
    for weight in (cell.weight_ih, cell.weight_hh, cell.bias):
        assert np.abs(weight).max() <= 0.1
        # Among at least 400 samples this fails with probability 0.99^400 = 2%, and the key is fixed.
        assert np.abs(weight).max() > 0.099
        assert abs(jnp.mean(weight)) < 5 * 0.1 / np.sqrt(3 * weight.size)


@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize("use_bias", [True, False])
def test_weights_of_equinox_need_no_conversion(name, use_bias):
    theirs_kind, ours_kind = {"lstm": (eqx.nn.LSTMCell, rl.LSTM), "gru": (eqx.nn.GRUCell, rl.GRU)}[name]
    theirs = theirs_kind(D, H, use_bias=use_bias, key=jax.random.key(5))
    ours = ours_kind(D, H, use_bias=use_bias, key=jax.random.key(6))
    fields = ["weight_ih", "weight_hh"] + ["bias"] * use_bias + ["bias_n"] * (use_bias and name == "gru")
    weights = lambda cell: [getattr(cell, field) for field in fields]
    ours = eqx.tree_at(weights, ours, weights(theirs))
    carry = random_carry(ours, jax.random.key(7))
    x = inputs_of(jnp.float64)
    assert_close(ours.step(carry, x), theirs(x, carry))


# The Jacobian


@jax.jit
def jacobian_and_jacfwd(module, carry, x):
    """Closed form of a cell's or memory's Jacobian, and the derivative by automatic differentiation."""
    cell = module.cell if isinstance(module, rl.Memory) else module

    def read(h):
        new = module.step(with_hidden(cell, carry, h), x)
        return new[1] if isinstance(module, rl.Memory) else cell.hidden(new)

    return module.jacobian(carry, x), jax.jacfwd(read)(cell.hidden(carry))


@each_dtype
@each_cell
def test_jacobian_is_jacfwd_with_respect_to_the_hidden_state(name, dtype):
    cell = cells(dtype)[name]
    for seed in range(3):
        carry = random_carry(cell, jax.random.key(seed))
        jacobian, expected = jacobian_and_jacfwd(cell, carry, inputs_of(dtype, seed=seed))
        assert jacobian.dtype == dtype
        assert np.abs(expected).max() > 1e-2
        assert_close(jacobian, expected)


def test_lstm_jacobian_holds_the_cell_state_fixed():
    cell = cells(jnp.float64)["lstm"]
    carry = random_carry(cell, jax.random.key(0))
    x = inputs_of(jnp.float64)
    by_c = jax.jacfwd(lambda c: cell.step((carry[0], c), x)[0])(carry[1])
    assert np.abs(by_c).max() > 1e-2, "otherwise the test could not fail"
    jacobian = cell.jacobian(carry, x)
    step = 1e-6
    for k in range(H):
        up = cell.step((carry[0].at[k].add(step), carry[1]), x)[0]
        down = cell.step((carry[0].at[k].add(-step), carry[1]), x)[0]
        # Central differences have a truncation error of about step^2 and a rounding error of 1e-16 / step.
        assert_close(jacobian[:, k], (up - down) / (2 * step), tolerance=1e-8)


@gated_cells
def test_jacobian_is_the_sum_of_scaled_blocks(name):
    cell = cells(jnp.float64)[name]
    carry = random_carry(cell, jax.random.key(8))
    x = inputs_of(jnp.float64)
    blocks = np.asarray(cell.jacobian_blocks())
    scales = np.asarray(cell.jacobian_scales(carry, cell.project(x)))
    assert blocks.shape == (*scales.shape, H)
    expected = sum(np.diag(scale) @ block for scale, block in zip(scales, blocks, strict=True))
    assert_close(cell.jacobian(carry, x), expected)


@pytest.mark.parametrize(
    ("name", "dtype"), [pair for pair in FEW_MEMORIES_AND_DTYPES if "readout" in pair[0]]
)
def test_memory_jacobian_is_jacfwd_of_its_features(name, dtype):
    memory = memories(dtype)[name]
    carry = random_carry(memory.cell, jax.random.key(9))
    jacobian, expected = jacobian_and_jacfwd(memory, carry, inputs_of(dtype))
    assert jacobian.shape == (F, H)
    assert jacobian.dtype == dtype
    assert_close(jacobian, expected)


@each_cell
def test_memory_jacobian_without_readout_is_the_jacobian_of_the_cell(name):
    memory = memories(jnp.float64)[name]
    carry = random_carry(memory.cell, jax.random.key(9))
    x = inputs_of(jnp.float64)
    np.testing.assert_array_equal(memory.jacobian(carry, x), memory.cell.jacobian(carry, x))


# Sequences


@each_dtype
@each_memory
def test_features_are_the_readout_of_the_hidden_state(name, dtype):
    memory = memories(dtype)[name]
    carry, phi = memory.step(random_carry(memory.cell, jax.random.key(10)), inputs_of(dtype))
    h = np.asarray(memory.cell.hidden(carry), np.float64)
    if "readout" in name:
        h = np.asarray(memory.readout.weight, np.float64) @ h + np.asarray(memory.readout.bias, np.float64)
    assert phi.dtype == dtype == memory.dtype
    assert_close(phi, h)


unroll = jax.jit(rl.Memory.unroll)
RESETS = ((True, *(False,) * (T - 1)), (False, False, True, True, False, True))


@pytest.mark.parametrize(("name", "dtype"), FEW_MEMORIES_AND_DTYPES)
def test_unroll_is_repeated_step(name, dtype):
    memory = memories(dtype)[name]
    inputs = inputs_of(dtype, T)
    for resets in (None, *RESETS):
        trace = unroll(memory, inputs, None if resets is None else jnp.array(resets))
        assert trace.features.shape == (T, memory.feature_size)
        carry = memory.init()
        for t in range(T):
            carry = memory.init() if resets is not None and resets[t] else carry
            carry, phi = memory.step(carry, inputs[t])
            carry_at_t = jax.tree.map(lambda leaf, t=t: leaf[t], trace.carries)
            assert_close((carry_at_t, trace.features[t]), (carry, phi))


@each_cell
def test_projecting_a_sequence_is_projecting_each_step(name):
    cell = cells(jnp.float64)[name]
    inputs = inputs_of(jnp.float64, 2, 3)
    projected = cell.project(inputs)
    for b in range(2):
        for t in range(3):
            assert_close(projected[b, t], cell.project(inputs[b, t]))
    carry = random_carry(cell, jax.random.key(11))
    assert_close(cell.advance(carry, projected[1, 2]), cell.step(carry, inputs[1, 2]))


# JAX transformations


@each_memory
def test_every_leaf_of_a_memory_is_an_array_of_floats(name):
    for dtype in registry.DTYPES:
        leaves = jax.tree.leaves(memories(dtype)[name])
        assert leaves
        assert all(isinstance(leaf, jax.Array) and leaf.dtype == dtype for leaf in leaves)


def step_and_jacobian(memory, carry, x):
    carry, phi = memory.step(carry, x)
    return carry, phi, memory.jacobian(carry, x)


@few_memories
def test_jit_and_vmap_change_nothing(name):
    memory = memories(jnp.float64)[name]
    batch = 3
    carries = [random_carry(memory.cell, jax.random.key(b)) for b in range(batch)]
    inputs = inputs_of(jnp.float64, batch)
    plain = [step_and_jacobian(memory, carries[b], inputs[b]) for b in range(batch)]
    assert_close(jax.jit(step_and_jacobian)(memory, carries[0], inputs[0]), plain[0])

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *carries)
    expected = jax.tree.map(lambda *leaves: jnp.stack(leaves), *plain)
    assert_close(jax.jit(jax.vmap(step_and_jacobian, (None, 0, 0)))(memory, stacked, inputs), expected)


@few_memories
def test_vmap_over_memories_is_an_ensemble(name):
    first = memories(jnp.float64)[name]
    second = jax.tree.map(lambda leaf: 0.5 * leaf + 0.01, first)
    ensemble = jax.tree.map(lambda *leaves: jnp.stack(leaves), first, second)
    inputs = inputs_of(jnp.float64, T)
    features = jax.jit(jax.vmap(lambda memory: memory.unroll(inputs).features))(ensemble)
    expected = [unroll(memory, inputs).features for memory in (first, second)]
    assert np.abs(expected[0] - expected[1]).max() > 1e-3
    assert_close(features, jnp.stack(expected))


@few_memories
def test_gradient_with_respect_to_a_memory_is_a_finite_difference(name):
    inputs = inputs_of(jnp.float64, T)
    assert_gradient(
        lambda memory: jnp.sum(jnp.sin(memory.unroll(inputs).features)), memories(jnp.float64)[name]
    )


@pytest.mark.parametrize("name", ["lstm-readout", "autodiff-readout"])
def test_unroll_compiles_once(name):
    memory = memories(jnp.float64)[name]
    traces = []

    @jax.jit
    def features(memory, inputs):
        traces.append(None)
        return memory.unroll(inputs).features

    first = features(memory, inputs_of(jnp.float64, T))
    moved = jax.tree.map(lambda leaf: leaf + 0.1, memory)
    second = features(moved, inputs_of(jnp.float64, T, seed=13))
    assert len(traces) == 1
    assert np.abs(first - second).max() > 1e-3


def test_unroll_outside_of_jit_compiles_once(caplog):
    memory, inputs = memories(jnp.float64)["gru-readout"], inputs_of(jnp.float64, T)
    moved = jax.tree.map(lambda leaf: leaf + 0.1, memory)
    memory.unroll(inputs)
    with jax.log_compiles():
        moved.unroll(inputs)
    assert caplog.messages == []
    with jax.log_compiles():
        memory.unroll(inputs[:-1])
    assert any("Compiling" in message for message in caplog.messages), "otherwise the test could not fail"


def test_memory_can_be_built_inside_jit():
    @jax.jit
    def features(key, inputs):
        return rl.Memory(rl.LSTM(D, H, key=key), F, key=key).unroll(inputs).features

    key = jax.random.key(14)
    inputs = inputs_of(jnp.float64, T)
    assert_close(features(key, inputs), rl.Memory(rl.LSTM(D, H, key=key), F, key=key).unroll(inputs).features)


# Autodiff


def drift(carry, x):
    return jax.tree.map(lambda leaf: jnp.tanh(leaf + jnp.sum(x)), carry)


def mix(h, x):
    return jnp.tanh(h[::-1] * jnp.arange(1.0, h.size + 1) + 0.5 * jnp.roll(h, 1) + jnp.sum(x))


@pytest.mark.parametrize("name", [name for name in registry.GATED_CELLS if "no-bias" not in name])
def test_autodiff_of_a_cell_is_that_cell(name):
    cell = cells(jnp.float64)[name]
    step, hidden = (lambda carry, x: cell.step(carry, x)), (lambda carry: cell.hidden(carry))
    wrapped = rl.Autodiff(step, cell.init(), hidden=hidden, input_size=D)
    carry = random_carry(cell, jax.random.key(15))
    x = inputs_of(jnp.float64)
    assert wrapped.hidden_size == H
    assert_close(wrapped.step(carry, x), cell.step(carry, x))
    assert_close(wrapped.jacobian(carry, x), cell.jacobian(carry, x))


@pytest.mark.parametrize(
    ("hidden", "entries"),
    [
        (lambda carry: carry, (0, 1, 2, 3, 4, 5)),
        (lambda carry: carry[1:4], (1, 2, 3)),
        (lambda carry: carry[::-2], (5, 3, 1)),
        (lambda carry: carry[jnp.array([4, 0])], (4, 0)),
        (lambda carry: jnp.concatenate([carry[4:], carry[:1]]), (4, 5, 0)),
    ],
)
def test_autodiff_jacobian_is_with_respect_to_the_selected_entries(hidden, entries):
    cell = rl.Autodiff(mix, jnp.linspace(0.1, 0.6, 6), hidden=hidden)
    carry = random_carry(cell, jax.random.key(16))
    x = inputs_of(jnp.float64)
    whole = jax.jacfwd(lambda h: mix(h, x))(carry)
    index = np.array(entries)
    assert cell.hidden_size == len(entries)
    assert_close(cell.hidden(carry), carry[index])
    assert_close(cell.jacobian(carry, x), whole[np.ix_(index, index)])


def test_autodiff_hidden_may_select_from_several_leaves_and_flatten_them():
    start = {"a": jnp.zeros((2, 2)), "b": jnp.zeros(3), "c": jnp.zeros(())}
    cell = rl.Autodiff(
        drift, start, hidden=lambda carry: jnp.concatenate([carry["b"][1:], carry["a"].T.ravel()])
    )
    carry = random_carry(cell, jax.random.key(17))
    x = inputs_of(jnp.float64)
    slope = lambda leaf: 1 - np.tanh(leaf + np.sum(x)) ** 2
    expected = np.diag(np.concatenate([slope(carry["b"])[1:], slope(carry["a"]).T.ravel()]))
    assert cell.hidden_size == 6
    assert_close(cell.jacobian(carry, x), expected)


def test_autodiff_can_be_built_inside_jit_and_differentiated_by_its_initial_carry():
    @jax.jit
    def loss(start, x):
        cell = rl.Autodiff(mix, start, hidden=lambda carry: carry[:2])
        carry = cell.step(cell.init(), x)
        return jnp.sum(carry) + jnp.sum(cell.jacobian(carry, x))

    def plain(start, x):
        new = mix(start, x)
        return jnp.sum(new) + jnp.sum(jax.jacfwd(lambda h: mix(h, x))(new)[:2, :2])

    start, x = jnp.linspace(-0.5, 0.5, 4), 0.1 * inputs_of(jnp.float64)
    assert_close(loss(start, x), plain(start, x))
    assert_close(jax.grad(loss)(start, x), jax.grad(plain)(start, x))


class Unhashable:
    __hash__ = None

    def __call__(self, carry, x=None):
        return carry


@pytest.mark.parametrize("argument", ["step", "hidden"])
def test_autodiff_refuses_unhashable_functions(argument):
    arguments = {"step": drift, "initial_carry": jnp.zeros(3), argument: Unhashable()}
    message = (
        f"^{argument} must be hashable, since it is kept static; got .*Unhashable.*"
        r"Wrap a module in a function: lambda carry, x: module\(carry, x\)\.$"
    )
    with pytest.raises(ValueError, match=message):
        rl.Autodiff(**arguments)


@pytest.mark.parametrize(
    ("hidden", "shape"),
    [
        (lambda carry: 2 * carry, r"\(4,\)"),
        (lambda carry: -carry, r"\(4,\)"),
        (lambda carry: carry + 1, r"\(4,\)"),
        (lambda carry: carry[:2] + carry[2:], r"\(2,\)"),
        (lambda carry: jnp.tanh(carry), r"\(4,\)"),
        (lambda carry: jnp.sum(carry), r"\(\)"),
        (lambda carry: carry[0], r"\(\)"),
        (lambda carry: carry.reshape(2, 2), r"\(2, 2\)"),
        (lambda carry: jnp.concatenate([carry, carry]), r"\(8,\)"),
        (lambda carry: jnp.zeros(2), r"\(2,\)"),
        (jax.nn.relu, r"\(4,\)"),
        (jnp.abs, r"\(4,\)"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_autodiff_refuses_a_hidden_that_is_not_a_selection(hidden, shape):
    message = (
        r"^hidden must select entries of the carry, each at most once, as a vector of shape \(H,\); "
        rf"got an output of shape {shape} from a carry whose leaves have shapes \[\(4,\)\]\.$"
    )
    with pytest.raises(ValueError, match=message):
        rl.Autodiff(drift, jnp.zeros(4), hidden=hidden)


def test_autodiff_refuses_a_carry_of_integers():
    message = r"^initial_carry must hold float arrays; got one of dtype int32\.$"
    with pytest.raises(ValueError, match=message):
        rl.Autodiff(drift, (jnp.zeros(3), jnp.zeros(3, jnp.int32)), hidden=lambda carry: carry[0])


def test_autodiff_without_input_size_accepts_vectors_of_any_length():
    cell = rl.Autodiff(drift, jnp.zeros(3))
    assert cell.input_size is None
    assert_close(cell.step(cell.init(), jnp.ones(7)), np.full(3, np.tanh(7.0)))
    with pytest.raises(ValueError, match=r"^x must have shape \(D,\); got \(2, 7\)\..*jax\.vmap"):
        cell.step(cell.init(), jnp.ones((2, 7)))


# Errors; tests/test_errors.py has more


@each_cell
@pytest.mark.parametrize("method", ["step", "jacobian"])
def test_error_of_a_wrong_input_names_it(name, method):
    cell = cells(jnp.float64)[name]
    call = getattr(cell, method)
    with pytest.raises(ValueError, match=rf"^x must have shape \({D},\); got \({D + 1},\)\.$"):
        call(cell.init(), jnp.ones(D + 1))
    with pytest.raises(ValueError, match=rf"^x must have shape \({D},\); got \(7, {D}\)\..*jax\.vmap"):
        call(cell.init(), jnp.ones((7, D)))
    with pytest.raises(ValueError, match=rf"^x must have shape \({D},\); got \(\)\.$"):
        call(cell.init(), jnp.ones(()))


@pytest.mark.parametrize("method", ["step", "jacobian"])
def test_memory_refuses_a_wrong_input(method):
    memory = memories(jnp.float64)["lstm-readout"]
    with pytest.raises(ValueError, match=rf"^x must have shape \({D},\); got \(2, {D}\)\..*jax\.vmap"):
        getattr(memory, method)(memory.init(), jnp.ones((2, D)))


@pytest.mark.parametrize("kind", [rl.LSTM, rl.GRU, rl.Elman, rl.Linear])
@pytest.mark.parametrize("value", [0, -1, True])
def test_error_of_a_wrong_size_names_it(kind, value):
    for argument, sizes in (("input_size", (value, H)), ("hidden_size", (D, value))):
        message = rf"^{argument} must be a whole number of at least 1; got {value}\.$"
        with pytest.raises(ValueError, match=message):
            kind(*sizes, key=jax.random.key(0))


def test_autodiff_refuses_a_wrong_input_size():
    with pytest.raises(ValueError, match=r"^input_size must be a whole number of at least 1; got 0\.$"):
        rl.Autodiff(drift, jnp.zeros(3), input_size=0)


def test_features_and_readout_exclude_each_other():
    readout = rl.Affine(jnp.ones((F, H)), None)
    with pytest.raises(ValueError, match=r"^features and readout exclude each other: give one of them\.$"):
        rl.Memory(cells(jnp.float64)["gru"], F, readout=readout, key=jax.random.key(0))


def test_existing_readout_is_used_with_or_without_bias():
    cell = cells(jnp.float64)["elman-tanh"]
    weight = jnp.asarray(np.random.default_rng(18).normal(size=(F, H)))
    x = inputs_of(jnp.float64)
    h = np.asarray(cell.step(cell.init(), x))
    for bias in (None, jnp.arange(1.0, F + 1)):
        _, phi = rl.Memory(cell, readout=rl.Affine(weight, bias)).step(cell.init(), x)
        assert_close(phi, np.asarray(weight) @ h + (0 if bias is None else np.asarray(bias)))


@gated_cells
def test_cell_from_its_own_weights_is_that_cell(name):
    cell = cells(jnp.float64)[name]
    more = {"bias_n": cell.bias_n} if isinstance(cell, rl.GRU) else {}
    options = {"activation": cell.activation} if isinstance(cell, rl.Elman) else None
    same = type(cell).from_weights(cell.weight_ih, cell.weight_hh, cell.bias, options=options, **more)
    assert eqx.tree_equal(same, cell)


def test_weights_that_do_not_fit_a_cell_are_refused():
    with pytest.raises(ValueError, match=r"weight_hh must have shape \(16, 4\); got \(12, 4\)"):
        rl.LSTM.from_weights(jnp.zeros((16, 3)), jnp.zeros((12, 4)), jnp.zeros(16))
    with pytest.raises(ValueError, match="weights must be weight_ih, weight_hh, bias, bias_n for this GRU"):
        rl.GRU.from_weights(jnp.zeros((12, 3)), jnp.zeros((12, 4)), jnp.zeros(12))
