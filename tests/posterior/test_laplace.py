"""The Laplace posterior against an explicit loop over the formulas of the method."""

import functools
import itertools

import equinox as eqx
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from support import registry
from support.posteriors import assert_near, assert_same_beliefs, unroll, update, updates
from support.registry import with_hidden

import recurrent_laplace as rl
from recurrent_laplace.posterior import curvature as curvature_module

D, H, F, T = 3, 5, 4, 11
RESETS = (False, False, False, True, False, False, False, False, True, True, False)
NO_RESETS = (False,) * T
OPTIONS = {"forgetting": 0.9, "prior_stddev": 0.7, "damping_precision": 0.3}

each_covariance = pytest.mark.parametrize("covariance", ["dense", "diagonal"])


@functools.cache
def memories(dtype: str = "float64") -> dict[str, rl.Memory]:
    return registry.memories(D, H, F, dtype, jax.random.key(4))


def memory_of(name: str, dtype: str = "float64") -> rl.Memory:
    return memories(dtype)[name]


@functools.cache
def inputs_of(steps: int = T, dtype: str = "float64") -> jax.Array:
    # Concrete even if first requested during tracing, since later tests get the same array.
    with jax.ensure_compile_time_eval():
        return jax.random.normal(jax.random.key(7), (steps, D), dtype)


# Reference implementation


@functools.cache
def features_and_jacobians(name: str, dtype: str, resets: tuple[bool, ...]):
    """Features `(T, F)` and Jacobians `(T, T, F, H)` in float64; [t, i] is input i at the carry after t."""
    memory = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), memory_of(name, dtype))
    inputs = inputs_of(len(resets), dtype).astype(jnp.float64)
    cell = memory.cell

    @jax.jit
    def jacobians(carry):
        def of_input(x):
            return jax.jacfwd(lambda h: memory.step(with_hidden(cell, carry, h), x)[1])(cell.hidden(carry))

        return jax.vmap(of_input)(inputs)

    step = jax.jit(lambda carry, x: memory.step(carry, x))
    carry, features, results = memory.init(), [], []
    for x, reset in zip(inputs, resets, strict=True):
        carry, phi = step(memory.init() if reset else carry, x)
        features.append(np.asarray(phi))
        results.append(np.asarray(jacobians(carry)))
    return np.stack(features), np.stack(results)


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
    """Means and precisions, one step at a time, from the table in docs/notation.md."""
    size = features.shape[1]
    prior = np.eye(size) / prior_stddev**2
    mean, precision, first = np.zeros(size), prior, 0
    means, precisions = [], []
    for t, phi in enumerate(features):
        if resets[t]:
            mean, precision, first = np.zeros(size), prior, t
        oldest = first if window is None else max(first, t - window + 1)
        curvature = sum(jacobians[t, i] @ jacobians[t, i].T for i in range(oldest, t + 1))
        if accumulate == "none":
            precision = damping_precision * np.eye(size) + curvature
        else:
            precision = forgetting * precision + (1 - forgetting) * prior + curvature
        mean = phi + mean if accumulate == "mean_and_precision" else phi
        means.append(mean)
        precisions.append(np.diag(precision) if covariance == "diagonal" else precision)
    return np.stack(means), np.stack(precisions)


def assert_reference(run, name, options, resets=RESETS, dtype="float64"):
    """Assert that `run`, `unroll` or `updates`, gives the beliefs of the reference, and return them."""
    posterior = rl.LaplacePosterior(memory_of(name, dtype), **options)
    beliefs, info = run(posterior, inputs_of(dtype=dtype), jnp.array(resets))
    expected = reference(*features_and_jacobians(name, dtype, resets), resets, **options)
    assert beliefs.mean.dtype == dtype
    assert_near((beliefs.mean, beliefs.precision()), expected, dtype)
    assert info.problems() == []
    return beliefs


# Values

COMBINATIONS = [
    ("none", 1),
    ("none", 3),
    ("none", 2 * T),
    ("none", None),
    ("precision", 1),
    ("precision", 3),
    ("mean_and_precision", 1),
]
# All combinations on one memory; on the others, one for each algorithm.
HISTORY, DIRECT, GRAM = ("none", None), ("mean_and_precision", 1), ("precision", 3)
COMMON = [
    *[("lstm-readout", "dense", *combination) for combination in COMBINATIONS],
    *[("lstm-readout", "diagonal", *combination) for combination in (HISTORY, DIRECT, GRAM)],
    ("autodiff", "diagonal", *HISTORY),
]
OTHER_CELLS = ("gru", "elman-tanh", "autodiff")
OTHER_MEMORIES = ("lstm", "autodiff", *(f"{cell}-readout" for cell in OTHER_CELLS))
CASES = [
    *[(unroll, *case) for case in COMMON],
    *[(unroll, name, "dense", *combination) for name in OTHER_MEMORIES for combination in (DIRECT, GRAM)],
    *[(unroll, name, "diagonal", *GRAM) for name in OTHER_CELLS],
    # Single steps share the curvatures of sequences, so fewer cells are needed.
    *[(updates, *case) for case in COMMON],
    *[(updates, f"{cell}-readout", "dense", *GRAM) for cell in OTHER_CELLS],
]


@pytest.mark.parametrize(("run", "name", "covariance", "accumulate", "window"), CASES)
def test_beliefs_are_the_reference(run, name, covariance, accumulate, window):
    options = {"covariance": covariance, "accumulate": accumulate, "window": window, **OPTIONS}
    for resets in (RESETS, NO_RESETS):
        assert_reference(run, name, options, resets)


@pytest.mark.parametrize(
    ("name", "covariance", "accumulate", "window"),
    [
        ("lstm-readout", "dense", "mean_and_precision", 1),
        ("lstm-readout", "diagonal", "none", None),
        ("gru-readout", "dense", "precision", 3),
        ("autodiff-readout", "diagonal", "none", 3),
    ],
)
def test_float32_beliefs_are_the_reference(name, covariance, accumulate, window):
    options = {"covariance": covariance, "accumulate": accumulate, "window": window, **OPTIONS}
    both = [assert_reference(run, name, options, dtype="float32") for run in (unroll, updates)]
    assert_same_beliefs(*both, "float32")


def test_defaults_are_those_of_the_method():
    explicit = {"covariance": "dense", "accumulate": "precision", "window": 1}
    explicit |= {"forgetting": 1.0, "prior_stddev": 1.0, "damping_precision": 1.0}
    beliefs, _ = unroll(rl.LaplacePosterior(memory_of("lstm-readout")), inputs_of(), jnp.array(RESETS))
    assert_same_beliefs(beliefs, assert_reference(unroll, "lstm-readout", explicit))


@pytest.mark.parametrize("accumulate", ["none", "precision", "mean_and_precision"])
def test_inactive_options_have_no_effect(accumulate):
    memory = memory_of("elman-tanh-readout")
    inactive, active = {"forgetting": 0.5}, {"damping_precision": 50.0}
    if accumulate != "none":
        inactive, active = active, inactive
    plain, same, other = (
        unroll(rl.LaplacePosterior(memory, accumulate=accumulate, **options), inputs_of())[0]
        for options in ({}, inactive, active)
    )
    np.testing.assert_array_equal(plain.precision(), same.precision())
    assert np.abs(plain.precision() - other.precision()).max() > 0.1


# T is prime above; here a single step, and a whole number of chunks.
@pytest.mark.parametrize("steps", [1, 16])
@pytest.mark.parametrize(("accumulate", "window"), [DIRECT, HISTORY])
def test_unroll_is_repeated_update_for_all_lengths(steps, accumulate, window):
    posterior = rl.LaplacePosterior(memory_of("gru-readout"), accumulate=accumulate, window=window)
    beliefs, info = unroll(posterior, inputs_of(steps))
    assert len(beliefs) == steps
    assert info.problems() == []
    assert_same_beliefs(beliefs, updates(posterior, inputs_of(steps))[0])


@jax.jit
def scan_updates(posterior, inputs, resets):
    return jax.lax.scan(lambda state, xs: posterior.update(state, *xs), posterior.init(), (inputs, resets))[1]


@pytest.mark.parametrize(("accumulate", "window"), [DIRECT, GRAM, HISTORY])
def test_update_in_scan(accumulate, window):
    posterior = rl.LaplacePosterior(
        memory_of("lstm-readout"), accumulate=accumulate, window=window, **OPTIONS
    )
    arguments = posterior, inputs_of(), jnp.array(RESETS)
    assert_same_beliefs(scan_updates(*arguments), unroll(*arguments)[0])


@pytest.mark.parametrize(("covariance", "accumulate", "window"), [("dense", *DIRECT), ("diagonal", *HISTORY)])
def test_vmap_is_a_loop(covariance, accumulate, window):
    posterior = rl.LaplacePosterior(
        memory_of("lstm-readout"), covariance=covariance, accumulate=accumulate, window=window
    )
    inputs = jax.random.normal(jax.random.key(1), (3, T, D))
    resets = jax.random.bernoulli(jax.random.key(2), 0.3, (3, T))
    batched = jax.jit(lambda *xs: jax.vmap(posterior.infer)(*xs))(inputs, resets)
    assert batched.belief.batch_shape == batched.info.finite_belief.shape == (3, T)
    states = jax.vmap(lambda _: posterior.init())(jnp.arange(3))
    _, first = jax.jit(lambda *xs: jax.vmap(posterior.update)(*xs))(states, inputs[:, 0], resets[:, 0])
    for i in range(3):
        single, _ = unroll(posterior, inputs[i], resets[i])
        assert_same_beliefs(batched.belief[i], single)
        assert_same_beliefs(first[i], single[0])


@pytest.mark.parametrize("window", [1, 3])
def test_vmap_over_seeds_and_tasks(window, monkeypatch):
    """Weights have a batch axis of seeds, around tasks that share them; Jacobians take several chunks."""
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
        assert_near(batched[seed].precision(), single.precision())
        one_task = jax.jit(unroll)(keys[seed], inputs[seed, 1:2])
        assert_near(batched[seed, 1].precision(), one_task[0].precision())


def test_reset_returns_to_the_initial_state():
    posterior = rl.LaplacePosterior(memory_of("lstm-readout"), accumulate="mean_and_precision", window=3)
    inputs = inputs_of()
    plain, _ = unroll(posterior, inputs, jnp.zeros(T, bool))
    first, _ = unroll(posterior, inputs, jnp.arange(T) == 0)
    later, _ = unroll(posterior, jnp.roll(inputs, 4, axis=0), jnp.arange(T) == 4)
    assert_same_beliefs(plain, first)
    assert_same_beliefs(plain[: T - 4], later[4:])


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
    options = {"accumulate": mode[0], "window": mode[1], "forgetting": forgetting}
    posterior = rl.LaplacePosterior(memory, covariance=covariance, prior_stddev=prior_stddev, **options)
    inputs = jax.random.normal(keys[2], (steps, input_size))
    resets = jax.random.bernoulli(keys[3], 0.2, (steps,))
    beliefs, info = unroll(posterior, inputs, resets)
    assert info.problems() == []
    assert_same_beliefs(beliefs, updates(posterior, inputs, resets)[0])
    precision = np.asarray(beliefs.precision())
    # Curvatures are positive and forgetting stops at the prior, so no belief is wider than the first.
    least = 1.0 if mode[0] == "none" else prior_stddev**-2
    eigenvalues = precision if covariance == "diagonal" else np.linalg.eigvalsh(precision)
    assert eigenvalues.min() >= least * (1 - 1e-10)


# Exact cases


def linear_memory(matrix) -> rl.Memory:
    cell = rl.Linear(D, len(matrix), key=jax.random.key(0))
    return rl.Memory(eqx.tree_at(lambda cell: cell.weight_hh, cell, jnp.asarray(matrix)))


def normal_matrix(blocks) -> np.ndarray:
    """Real normal matrix with blocks [[a, -b], [b, a]] in a random basis."""
    matrix = np.zeros((4, 4))
    for i, (a, b) in enumerate(blocks):
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[a, -b], [b, a]]
    basis, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))
    return basis @ matrix @ basis.T


def exact_hessian(memory, inputs, prior_stddev):
    """Hessian with respect to the state of the quadratic loss of a linear step on all inputs."""

    def loss(h):
        new = jax.vmap(lambda x: memory.step(h, x)[1])(inputs)
        return 0.5 * jnp.sum(new**2) + 0.5 * jnp.sum(h**2) / prior_stddev**2

    return np.asarray(jax.hessian(loss)(jnp.ones(memory.cell.hidden_size)))


@each_covariance
def test_linear_cell_with_a_normal_matrix_is_exact(covariance):
    matrix = normal_matrix([(0.6, 0.3), (-0.2, 0.8)])
    np.testing.assert_allclose(matrix @ matrix.T, matrix.T @ matrix, atol=1e-14)
    assert np.abs(matrix - matrix.T).max() > 0.1
    memory, inputs = linear_memory(matrix), inputs_of(6)
    beliefs, _ = unroll(rl.LaplacePosterior(memory, covariance=covariance, prior_stddev=0.5), inputs)
    for t in range(1, 7):
        expected = 4 * np.eye(4) + t * matrix @ matrix.T
        assert_near(exact_hessian(memory, inputs[:t], 0.5), expected)
        assert_near(beliefs[t - 1].precision(), np.diag(expected) if covariance == "diagonal" else expected)


def test_curvature_is_over_the_features():
    """`J J^T` differs from the `J^T J` over the state unless the matrix is normal."""
    matrix = np.triu(np.ones((4, 4)))
    memory, inputs = linear_memory(matrix), inputs_of(5)
    beliefs, _ = unroll(rl.LaplacePosterior(memory), inputs)
    assert_near(beliefs[-1].precision(), np.eye(4) + 5 * matrix @ matrix.T)
    hessian = exact_hessian(memory, inputs, 1.0)
    assert_near(hessian, np.eye(4) + 5 * matrix.T @ matrix)
    assert np.abs(hessian - beliefs[-1].precision()).max() > 1


# Two algorithms for the curvature


@pytest.mark.parametrize("readout", ["", "-readout"])
@pytest.mark.parametrize("name", ["lstm", "gru", "elman-tanh"])
def test_gram_curvature_is_the_sum_of_direct_ones(name, readout):
    memory, steps = memory_of(name + readout), 6
    trace = memory.unroll(inputs_of(steps))
    projected = memory.cell.project(jax.random.normal(jax.random.key(3), (steps, 4, D)))
    valid = jax.random.bernoulli(jax.random.key(4), 0.7, (steps, 4))
    assert not valid.all()

    for diagonal in (True, False):
        direct = jax.jit(curvature_module._direct(memory, memory.cell, diagonal))
        gram = jax.jit(curvature_module._gram(memory, memory.cell, diagonal))
        mask = np.asarray(valid).T.reshape(4, steps, *([1] if diagonal else [1, 1]))
        windows = [(projected[:, i : i + 1], valid[:, i : i + 1]) for i in range(4)]
        terms = [mask[i] * np.asarray(direct(trace.carries, *windows[i])) for i in range(4)]
        for width in (1, 2, 3, 4):
            total = gram(trace.carries, projected[:, :width], valid[:, :width])
            assert_near(total, sum(terms[:width]))


# Rates


@each_covariance
def test_window_tends_to_all_history(covariance):
    posterior = functools.partial(
        rl.LaplacePosterior, memory_of("lstm-readout"), covariance=covariance, accumulate="none"
    )
    steps = 8
    last = {
        window: np.asarray(unroll(posterior(window=window), inputs_of(steps))[0].precision()[-1])
        for window in (1, 3, 6, steps, steps + 5, None)
    }
    errors = [np.linalg.norm(last[window] - last[None]) for window in (1, 3, 6)]
    # The difference is a sum of positive terms, so every further input reduces it.
    assert all(later < earlier for earlier, later in itertools.pairwise(errors))
    assert errors[-1] > 1e-3
    np.testing.assert_array_equal(last[steps], last[steps + 5])
    np.testing.assert_array_equal(last[steps], last[None])


@each_covariance
def test_forgetting_returns_to_the_prior_at_its_rate(covariance):
    keep, saturated = 0.8, 40
    memory = memory_of("elman-tanh-readout")
    # A saturated tanh has a derivative of exactly zero.
    cell = eqx.tree_at(lambda cell: cell.weight_ih, memory.cell, jnp.ones((H, D)))
    memory = rl.Memory(cell, readout=memory.readout)
    inputs = jnp.concatenate([0.1 * inputs_of(5), jnp.full((saturated, D), 1e3)])
    posterior = rl.LaplacePosterior(memory, covariance=covariance, forgetting=keep, prior_stddev=2.0)
    beliefs, info = unroll(posterior, inputs)
    assert info.problems() == []
    excess = np.asarray(beliefs.precision() - posterior.prior().precision())
    start = excess[5]
    assert np.abs(start).max() > 0.1
    for i in range(saturated):
        np.testing.assert_allclose(excess[5 + i], keep**i * start, rtol=0, atol=1e-10 * np.abs(start).max())
    assert (np.diff(beliefs.entropy()[5:]) > 0).all()


@each_covariance
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_entropy_only_falls_without_forgetting(name, covariance):
    posterior = rl.LaplacePosterior(memory_of(f"{name}-readout"), covariance=covariance)
    beliefs, _ = unroll(posterior, 3 * inputs_of(16))
    entropies = np.concatenate([[posterior.prior().entropy()], beliefs.entropy()])
    assert (np.diff(entropies) < 0).all()


# Gradients


@pytest.mark.parametrize(
    ("run", "accumulate", "window"),
    [
        *((rl.LaplacePosterior.unroll, *algorithm) for algorithm in (HISTORY, GRAM, DIRECT)),
        (scan_updates, *GRAM),
    ],
)
def test_only_the_features_have_gradients(run, accumulate, window):
    weights = jax.random.normal(jax.random.key(5), (T, F))
    resets = jnp.array(RESETS)

    def beliefs_of(memory):
        posterior = rl.LaplacePosterior(memory, accumulate=accumulate, window=window, forgetting=0.9)
        return run(posterior, inputs_of(), resets)

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

    of_width, of_mean, of_features = gradients(memory_of("lstm-readout"))
    for leaf in jax.tree.leaves(of_width):
        np.testing.assert_array_equal(leaf, 0)
    assert min(np.abs(leaf).max() for leaf in jax.tree.leaves(of_features)) > 1e-3
    assert_near(of_mean, of_features)


@each_covariance
def test_only_the_mahalanobis_term_of_the_kl_has_a_gradient(covariance):
    memory, inputs = memory_of("gru-readout"), inputs_of()
    options = {"covariance": covariance, "accumulate": "mean_and_precision", "prior_stddev": 0.5}
    beliefs, _ = unroll(rl.LaplacePosterior(memory, **options), inputs)
    prior = rl.LaplacePosterior(memory, **options).prior()
    precisions = np.concatenate([prior.precision()[None], beliefs.precision()[:-1]])
    if covariance == "diagonal":
        precisions = np.einsum("tf,fg->tfg", precisions, np.eye(F))
    previous = np.concatenate([np.zeros((1, F)), beliefs.mean[:-1]])

    def by_hand(memory):
        # The mean is the features plus the previous mean, which is a constant.
        step = memory.unroll(inputs).features + previous - previous
        return 0.5 * jnp.einsum("tf,tfg,tg->", step, precisions, step)

    def of_library(memory):
        posterior = rl.LaplacePosterior(memory, **options)
        return jnp.sum(posterior.consecutive_kl(posterior.unroll(inputs)))

    expected = jax.jit(jax.grad(by_hand))(memory)
    assert min(np.abs(leaf).max() for leaf in jax.tree.leaves(expected)) > 1e-3
    assert_near(jax.jit(jax.grad(of_library))(memory), expected)


# Unlimited windows, online


def test_history_grows_outside_of_jit():
    posterior = rl.LaplacePosterior(memory_of("elman-tanh-readout"), accumulate="none", window=None)
    state = posterior.init(capacity=2)
    expected, _ = unroll(posterior, inputs_of(5))
    sizes = []
    for t in range(5):
        state, belief = posterior.update(state, inputs_of(5)[t])
        sizes.append(state.window.size)
        assert_near(belief.precision(), expected[t].precision())
    assert sizes == [2, 2, 4, 4, 8]


def test_full_history_inside_jit_is_an_error():
    posterior = rl.LaplacePosterior(memory_of("elman-tanh-readout"), accumulate="none", window=None)
    state = posterior.init(capacity=2)
    for _ in range(2):
        state, _, _ = update(posterior, state, inputs_of()[0])
    with pytest.raises(RuntimeError, match=r"history is full with 2 inputs.*init\(capacity=\.\.\.\)"):
        update(posterior, state, inputs_of()[0])
    # A reset makes room.
    state, _, _ = update(posterior, state, inputs_of()[0], jnp.array(True))
    assert int(state.window.count) == 1


def test_limited_window_does_not_grow():
    posterior = rl.LaplacePosterior(memory_of("elman-tanh-readout"), accumulate="none", window=2)
    state = posterior.init(capacity=1)
    for _ in range(3):
        state, _, _ = update(posterior, state, inputs_of()[0])
    assert state.window.size == 2
