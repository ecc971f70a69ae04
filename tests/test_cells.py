"""Cells and memories: against formulas written out by hand, `jax.jacfwd` and Equinox."""

import functools
import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
from registry import assert_close, random_carry, with_hidden

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
# All in float64, the kinds that differ most in float32 as well.
FEW_MEMORIES_AND_DTYPES = [
    *((name, jnp.float64) for name in registry.FEW_MEMORIES),
    *((name, jnp.float32) for name in ("lstm-readout", "gru-readout", "autodiff-readout")),
]
each_dtype = pytest.mark.parametrize("dtype", registry.DTYPES, ids=lambda dtype: dtype.__name__)


def test_registry_holds_every_cell_exported():
    exported = {
        value
        for value in (getattr(rl, name) for name in rl.__all__)
        if inspect.isclass(value) and issubclass(value, rl.AbstractCell) and not inspect.isabstract(value)
    }
    assert exported == {type(cell) for cell in cells(jnp.float64).values()}


@pytest.mark.parametrize("name", registry.GATED_CELLS)
def test_weights_of_other_inputs_leave_the_recurrence_as_it_is(name):
    cell = cells(jnp.float64)[name]
    carry = random_carry(cell, jax.random.key(3))
    mix = jnp.asarray(np.random.default_rng(4).normal(size=(D, 7)))
    x = jnp.asarray(np.random.default_rng(5).normal(size=7))
    folded = cell.with_input_weights(cell.weight_ih @ mix)
    assert folded.input_size == 7
    assert_close(folded.step(carry, x), cell.step(carry, mix @ x))
    assert_close(folded.jacobian(carry, x), cell.jacobian(carry, mix @ x))
    assert cell.input_size == D, "the cell itself stays as it is"
    with pytest.raises(ValueError, match="weight_ih"):
        cell.with_input_weights(mix)


# The step


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def by_hand(name, cell, carry, x):
    """PyTorch's documented equations, gate by gate, in NumPy's float64."""
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
        h, c = (np.asarray(part, np.float64) for part in carry)
        i = sigmoid(w("i") + u("i", h))
        f = sigmoid(w("f") + u("f", h))
        g = np.tanh(w("g") + u("g", h))
        o = sigmoid(w("o") + u("o", h))
        c = f * c + i * g
        return o * np.tanh(c), c
    h = np.asarray(carry, np.float64)
    if kind == "gru":
        b_hn = 0.0 if cell.bias_n is None else np.asarray(cell.bias_n, np.float64)
        r = sigmoid(w("r") + u("r", h))
        z = sigmoid(w("z") + u("z", h))
        n = np.tanh(w("n") + r * (u("n", h) + b_hn))
        return (1 - z) * n + z * h
    total = w("h") + u("h", h)
    if kind == "linear":
        return total
    return np.tanh(total) if "tanh" in name else np.maximum(total, 0)


@each_dtype
@pytest.mark.parametrize("name", registry.GATED_CELLS)
def test_step_is_the_documented_formula(name, dtype):
    cell = cells(dtype)[name]
    carry = random_carry(cell, jax.random.key(3))
    x = inputs_of(dtype)
    new = cell.step(carry, x)
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(new))
    assert_close(new, by_hand(name, cell, carry, x))


@pytest.mark.parametrize("name", registry.GATED_CELLS)
def test_bias_is_there_only_if_asked(name):
    cell = cells(jnp.float64)[name]
    assert (cell.bias is None) == ("no-bias" in name)
    if isinstance(cell, rl.GRU):
        assert (cell.bias_n is None) == ("no-bias" in name)


@pytest.mark.parametrize("name", registry.GATED_CELLS)
def test_a_gated_cell_starts_at_zero_with_the_documented_layout(name):
    cell = cells(jnp.float64)[name]
    gates = {"lstm": 4, "gru": 3}.get(name.split("-")[0], 1)
    assert cell.weight_ih.shape == (gates * H, D)
    assert cell.weight_hh.shape == (gates * H, H)
    assert cell.bias is None or cell.bias.shape == (gates * H,)
    assert (cell.input_size, cell.hidden_size) == (D, H)
    assert_close(cell.init(), (np.zeros(H), np.zeros(H)) if "lstm" in name else np.zeros(H))


def test_initial_weights_fill_plus_minus_one_over_root_hidden():
    cell = rl.LSTM(30, 100, key=jax.random.key(4))
    for weight in (cell.weight_ih, cell.weight_hh, cell.bias):
        assert np.abs(weight).max() <= 0.1
        assert np.abs(weight).max() > 0.099  # of at least 400 draws: fails with probability 0.99^400 = 2%,
        # and the key is fixed
        mean = float(jnp.mean(weight))
        assert abs(mean) < 5 * 0.1 / np.sqrt(3 * weight.size)


@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize("use_bias", [True, False])
def test_weights_move_from_equinox_as_they_are(name, use_bias):
    theirs_kind, ours_kind = {"lstm": (eqx.nn.LSTMCell, rl.LSTM), "gru": (eqx.nn.GRUCell, rl.GRU)}[name]
    theirs = theirs_kind(D, H, use_bias=use_bias, key=jax.random.key(5))
    ours = ours_kind(D, H, use_bias=use_bias, key=jax.random.key(6))
    parts = ["weight_ih", "weight_hh"] + ["bias"] * use_bias + ["bias_n"] * (use_bias and name == "gru")
    ours = eqx.tree_at(
        lambda cell: [getattr(cell, part) for part in parts],
        ours,
        [getattr(theirs, part) for part in parts],
    )
    carry = random_carry(ours, jax.random.key(7))
    x = inputs_of(jnp.float64)
    assert_close(ours.step(carry, x), theirs(x, carry))


# The Jacobian


@jax.jit
def jacobian_and_jacfwd(module, carry, x):
    """A closed form (of a cell or a memory), and the derivative by the hidden state alone."""
    cell = module.cell if isinstance(module, rl.Memory) else module

    def read(h):
        new = module.step(with_hidden(cell, carry, h), x)
        return new[1] if isinstance(module, rl.Memory) else cell.hidden(new)

    return module.jacobian(carry, x), jax.jacfwd(read)(cell.hidden(carry))


@each_dtype
@each_cell
def test_jacobian_is_jacfwd_by_the_hidden_state_alone(name, dtype):
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
    assert np.abs(by_c).max() > 1e-2  # there is something to hold fixed
    jacobian = cell.jacobian(carry, x)
    step = 1e-6
    for k in range(H):
        up = cell.step((carry[0].at[k].add(step), carry[1]), x)[0]
        down = cell.step((carry[0].at[k].add(-step), carry[1]), x)[0]
        # Central differences: a truncation of about step^2 and a rounding of about 1e-16 / step.
        assert_close(jacobian[:, k], (up - down) / (2 * step), tolerance=1e-8)


@pytest.mark.parametrize("name", registry.GATED_CELLS)
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
def test_memory_jacobian_without_a_readout_is_the_cell_s(name):
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
            assert_close((leaf_at(trace.carries, t), trace.features[t]), (carry, phi))


def leaf_at(tree, t):
    return jax.tree.map(lambda leaf: leaf[t], tree)


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


# As values that JAX transforms


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
def test_grad_by_a_memory_is_the_slope_of_the_loss(name):
    memory = memories(jnp.float64)[name]
    inputs = inputs_of(jnp.float64, T)
    random = np.random.default_rng(12)
    direction = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape)), memory)

    def loss(memory):
        return jnp.sum(jnp.sin(unroll(memory, inputs).features))

    gradient = jax.jit(jax.grad(loss))(memory)
    assert jax.tree.structure(gradient) == jax.tree.structure(memory)
    along = sum(
        jnp.vdot(g, d) for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    )
    step = 1e-6
    up = loss(jax.tree.map(lambda leaf, d: leaf + step * d, memory, direction))
    down = loss(jax.tree.map(lambda leaf, d: leaf - step * d, memory, direction))
    assert abs(along) > 1e-2
    # Central differences lose about 1e-15 / step to rounding.
    assert_close(along, (up - down) / (2 * step), tolerance=1e-7)


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
    wrapped = rl.Autodiff(cells_step(name), cell.init(), hidden=cell_hidden(name), input_size=D)
    carry = random_carry(cell, jax.random.key(15))
    x = inputs_of(jnp.float64)
    assert wrapped.hidden_size == H
    assert_close(wrapped.step(carry, x), cell.step(carry, x))
    assert_close(wrapped.jacobian(carry, x), cell.jacobian(carry, x))


def cells_step(name):
    return lambda carry, x: cells(jnp.float64)[name].step(carry, x)


def cell_hidden(name):
    return lambda carry: cells(jnp.float64)[name].hidden(carry)


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
def test_autodiff_takes_its_jacobian_by_the_entries_hidden_picks(hidden, entries):
    cell = rl.Autodiff(mix, jnp.linspace(0.1, 0.6, 6), hidden=hidden)
    carry = random_carry(cell, jax.random.key(16))
    x = inputs_of(jnp.float64)
    whole = jax.jacfwd(lambda h: mix(h, x))(carry)
    index = np.array(entries)
    assert cell.hidden_size == len(entries)
    assert_close(cell.hidden(carry), carry[index])
    assert_close(cell.jacobian(carry, x), whole[np.ix_(index, index)])


def test_autodiff_hidden_may_pick_from_several_leaves_and_flatten_them():
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


def test_autodiff_can_be_built_inside_jit_and_differentiated_by_its_start():
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
def test_autodiff_refuses_what_cannot_be_static(argument):
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
def test_autodiff_refuses_a_hidden_that_is_no_pick(hidden, shape):
    message = (
        r"^hidden must pick entries of the carry, as a vector of shape \(H,\); "
        rf"got something of shape {shape} from a carry whose leaves have shapes \[\(4,\)\]\.$"
    )
    with pytest.raises(ValueError, match=message):
        rl.Autodiff(drift, jnp.zeros(4), hidden=hidden)


def test_autodiff_refuses_a_carry_of_other_than_floats():
    message = r"^initial_carry must hold arrays of floats; got one of int32\.$"
    with pytest.raises(ValueError, match=message):
        rl.Autodiff(drift, (jnp.zeros(3), jnp.zeros(3, jnp.int32)), hidden=lambda carry: carry[0])


def test_autodiff_without_input_size_takes_any_vector_and_only_vectors():
    cell = rl.Autodiff(drift, jnp.zeros(3))
    assert cell.input_size is None
    assert_close(cell.step(cell.init(), jnp.ones(7)), np.full(3, np.tanh(7.0)))
    with pytest.raises(ValueError, match=r"^x must have shape \(D,\); got \(2, 7\)\..*jax\.vmap"):
        cell.step(cell.init(), jnp.ones((2, 7)))


# What is refused, and in which words


@each_cell
@pytest.mark.parametrize("method", ["step", "jacobian"])
def test_a_wrong_input_is_refused_by_name(name, method):
    cell = cells(jnp.float64)[name]
    call = getattr(cell, method)
    with pytest.raises(ValueError, match=rf"^x must have shape \({D},\); got \({D + 1},\)\.$"):
        call(cell.init(), jnp.ones(D + 1))
    batch = (
        rf"^x must have shape \({D},\); got \(7, {D}\)\. "
        r"Modules act on one example: put jax\.vmap around the call for a batch\.$"
    )
    with pytest.raises(ValueError, match=batch):
        call(cell.init(), jnp.ones((7, D)))
    with pytest.raises(ValueError, match=rf"^x must have shape \({D},\); got \(\)\.$"):
        call(cell.init(), jnp.ones(()))


@pytest.mark.parametrize("method", ["step", "jacobian"])
def test_a_memory_refuses_a_wrong_input_by_name(method):
    memory = memories(jnp.float64)["lstm-readout"]
    with pytest.raises(ValueError, match=rf"^x must have shape \({D},\); got \(2, {D}\)\..*jax\.vmap"):
        getattr(memory, method)(memory.init(), jnp.ones((2, D)))


@pytest.mark.parametrize("kind", [rl.LSTM, rl.GRU, rl.Elman, rl.Linear])
@pytest.mark.parametrize("value", [0, -1, True])
def test_a_wrong_size_is_refused_by_name(kind, value):
    key = jax.random.key(0)
    with pytest.raises(
        ValueError, match=rf"^input_size must be a whole number of at least 1; got {value}\.$"
    ):
        kind(value, H, key=key)
    with pytest.raises(
        ValueError, match=rf"^hidden_size must be a whole number of at least 1; got {value}\.$"
    ):
        kind(D, value, key=key)


def test_autodiff_refuses_a_wrong_input_size():
    with pytest.raises(ValueError, match=r"^input_size must be a whole number of at least 1; got 0\.$"):
        rl.Autodiff(drift, jnp.zeros(3), input_size=0)


def test_elman_names_its_activations():
    with pytest.raises(ValueError, match=r"^activation must be one of 'tanh', 'relu'; got 'gelu'\.$"):
        rl.Elman(D, H, activation="gelu", key=jax.random.key(0))


def test_features_need_a_key():
    with pytest.raises(ValueError, match=r"^key must be a JAX random key when features=4; got None\.$"):
        rl.Memory(cells(jnp.float64)["gru"], 4)


def test_features_and_readout_are_one_too_many():
    readout = rl.Affine(jnp.ones((F, H)), None)
    with pytest.raises(ValueError, match=r"^features and readout are two ways .*: give one of them\.$"):
        rl.Memory(cells(jnp.float64)["gru"], F, readout=readout, key=jax.random.key(0))


def test_features_must_be_a_size():
    with pytest.raises(ValueError, match=r"^features must be a whole number of at least 1; got 0\.$"):
        rl.Memory(cells(jnp.float64)["gru"], 0, key=jax.random.key(0))


def test_a_readout_must_fit_the_hidden_state():
    readout = rl.Affine(jnp.ones((F, H + 1)), None)
    message = rf"^readout\.weight must have shape \(features, {H}\); got \({F}, {H + 1}\)\.$"
    with pytest.raises(ValueError, match=message):
        rl.Memory(cells(jnp.float64)["gru"], readout=readout)


def test_a_readout_that_exists_is_used_with_or_without_bias():
    cell = cells(jnp.float64)["elman-tanh"]
    weight = jnp.asarray(np.random.default_rng(18).normal(size=(F, H)))
    x = inputs_of(jnp.float64)
    h = np.asarray(cell.step(cell.init(), x))
    for bias in (None, jnp.arange(1.0, F + 1)):
        _, phi = rl.Memory(cell, readout=rl.Affine(weight, bias)).step(cell.init(), x)
        assert_close(phi, np.asarray(weight) @ h + (0 if bias is None else np.asarray(bias)))


@pytest.mark.parametrize("name", registry.GATED_CELLS)
def test_a_cell_from_its_own_weights_is_that_cell(name):
    cell = cells(jnp.float64)[name]
    more = {"bias_n": cell.bias_n} if isinstance(cell, rl.GRU) else {}
    options = {"activation": cell.activation} if isinstance(cell, rl.Elman) else None
    same = type(cell).from_weights(cell.weight_ih, cell.weight_hh, cell.bias, options=options, **more)
    assert eqx.tree_equal(same, cell)


def test_weights_that_make_no_cell_are_refused():
    with pytest.raises(ValueError, match=r"weight_hh must have shape \(16, 4\); got \(12, 4\)"):
        rl.LSTM.from_weights(jnp.zeros((16, 3)), jnp.zeros((12, 4)), jnp.zeros(16))
    with pytest.raises(ValueError, match="weights must be weight_ih, weight_hh, bias, bias_n for this GRU"):
        rl.GRU.from_weights(jnp.zeros((12, 3)), jnp.zeros((12, 4)), jnp.zeros(12))
