"""The Laplace posterior against a plain loop over the method's formulas."""

import functools
import itertools

import equinox as eqx
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import recurrent_laplace as rl
from recurrent_laplace.posterior import curvature as curvature_module

D, H, F, T = 3, 5, 4, 11
RESETS = (False, False, False, True, False, False, False, False, True, True, False)
NO_RESETS = (False,) * T
OPTIONS = {"forgetting": 0.9, "prior_stddev": 0.7, "damping_precision": 0.3}
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
# Cell and readout; the last cell is known by its step alone, with a part of the carry that is not hidden.
MEMORIES = [
    ("lstm", True),
    ("lstm", False),
    ("gru", True),
    ("gru", False),
    ("elman", True),
    ("elman", False),
    ("autodiff", True),
    ("autodiff", False),
]

UNROLL = eqx.filter_jit(lambda posterior, inputs, resets: posterior.unroll_info(inputs, resets))
UPDATE = eqx.filter_jit(lambda posterior, state, x, reset: posterior.update_info(state, x, reset))


# What is tested


def leaky_step(carry, x):
    """Not symmetric, not gated, with a slow part that counts as fixed."""
    turned = jnp.roll(carry["h"], 1) * (1 + 0.3 * jnp.sin(jnp.arange(H, dtype=x.dtype)))
    slow = 0.8 * carry["slow"] + 0.2 * jnp.tanh(carry["h"] * x[0])
    return {"h": jnp.sin(turned + x.mean() * carry["h"] + slow), "slow": slow}


def pick_h(carry):
    return carry["h"]


@functools.cache
def memory_of(name: str, readout: bool, dtype: str = "float64") -> rl.Memory:
    key, other = jax.random.split(jax.random.key(len(name)))
    if name == "autodiff":
        start = {"h": jax.random.normal(key, (H,), dtype), "slow": jnp.full(H, 0.1, dtype)}
        cell = rl.Autodiff(leaky_step, start, pick_h, input_size=D)
    else:
        kind = {"lstm": rl.LSTM, "gru": rl.GRU, "elman": rl.Elman}[name]
        cell = kind(D, H, dtype=dtype, key=key)
    return rl.Memory(cell, features=F if readout else None, key=other)


@functools.cache
def inputs_of(steps: int = T, dtype: str = "float64") -> jax.Array:
    return jax.random.normal(jax.random.key(7), (steps, D), dtype)


def updates(posterior, inputs, resets):
    """Beliefs and infos of repeated updates, stacked."""
    state = posterior.init()
    out = []
    for x, reset in zip(inputs, resets, strict=True):
        state, belief, info = UPDATE(posterior, state, x, jnp.asarray(reset))
        out.append((belief, info))
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *out)


# The loop it is tested against


def _replace_hidden(carry, h):
    if isinstance(carry, tuple):
        return (h, *carry[1:])
    if isinstance(carry, dict):
        return {**carry, "h": h}
    return h


def _hidden(carry):
    return carry[0] if isinstance(carry, tuple) else carry["h"] if isinstance(carry, dict) else carry


@functools.cache
def facts(name: str, readout: bool, dtype: str, resets: tuple[bool, ...]):
    """In float64: features `(T, F)`, and Jacobians `(T, T, F, H)`, [t, i] input i at the carry after t."""
    memory = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), memory_of(name, readout, dtype))
    inputs = inputs_of(len(resets), dtype).astype(jnp.float64)

    @jax.jit
    def jacobians(carry):
        def of_input(x):
            new_features = lambda h: memory.step(_replace_hidden(carry, h), x)[1]
            return jax.jacfwd(new_features)(_hidden(carry))

        return jax.vmap(of_input)(inputs)

    step = jax.jit(lambda carry, x: memory.step(carry, x))
    carry, features, out = memory.init(), [], []
    for x, reset in zip(inputs, resets, strict=True):
        carry, phi = step(memory.init() if reset else carry, x)
        features.append(np.asarray(phi))
        out.append(np.asarray(jacobians(carry)))
    return np.stack(features), np.stack(out)


def reference(
    features,
    jacobians,
    resets,
    *,
    covariance,
    accumulate,
    window,
    forgetting,
    prior_stddev,
    damping_precision,
):
    """Means and precisions, one step at a time, from the table in METHOD.md."""
    size = features.shape[1]
    prior = np.eye(size) / prior_stddev**2
    mean, precision, first = np.zeros(size), prior, 0
    means, precisions = [], []
    for t, phi in enumerate(features):
        if resets[t]:
            mean, precision, first = np.zeros(size), prior, t
        oldest = first if window is None else max(first, t - window + 1)
        curvature = np.zeros((size, size))
        for i in range(oldest, t + 1):
            curvature = curvature + jacobians[t, i] @ jacobians[t, i].T
        if accumulate == "none":
            precision = damping_precision * np.eye(size) + curvature
        else:
            precision = forgetting * precision + (1 - forgetting) * prior + curvature
        mean = phi + mean if accumulate == "mean_and_precision" else phi
        means.append(mean)
        precisions.append(np.diag(precision) if covariance == "diagonal" else precision)
    return np.stack(means), np.stack(precisions)


def assert_close(actual, expected, dtype="float64", times=1.0):
    """Relative to the largest entry."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=times * TOLERANCE[dtype] * np.abs(expected).max()
    )


def assert_as_reference(beliefs, info, name, readout, dtype, resets, options):
    means, precisions = reference(*facts(name, readout, dtype, resets), resets, **options)
    assert beliefs.mean.dtype == dtype
    assert_close(beliefs.mean, means, dtype)
    assert_close(beliefs.precision(), precisions, dtype)
    assert info.problems() == []


# 1 and 2. Values

COMBINATIONS = [
    ("none", 1),
    ("none", 3),
    ("none", 2 * T),
    ("none", None),
    ("precision", 1),
    ("precision", 3),
    ("precision", 2 * T),
    ("mean_and_precision", 1),
    ("mean_and_precision", 3),
]
# All combinations on one memory; on the rest, those that take different roads.
ROADS = [("none", None), ("mean_and_precision", 1), ("precision", 3)]
ALL = [("lstm", True, "dense", *combination) for combination in COMBINATIONS]
CASES = [
    *ALL,
    *[("lstm", True, "diagonal", *road) for road in ROADS],
    *[(*memory, "dense", *road) for memory in MEMORIES[1:] for road in ROADS[1:]],
    *[(name, False, "diagonal", *ROADS[2]) for name in ("gru", "elman", "autodiff")],
    # Slow to compile, in four parts.
    ("gru", True, "diagonal", *ROADS[0]),
    ("autodiff", False, "diagonal", *ROADS[0]),
]
# Online has the same curvatures, so the cells matter less.
UPDATE_CASES = [
    *ALL,
    *[("lstm", True, "diagonal", *road) for road in ROADS],
    *[(name, True, "dense", *ROADS[2]) for name in ("gru", "elman", "autodiff")],
    ("autodiff", False, "diagonal", *ROADS[0]),
]


@pytest.mark.parametrize(("name", "readout", "covariance", "accumulate", "window"), CASES)
def test_unroll_is_the_methods_loop(name, readout, covariance, accumulate, window):
    options = {"covariance": covariance, "accumulate": accumulate, "window": window, **OPTIONS}
    posterior = rl.LaplacePosterior(memory_of(name, readout), **options)
    for resets in (RESETS, NO_RESETS):
        beliefs, info = UNROLL(posterior, inputs_of(), jnp.array(resets))
        assert_as_reference(beliefs, info, name, readout, "float64", resets, options)


@pytest.mark.parametrize(("name", "readout", "covariance", "accumulate", "window"), UPDATE_CASES)
def test_updates_are_the_methods_loop(name, readout, covariance, accumulate, window):
    options = {"covariance": covariance, "accumulate": accumulate, "window": window, **OPTIONS}
    posterior = rl.LaplacePosterior(memory_of(name, readout), **options)
    for resets in (RESETS, NO_RESETS):
        beliefs, info = updates(posterior, inputs_of(), resets)
        assert_as_reference(beliefs, info, name, readout, "float64", resets, options)


@pytest.mark.parametrize(
    ("name", "covariance", "accumulate", "window"),
    [
        ("lstm", "dense", "mean_and_precision", 1),
        ("lstm", "diagonal", "none", None),
        ("gru", "dense", "precision", 3),
        ("autodiff", "diagonal", "none", 3),
    ],
)
def test_float32_is_the_methods_loop(name, covariance, accumulate, window):
    options = {"covariance": covariance, "accumulate": accumulate, "window": window, **OPTIONS}
    posterior = rl.LaplacePosterior(memory_of(name, True, "float32"), **options)
    inputs = inputs_of(dtype="float32")
    one, info = UNROLL(posterior, inputs, jnp.array(RESETS))
    assert_as_reference(one, info, name, True, "float32", RESETS, options)
    many, info = updates(posterior, inputs, RESETS)
    assert_as_reference(many, info, name, True, "float32", RESETS, options)
    assert_close(one.precision(), many.precision(), "float32")
    assert_close(one.mean, many.mean, "float32")


def test_defaults_are_those_of_the_method():
    options = {"covariance": "dense", "accumulate": "precision", "window": 1}
    options |= {"forgetting": 1.0, "prior_stddev": 1.0, "damping_precision": 1.0}
    beliefs, info = UNROLL(rl.LaplacePosterior(memory_of("lstm", True)), inputs_of(), jnp.array(RESETS))
    assert_as_reference(beliefs, info, "lstm", True, "float64", RESETS, options)


@pytest.mark.parametrize("accumulate", ["none", "precision", "mean_and_precision"])
def test_options_without_effect_have_none(accumulate):
    memory = memory_of("elman", True)
    unused = {"forgetting": 0.5} if accumulate == "none" else {"damping_precision": 50.0}
    used = {"damping_precision": 50.0} if accumulate == "none" else {"forgetting": 0.5}
    plain, same, other = (
        UNROLL(rl.LaplacePosterior(memory, accumulate=accumulate, **options), inputs_of(), None)[0]
        for options in ({}, unused, used)
    )
    np.testing.assert_array_equal(plain.precision(), same.precision())
    assert np.abs(plain.precision() - other.precision()).max() > 0.1


# T prime is above; here one step alone, and a whole number of chunks.
@pytest.mark.parametrize("steps", [1, 16])
@pytest.mark.parametrize(("accumulate", "window"), [("mean_and_precision", 1), ("none", None)])
def test_unroll_is_updates_for_all_lengths(steps, accumulate, window):
    posterior = rl.LaplacePosterior(memory_of("gru", True), accumulate=accumulate, window=window)
    inputs = inputs_of(steps)
    many, _ = updates(posterior, inputs, [False] * steps)
    one, info = UNROLL(posterior, inputs, None)
    assert len(one) == steps
    assert info.problems() == []
    assert_close(one.mean, many.mean)
    assert_close(one.precision(), many.precision())


@pytest.mark.parametrize(
    ("accumulate", "window"), [("mean_and_precision", 1), ("precision", 3), ("none", None)]
)
def test_update_in_scan(accumulate, window):
    posterior = rl.LaplacePosterior(memory_of("lstm", True), accumulate=accumulate, window=window, **OPTIONS)

    @jax.jit
    def scanned(posterior, inputs, resets):
        def step(state, now):
            return posterior.update(state, *now)

        return jax.lax.scan(step, posterior.init(), (inputs, resets))[1]

    beliefs = scanned(posterior, inputs_of(), jnp.array(RESETS))
    expected, _ = UNROLL(posterior, inputs_of(), jnp.array(RESETS))
    assert_close(beliefs.mean, expected.mean)
    assert_close(beliefs.precision(), expected.precision())


@pytest.mark.parametrize(
    ("covariance", "accumulate", "window"), [("dense", "mean_and_precision", 1), ("diagonal", "none", None)]
)
def test_vmap_is_a_loop(covariance, accumulate, window):
    posterior = rl.LaplacePosterior(
        memory_of("lstm", True), covariance=covariance, accumulate=accumulate, window=window
    )
    inputs = jax.random.normal(jax.random.key(1), (3, T, D))
    resets = jax.random.bernoulli(jax.random.key(2), 0.3, (3, T))
    batched, infos = jax.jit(lambda *now: jax.vmap(posterior.unroll_info)(*now))(inputs, resets)
    assert batched.batch_shape == infos.finite_belief.shape == (3, T)
    states = jax.vmap(lambda _: posterior.init())(jnp.arange(3))
    _, first = jax.jit(lambda *now: jax.vmap(posterior.update)(*now))(states, inputs[:, 0], resets[:, 0])
    for i in range(3):
        single, _ = UNROLL(posterior, inputs[i], resets[i])
        assert_close(batched[i].mean, single.mean)
        assert_close(batched[i].precision(), single.precision())
        assert_close(first[i].precision(), single[0].precision())
        assert_close(first[i].mean, single[0].mean)


@pytest.mark.parametrize("window", [1, 3])
def test_seeds_and_tasks_batch_together(window, monkeypatch):
    """Weights with an axis of their own, around tasks that share them; several chunks of Jacobians."""
    monkeypatch.setattr(curvature_module, "DENSE_WORKING_SET", 4 * H * H * 8)
    keys = jax.random.split(jax.random.key(3), 2)
    inputs = jax.random.normal(jax.random.key(1), (2, 4, T, D))

    def unroll(key, inputs):
        cell, readout = jax.random.split(key)
        memory = rl.Memory(rl.LSTM(D, H, dtype="float64", key=cell), F, key=readout)
        return jax.vmap(rl.LaplacePosterior(memory, window=window).unroll)(inputs)

    batched = jax.jit(jax.vmap(unroll))(keys, inputs)
    for seed in range(2):
        single = jax.jit(unroll)(keys[seed], inputs[seed])
        assert_close(batched[seed].precision(), single.precision())
        one_task = jax.jit(unroll)(keys[seed], inputs[seed, 1:2])
        assert_close(batched[seed, 1].precision(), one_task[0].precision())


def test_first_reset_changes_nothing_and_a_reset_starts_again():
    posterior = rl.LaplacePosterior(memory_of("lstm", True), accumulate="mean_and_precision", window=3)
    inputs = inputs_of()
    plain, _ = UNROLL(posterior, inputs, jnp.zeros(T, bool))
    first, _ = UNROLL(posterior, inputs, jnp.arange(T) == 0)
    later, _ = UNROLL(posterior, jnp.roll(inputs, 4, axis=0), jnp.arange(T) == 4)
    for one, other in ((plain, first), (plain[: T - 4], later[4:])):
        assert_close(one.mean, other.mean)
        assert_close(one.precision(), other.precision())


@hypothesis.settings(max_examples=3, deadline=None)
@hypothesis.given(
    name=st.sampled_from(["lstm", "gru", "elman", "linear"]),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 10), st.one_of(st.none(), st.integers(1, 10))),
    steps=st.integers(1, 18),
    covariance=st.sampled_from(["dense", "diagonal"]),
    mode=st.sampled_from([("none", None), ("none", 2), ("precision", 1), ("mean_and_precision", 5)]),
    forgetting=st.sampled_from([0.3, 1.0]),
    prior_stddev=st.sampled_from([0.1, 3.0]),
    seed=st.integers(0, 2**31),
)
def test_any_shape_and_option(name, sizes, steps, covariance, mode, forgetting, prior_stddev, seed):
    input_size, hidden_size, features = sizes
    kind = {"lstm": rl.LSTM, "gru": rl.GRU, "elman": rl.Elman, "linear": rl.Linear}[name]
    keys = jax.random.split(jax.random.key(seed), 4)
    memory = rl.Memory(kind(input_size, hidden_size, key=keys[0]), features=features, key=keys[1])
    posterior = rl.LaplacePosterior(
        memory,
        covariance=covariance,
        accumulate=mode[0],
        window=mode[1],
        forgetting=forgetting,
        prior_stddev=prior_stddev,
    )
    inputs = jax.random.normal(keys[2], (steps, input_size))
    resets = jax.random.bernoulli(keys[3], 0.2, (steps,))
    one, info = UNROLL(posterior, inputs, resets)
    many, _ = updates(posterior, inputs, np.asarray(resets))
    assert info.problems() == []
    assert_close(one.mean, many.mean)
    assert_close(one.precision(), many.precision())
    precision = np.asarray(one.precision())
    least = 1.0 if mode[0] == "none" else prior_stddev**-2
    # Jacobians add, forgetting stops at the prior: no belief is wider than where it starts.
    lowest = precision if covariance == "diagonal" else np.linalg.eigvalsh(precision)
    assert lowest.min() >= least * (1 - 1e-10)


# 3. Where it is exact


def linear_memory(matrix) -> rl.Memory:
    cell = rl.Linear(D, len(matrix), key=jax.random.key(0))
    return rl.Memory(eqx.tree_at(lambda cell: cell.weight_hh, cell, jnp.asarray(matrix)))


def turned_blocks(blocks) -> np.ndarray:
    """A real normal matrix with blocks [[a, -b], [b, a]], in a random basis."""
    matrix = np.zeros((4, 4))
    for i, (a, b) in enumerate(blocks):
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[a, -b], [b, a]]
    basis, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))
    return basis @ matrix @ basis.T


def exact_hessian(memory, inputs, prior_stddev):
    """Of the quadratic loss of a linear step on all inputs, by its state."""

    def loss(h):
        new = jax.vmap(lambda x: memory.step(h, x)[1])(inputs)
        return 0.5 * jnp.sum(new**2) + 0.5 * jnp.sum(h**2) / prior_stddev**2

    return np.asarray(jax.hessian(loss)(jnp.ones(memory.cell.hidden_size)))


@pytest.mark.parametrize("covariance", ["dense", "diagonal"])
def test_linear_cell_with_a_normal_matrix_is_exact(covariance):
    matrix = turned_blocks([(0.6, 0.3), (-0.2, 0.8)])
    np.testing.assert_allclose(matrix @ matrix.T, matrix.T @ matrix, atol=1e-14)
    assert np.abs(matrix - matrix.T).max() > 0.1
    memory, inputs = linear_memory(matrix), inputs_of(6)
    beliefs, _ = UNROLL(rl.LaplacePosterior(memory, covariance=covariance, prior_stddev=0.5), inputs, None)
    for t in range(1, 7):
        expected = 4 * np.eye(4) + t * matrix @ matrix.T
        assert_close(exact_hessian(memory, inputs[:t], 0.5), expected)
        assert_close(beliefs[t - 1].precision(), np.diag(expected) if covariance == "diagonal" else expected)


def test_curvature_is_in_the_space_of_features():
    """`J J^T`, which is not the `J^T J` of the state unless the matrix is normal."""
    matrix = np.triu(np.ones((4, 4)))
    memory, inputs = linear_memory(matrix), inputs_of(5)
    beliefs, _ = UNROLL(rl.LaplacePosterior(memory), inputs, None)
    assert_close(beliefs[-1].precision(), np.eye(4) + 5 * matrix @ matrix.T)
    hessian = exact_hessian(memory, inputs, 1.0)
    assert_close(hessian, np.eye(4) + 5 * matrix.T @ matrix)
    assert np.abs(hessian - beliefs[-1].precision()).max() > 1


# 4. Two ways to one curvature


@pytest.mark.parametrize("readout", [True, False])
@pytest.mark.parametrize("name", ["lstm", "gru", "elman"])
def test_gram_form_is_the_sum_of_direct_ones(name, readout):
    memory, steps = memory_of(name, readout), 6
    trace = memory.unroll(inputs_of(steps))
    projected = memory.cell.project(jax.random.normal(jax.random.key(3), (steps, 4, D)))
    valid = jax.random.bernoulli(jax.random.key(4), 0.7, (steps, 4))
    assert not valid.all()

    @jax.jit
    def both(carries, windows, valid):
        out = {}
        for diagonal in (True, False):
            direct = curvature_module._direct(memory, memory.cell, diagonal)
            gram = curvature_module._gram(memory, memory.cell, diagonal)
            each = [direct(carries, windows[:, i : i + 1], valid[:, i : i + 1]) for i in range(4)]
            for width in (1, 2, 3, 4):
                out[diagonal, width] = (gram(carries, windows[:, :width], valid[:, :width]), each)
        return list(out.values())

    values = iter(both(trace.carries, projected, valid))
    for diagonal in (True, False):
        for width in (1, 2, 3, 4):
            gram, each = next(values)
            mask = np.asarray(valid).T.reshape(4, steps, *([1] if diagonal else [1, 1]))
            assert_close(gram, sum(mask[i] * np.asarray(each[i]) for i in range(width)))


# 5. Rates


@pytest.mark.parametrize("covariance", ["dense", "diagonal"])
def test_a_window_tends_to_all_history(covariance):
    posterior = functools.partial(
        rl.LaplacePosterior, memory_of("lstm", True), covariance=covariance, accumulate="none"
    )
    steps = 8
    last = {
        window: np.asarray(UNROLL(posterior(window=window), inputs_of(steps), None)[0].precision()[-1])
        for window in (1, 3, 6, steps, steps + 5, None)
    }
    errors = [np.linalg.norm(last[window] - last[None]) for window in (1, 3, 6)]
    # What is left out is a sum of positive terms, so every input that enters brings it nearer.
    assert all(next_ < error for error, next_ in itertools.pairwise(errors))
    assert errors[-1] > 1e-3
    np.testing.assert_array_equal(last[steps], last[steps + 5])
    np.testing.assert_array_equal(last[steps], last[None])


@pytest.mark.parametrize("covariance", ["dense", "diagonal"])
def test_forgetting_returns_to_the_prior_at_its_rate(covariance):
    keep, loud = 0.8, 40
    memory = memory_of("elman", True)
    # A saturated tanh has a derivative of exactly zero.
    cell = eqx.tree_at(lambda cell: cell.weight_ih, memory.cell, jnp.ones((H, D)))
    memory = rl.Memory(cell, readout=memory.readout)
    inputs = jnp.concatenate([0.1 * inputs_of(5), jnp.full((loud, D), 1e3)])
    posterior = rl.LaplacePosterior(memory, covariance=covariance, forgetting=keep, prior_stddev=2.0)
    beliefs, info = UNROLL(posterior, inputs, None)
    assert info.problems() == []
    away = np.asarray(beliefs.precision() - posterior.prior().precision())
    start = away[5]
    assert np.abs(start).max() > 0.1
    for i in range(loud):
        np.testing.assert_allclose(away[5 + i], keep**i * start, rtol=0, atol=1e-10 * np.abs(start).max())
    assert (np.diff(beliefs.entropy()[5:]) > 0).all()


@pytest.mark.parametrize("covariance", ["dense", "diagonal"])
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_entropy_only_falls_without_forgetting(name, covariance):
    posterior = rl.LaplacePosterior(memory_of(name, True), covariance=covariance)
    beliefs, _ = UNROLL(posterior, 3 * inputs_of(16), None)
    entropies = np.concatenate([[posterior.prior().entropy()], beliefs.entropy()])
    assert (np.diff(entropies) < 0).all()


# 6. Gradients

GRADIENT_CASES = [("none", None), ("precision", 3), ("mean_and_precision", 1)]


def _scan_updates(posterior, inputs, resets):
    return jax.lax.scan(lambda state, now: posterior.update(state, *now), posterior.init(), (inputs, resets))[
        1
    ]


@pytest.mark.parametrize("way", ["unroll", "update"])
@pytest.mark.parametrize(("accumulate", "window"), GRADIENT_CASES)
def test_gradients_reach_the_features_alone(way, accumulate, window):
    weights = jax.random.normal(jax.random.key(5), (T, F))
    resets = jnp.array(RESETS)

    def beliefs_of(memory):
        posterior = rl.LaplacePosterior(memory, accumulate=accumulate, window=window, forgetting=0.9)
        if way == "unroll":
            return posterior.unroll(inputs_of(), resets)
        return _scan_updates(posterior, inputs_of(), resets)

    @jax.jit
    def gradients(memory):
        def of_width(memory):
            beliefs = beliefs_of(memory)
            return jnp.sum(beliefs.precision() ** 2) + jnp.sum(beliefs.entropy())

        return (
            jax.grad(of_width)(memory),
            jax.grad(lambda memory: jnp.sum(weights * beliefs_of(memory).mean))(memory),
            jax.grad(lambda memory: jnp.sum(weights * memory.unroll(inputs_of(), resets).features))(memory),
        )

    of_width, of_mean, of_features = gradients(memory_of("lstm", True))
    for leaf in jax.tree.leaves(of_width):
        np.testing.assert_array_equal(leaf, 0)
    for leaf, expected in zip(jax.tree.leaves(of_mean), jax.tree.leaves(of_features), strict=True):
        assert np.abs(expected).max() > 1e-3
        assert_close(leaf, expected)


@pytest.mark.parametrize("covariance", ["dense", "diagonal"])
def test_only_the_mahalanobis_term_of_the_kl_has_a_gradient(covariance):
    memory, inputs = memory_of("gru", True), inputs_of()
    options = {"covariance": covariance, "accumulate": "mean_and_precision", "prior_stddev": 0.5}
    beliefs, _ = UNROLL(rl.LaplacePosterior(memory, **options), inputs, None)
    prior = rl.LaplacePosterior(memory, **options).prior()
    precisions = np.concatenate([prior.precision()[None], beliefs.precision()[:-1]])
    if covariance == "diagonal":
        precisions = np.einsum("tf,fg->tfg", precisions, np.eye(F))
    previous = np.concatenate([np.zeros((1, F)), beliefs.mean[:-1]])

    def by_hand(memory):
        # The mean is the features and a constant past, here the previous mean.
        step = memory.unroll(inputs).features + previous - previous
        return 0.5 * jnp.einsum("tf,tfg,tg->", step, precisions, step)

    def of_library(memory):
        posterior = rl.LaplacePosterior(memory, **options)
        return jnp.sum(posterior.consecutive_kl(posterior.unroll(inputs)))

    actual, expected = jax.jit(lambda memory: (jax.grad(of_library)(memory), jax.grad(by_hand)(memory)))(
        memory
    )
    for leaf, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert np.abs(other).max() > 1e-3
        assert_close(leaf, other)


# Full history, online


def test_history_grows_outside_of_jit():
    posterior = rl.LaplacePosterior(memory_of("elman", True), accumulate="none", window=None)
    state = posterior.init(capacity=2)
    expected, _ = UNROLL(posterior, inputs_of(5), None)
    sizes = []
    for t in range(5):
        state, belief = posterior.update(state, inputs_of(5)[t])
        sizes.append(state.window.size)
        assert_close(belief.precision(), expected[t].precision())
    assert sizes == [2, 2, 4, 4, 8]


def test_full_history_inside_jit_is_an_error():
    posterior = rl.LaplacePosterior(memory_of("elman", True), accumulate="none", window=None)
    state = posterior.init(capacity=2)
    for _ in range(2):
        state, _, _ = UPDATE(posterior, state, inputs_of()[0], jnp.array(False))
    with pytest.raises(RuntimeError, match=r"history is full with 2 inputs.*init\(capacity=\.\.\.\)"):
        UPDATE(posterior, state, inputs_of()[0], jnp.array(False))
    # A reset makes room.
    state, _, _ = UPDATE(posterior, state, inputs_of()[0], jnp.array(True))
    assert int(state.window.count) == 1


def test_a_window_needs_no_room():
    posterior = rl.LaplacePosterior(memory_of("elman", True), accumulate="none", window=2)
    state = posterior.init(capacity=1)
    for _ in range(3):
        state, _, _ = UPDATE(posterior, state, inputs_of()[0], jnp.array(False))
    assert state.window.size == 2
