"""Variational and point posteriors, and what all posteriors share: divergences, pytrees, costs."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.gaussians import kl_by_hand
from support.posteriors import assert_near, unroll, updates

import recurrent_laplace as rl
from recurrent_laplace.models.layers import Head

D, H, F, T = 3, 5, 4, 7
RESETS = np.array([False, False, False, True, False, True, False])


@functools.cache
def memory_of(features=F) -> rl.Memory:
    key_cell, key_readout = jax.random.split(jax.random.key(0))
    return rl.Memory(rl.LSTM(D, H, key=key_cell), features=features, key=key_readout)


def inputs_of(steps=T):
    return jax.random.normal(jax.random.key(1), (steps, D))


laplace = functools.partial(rl.LaplacePosterior, prior_stddev=0.5)
variational = functools.partial(rl.VariationalPosterior, prior_stddev=0.5, key=jax.random.key(3))
POSTERIORS = {
    "laplace-dense": laplace,
    "laplace-diagonal": functools.partial(laplace, covariance="diagonal", accumulate="mean_and_precision"),
    "variational-dense": variational,
    "variational-diagonal": functools.partial(variational, covariance="diagonal"),
    "conjugate-diagonal": functools.partial(rl.ConjugatePosterior, prior_stddev=0.5, key=jax.random.key(3)),
}


# Variational posterior


def variational_by_hand(posterior, h):
    """Mean and covariance at one hidden state, in NumPy."""
    apply = lambda layer: np.asarray(layer.weight) @ h + np.asarray(layer.bias)
    mean = apply(posterior.memory.readout) if posterior.memory.readout is not None else h
    eigenvalues = np.exp(np.clip(apply(posterior.log_eigenvalue_head), -10, 2))
    size = len(mean)
    if posterior.covariance == "diagonal":
        return mean, np.diag(eigenvalues)
    lower = np.zeros((size, size))
    lower[np.tril_indices(size, -1)] = apply(posterior.rotation_head)
    skew = lower - lower.T
    basis = (np.eye(size) - skew) @ np.linalg.inv(np.eye(size) + skew)
    return mean, basis @ np.diag(eigenvalues) @ basis.T


def test_initial_variational_head_has_the_width_of_the_prior():
    h = jnp.zeros(H)
    unit, narrow = (
        rl.VariationalPosterior(memory_of(), prior_stddev=stddev, key=jax.random.key(3)).read(h)
        for stddev in (1.0, 0.25)
    )
    np.testing.assert_allclose(narrow.log_eigenvalues, unit.log_eigenvalues + 2 * np.log(0.25), rtol=1e-5)


@pytest.mark.parametrize("features", [F, None])
@pytest.mark.parametrize("covariance", ["dense", "diagonal"])
def test_variational_by_hand(covariance, features):
    memory = memory_of(features)
    posterior = rl.VariationalPosterior(memory, covariance=covariance, key=jax.random.key(3))
    # One eigenvalue is below the range, one above, the others are in it.
    bias = jnp.zeros(memory.feature_size).at[0].set(-50.0).at[1].set(50.0)
    posterior = eqx.tree_at(lambda posterior: posterior.log_eigenvalue_head.bias, posterior, bias)
    results = [run(posterior, inputs_of(), jnp.array(RESETS)) for run in (unroll, updates)]
    carry = memory.init()
    for t, x in enumerate(inputs_of()):
        carry, _ = memory.step(memory.init() if RESETS[t] else carry, x)
        mean, expected = variational_by_hand(posterior, np.asarray(carry[0]))
        for beliefs, info in results:
            assert info.problems() == []
            actual = beliefs[t].covariance()
            assert_near(beliefs[t].mean, mean)
            assert_near(np.diag(actual) if covariance == "diagonal" else actual, expected)
        eigenvalues = np.linalg.eigvalsh(expected)
        np.testing.assert_allclose([eigenvalues[0], eigenvalues[-1]], np.exp([-10, 2]), rtol=1e-9)


@pytest.mark.parametrize("kind", POSTERIORS)
def test_prior(kind):
    prior = POSTERIORS[kind](memory_of()).prior()
    np.testing.assert_array_equal(prior.mean, np.zeros(F))
    expected = np.full(F, 0.25) if kind.endswith("diagonal") else 0.25 * np.eye(F)
    assert_near(prior.covariance(), expected)
    assert_near(prior.entropy(), F * 0.5 * math.log(2 * math.pi * math.e * 0.25))


def test_variational_has_a_gradient_in_every_parameter():
    def objective(posterior):
        beliefs = posterior.unroll(inputs_of())
        return jnp.sum(posterior.consecutive_kl(beliefs)) + jnp.sum(beliefs.sample(jax.random.key(0)) ** 2)

    gradient = jax.jit(jax.grad(objective))(POSTERIORS["variational-dense"](memory_of()))
    for leaf in jax.tree.leaves(gradient):
        assert np.isfinite(leaf).all()
        assert np.abs(leaf).max() > 1e-6


# Point posterior


def test_point_posterior_is_the_memory():
    memory = memory_of()
    posterior = rl.PointPosterior(memory)
    features = memory.unroll(inputs_of(), jnp.array(RESETS)).features
    for run in (unroll, updates):
        beliefs, info = run(posterior, inputs_of(), jnp.array(RESETS))
        assert isinstance(beliefs, rl.PointBelief)
        assert info.problems() == []
        assert_near(beliefs.mean, features)
    with pytest.raises(ValueError, match="point posterior has no prior"):
        posterior.prior()
    with pytest.raises(ValueError, match="point belief has no entropy"):
        beliefs.entropy()


# Pytrees


def test_parameters_have_the_same_names_in_all_posteriors():
    def names(posterior):
        leaves, _ = jax.tree_util.tree_flatten_with_path(posterior)
        return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}

    memory = memory_of()
    point = names(rl.PointPosterior(memory))
    assert sorted(point) == [
        ".memory.cell.bias",
        ".memory.cell.weight_hh",
        ".memory.cell.weight_ih",
        ".memory.readout.bias",
        ".memory.readout.weight",
    ]
    for covariance in ("dense", "diagonal"):
        laplace = names(rl.LaplacePosterior(memory, covariance=covariance, window=3))
        assert list(laplace) == list(point)
        assert all(laplace[name] is point[name] for name in point)
        variational = names(rl.VariationalPosterior(memory, covariance=covariance, key=jax.random.key(0)))
        assert all(variational[name] is point[name] for name in point)
        heads = {name.split(".")[1] for name in set(variational) - set(point)}
        assert heads == {"log_eigenvalue_head", *(["rotation_head"] if covariance == "dense" else [])}


def test_options_are_static():
    structure = jax.tree.structure(rl.LaplacePosterior(memory_of()))
    assert structure == jax.tree.structure(rl.LaplacePosterior(memory_of()))
    options = {"covariance": "diagonal", "accumulate": "none", "window": 2, "forgetting": 0.5}
    options |= {"prior_stddev": 2.0, "damping_precision": 2.0}
    for name, value in options.items():
        assert structure != jax.tree.structure(rl.LaplacePosterior(memory_of(), **{name: value}))


def test_a_posterior_can_be_built_in_a_traced_function():
    key = jax.random.key(4)
    step = lambda h, x: jnp.tanh(h + jnp.sum(x))

    @jax.jit
    def traced(memory, start, key):
        own = rl.Memory(rl.GRU(D, H, key=key), features=F, key=key)
        posteriors = (
            rl.PointPosterior(memory),
            rl.LaplacePosterior(memory, covariance="diagonal"),
            rl.VariationalPosterior(memory, covariance="diagonal", key=key),
            rl.LaplacePosterior(own, covariance="diagonal"),
            rl.LaplacePosterior(
                rl.Memory(rl.Autodiff(step, start, input_size=D)), covariance="diagonal", window=2
            ),
        )
        return [posterior.unroll(inputs_of(2)).mean for posterior in posteriors]

    *shared, own, autodiff = traced(memory_of(), jnp.ones(H), key)
    for mean in shared:
        assert_near(mean, rl.PointPosterior(memory_of()).unroll(inputs_of(2)).mean)
    assert_near(own, rl.Memory(rl.GRU(D, H, key=key), features=F, key=key).unroll(inputs_of(2)).features)
    assert_near(autodiff[0], np.tanh(1 + np.full(H, inputs_of(2)[0].sum())))


@pytest.mark.parametrize(
    "build",
    [
        functools.partial(laplace, covariance="diagonal", window=2),
        functools.partial(variational, covariance="diagonal"),
        rl.PointPosterior,
    ],
    ids=["laplace", "variational", "point"],
)
def test_compiles_once(build):
    traces = []

    @jax.jit
    def unroll(posterior, inputs):
        traces.append("unroll")
        return posterior.unroll(inputs)

    @jax.jit
    def update(posterior, state, x, reset):
        traces.append("update")
        return posterior.update(state, x, reset)

    state = build(memory_of()).init()
    for i in range(3):
        # A new object with other weights: only shapes and options may cause a trace.
        posterior = build(jax.tree.map(lambda leaf: leaf * (1 + i), memory_of()))  # noqa: B023
        unroll(posterior, inputs_of() + i)
        state, _ = update(posterior, state, inputs_of()[i], jnp.array(i == 1))
    assert sorted(traces) == ["unroll", "update"]
    unroll(build(memory_of()), inputs_of(2))
    assert sorted(traces) == ["unroll", "unroll", "update"]


# Consecutive divergences


@pytest.mark.parametrize(
    ("kind", "with_resets"), [*((kind, True) for kind in POSTERIORS), ("laplace-dense", False)]
)
def test_consecutive_kl_is_a_loop_from_the_prior(kind, with_resets):
    posterior = POSTERIORS[kind](memory_of())
    resets = jnp.array(RESETS) if with_resets else None

    @jax.jit
    def both(posterior):
        beliefs = posterior.unroll(inputs_of(), resets)
        return beliefs, posterior.consecutive_kl(beliefs, resets)

    beliefs, actual = both(posterior)
    prior = rl.DiagonalGaussian(jnp.zeros(F), jnp.full(F, 4.0))
    starts = {0, *np.flatnonzero(RESETS)} if with_resets else {0}
    expected = [kl_by_hand(beliefs[t], prior if t in starts else beliefs[t - 1]) for t in range(T)]
    assert_near(actual, np.array(expected))
    assert min(expected) > 0


@pytest.mark.parametrize("kind", ["variational-dense", "laplace-dense"])
def test_consecutive_kl_stops_the_gradient_at_the_past(kind):
    posterior = POSTERIORS[kind](memory_of())
    resets = jnp.array(RESETS)
    beliefs = posterior.unroll(inputs_of(), resets)
    prior = posterior.prior()
    frozen = [prior if RESETS[t] or t == 0 else beliefs[t - 1] for t in range(T)]
    frozen = jax.tree.map(lambda *leaves: jnp.stack(leaves), *frozen)

    actual = jax.jit(jax.grad(lambda beliefs: jnp.sum(posterior.consecutive_kl(beliefs, resets))))(beliefs)
    expected = jax.jit(jax.grad(lambda beliefs: jnp.sum(beliefs.kl(frozen))))(beliefs)
    assert min(np.abs(leaf).max() for leaf in jax.tree.leaves(expected)) > 1e-3
    assert_near(actual, expected)


# Reused beliefs


@pytest.mark.parametrize(
    ("kind", "with_resets"),
    [*((kind, True) for kind in [*POSTERIORS, "point"]), ("variational-dense", False)],
)
def test_reused_beliefs_have_the_values_and_gradients_of_unrolled(kind, with_resets):
    posterior = (POSTERIORS | {"point": rl.PointPosterior})[kind](memory_of())
    inputs, resets = inputs_of(), jnp.array(RESETS) if with_resets else None
    noise = jax.random.normal(jax.random.key(5), (2, T, F))

    def loss(posterior, inputs, reuse):
        inference = posterior.infer(inputs, resets, reuse)
        beliefs, carries = inference.belief, jax.tree.leaves(inference.trace.carries)
        total = jnp.sum(jnp.sin(beliefs.perturb(noise))) + jnp.sum(carries[0])
        if kind != "point":
            total += jnp.sum(posterior.consecutive_kl(beliefs)) + jnp.sum(beliefs.entropy())
        return total, (beliefs, inference.info)

    known = posterior.unroll(inputs, resets)
    differentiate = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))
    assert_near(differentiate(posterior, inputs, known), differentiate(posterior, inputs, None))


@pytest.mark.parametrize("kind", ["laplace-dense", "variational-dense"])
def test_costly_parts_come_from_reused_beliefs(kind):
    posterior = POSTERIORS[kind](memory_of())
    known = posterior.unroll(inputs_of())
    marked = jax.tree.map(lambda leaf: leaf + 1, known)
    beliefs = posterior.infer(inputs_of(), reuse=marked).belief
    costly = (lambda b: b.precision_cholesky) if kind == "laplace-dense" else lambda b: b.basis
    np.testing.assert_array_equal(costly(beliefs), costly(marked))
    assert_near(beliefs.mean, known.mean)


def test_reused_beliefs_of_other_inputs_are_refused():
    posterior = POSTERIORS["laplace-dense"](memory_of())
    with pytest.raises(ValueError, match=r"reuse\.mean must have shape \(7, 4\); got \(6, 4\)"):
        posterior.infer(inputs_of(), reuse=posterior.unroll(inputs_of(T - 1)))


# Cost


def products_in(jaxpr) -> int:
    """Multiplications of a program, in matrix products and elementwise; loops count times their length."""
    total = 0
    for equation in jaxpr.eqns:
        name, out = equation.primitive.name, equation.outvars[0].aval
        if name == "dot_general":
            (contract, _), _ = equation.params["dimension_numbers"]
            total += out.size * math.prod(equation.invars[0].aval.shape[axis] for axis in contract)
        elif name in ("mul", "div", "integer_pow"):
            total += out.size if jnp.issubdtype(out.dtype, jnp.floating) else 0
        times = equation.params.get("length", 1) if name == "scan" else 1
        for inner in jax.tree.leaves(
            list(equation.params.values()),
            is_leaf=lambda leaf: hasattr(leaf, "eqns") or hasattr(leaf, "jaxpr"),
        ):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                total += times * products_in(inner)
    return total


def test_counted_multiplications_are_those_of_xla():
    """XLA counts the body of a loop once, so the test has no loop."""
    a, b = jnp.ones((30, 40)), jnp.ones((40, 50))
    product = lambda a, b: a @ b
    flops = jax.jit(product).lower(a, b).compile().cost_analysis()["flops"]
    assert flops == 2 * products_in(jax.make_jaxpr(product)(a, b).jaxpr) == 2 * 30 * 40 * 50


def likelihood(memory, **options):
    """Likelihood posterior of a head with two hidden layers and three outputs."""
    head = Head.init(memory.feature_size + 2, (48, 48), 3, layer_norm=False, key=jax.random.key(0))
    head = jax.tree.map(lambda leaf: leaf.astype(memory.dtype), head)
    predictor = rl.Predictor(head, rl.CategoricalLikelihood(3), context_size=2)
    return rl.LikelihoodPosterior(memory, predictor, **options)


@pytest.mark.parametrize(
    "build",
    [
        rl.PointPosterior,
        functools.partial(rl.LaplacePosterior, covariance="diagonal"),
        rl.LaplacePosterior,
        functools.partial(rl.LaplacePosterior, accumulate="none", window=10),
        functools.partial(rl.LaplacePosterior, accumulate="none", window=None),
        functools.partial(rl.VariationalPosterior, key=jax.random.key(0)),
        functools.partial(rl.ConjugatePosterior, key=jax.random.key(0)),
        likelihood,
        functools.partial(likelihood, covariance="diagonal"),
        functools.partial(likelihood, accumulate="none", window=None),
    ],
    ids=[
        *("point", "diagonal", "dense", "window", "all-history", "variational", "conjugate", "likelihood"),
        *("likelihood-diagonal", "likelihood-history"),
    ],
)
def test_cost_is_within_a_factor_of_two(build):
    batch, steps = 8, 20
    key = jax.random.key(0)
    memory = rl.Memory(rl.LSTM(32, 64, dtype=jnp.float32, key=key), features=32, key=key)
    posterior = build(memory)
    inputs = jnp.zeros((batch, steps, 32), jnp.float32)

    def unroll_batch(posterior, inputs):
        queries = None if posterior.query_size is None else inputs[..., : posterior.query_size]
        return jax.vmap(lambda x, query: posterior.unroll(x, queries=query))(inputs, queries)

    cost = posterior.cost(steps, batch)
    counted = products_in(jax.make_jaxpr(unroll_batch)(posterior, inputs).jaxpr)
    sizes = jax.jit(unroll_batch).lower(posterior, inputs).compile().memory_analysis()
    allocated = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    print(f"multiplications {cost.multiplications / counted:.2f}, bytes {cost.bytes / allocated:.2f}")
    assert 0.5 <= cost.multiplications / counted <= 2
    assert 0.5 <= cost.bytes / allocated <= 2


def test_cost_grows_with_its_arguments():
    posterior = rl.LaplacePosterior(memory_of())
    one, two = posterior.cost(10), posterior.cost(10, batch=2)
    assert two.multiplications == 2 * one.multiplications
    assert posterior.cost(20).multiplications == 2 * one.multiplications
    assert one.bytes < two.bytes < 2 * one.bytes
    assert "multiplications, " in str(one)
