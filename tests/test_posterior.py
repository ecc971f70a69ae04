"""What all posteriors share: the variational and the point one, KLs in time, pytrees, costs."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recurrent_laplace as rl

D, H, F, T = 3, 5, 4, 7
RESETS = np.array([False, False, False, True, False, True, False])


@functools.cache
def memory_of(features=F) -> rl.Memory:
    key, other = jax.random.split(jax.random.key(0))
    return rl.Memory(rl.LSTM(D, H, key=key), features=features, key=other)


def inputs_of(steps=T):
    return jax.random.normal(jax.random.key(1), (steps, D))


def close(actual, expected):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-10 * max(np.abs(expected).max(), 1e-300))


POSTERIORS = {
    "laplace-dense": lambda memory: rl.LaplacePosterior(memory, prior_stddev=0.5),
    "laplace-diagonal": lambda memory: rl.LaplacePosterior(
        memory, covariance="diagonal", accumulate="mean_and_precision", prior_stddev=0.5
    ),
    "variational-dense": lambda memory: rl.VariationalPosterior(
        memory, prior_stddev=0.5, key=jax.random.key(3)
    ),
    "variational-diagonal": lambda memory: rl.VariationalPosterior(
        memory, covariance="diagonal", prior_stddev=0.5, key=jax.random.key(3)
    ),
}


# The variational posterior


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


def test_an_untrained_variational_head_is_as_wide_as_the_prior():
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
    # One eigenvalue below the range, one above, the others in it.
    bias = jnp.zeros(memory.feature_size).at[0].set(-50.0).at[1].set(50.0)
    posterior = eqx.tree_at(lambda posterior: posterior.log_eigenvalue_head.bias, posterior, bias)
    beliefs, info = jax.jit(lambda posterior, *now: posterior.unroll_info(*now))(
        posterior, inputs_of(), jnp.array(RESETS)
    )
    assert info.problems() == []
    step = jax.jit(lambda posterior, *now: posterior.update(*now))
    covariance_of = jax.jit(lambda belief: belief.covariance())
    carry, state = memory.init(), posterior.init()
    for t, x in enumerate(inputs_of()):
        carry, _ = memory.step(memory.init() if RESETS[t] else carry, x)
        mean, expected = variational_by_hand(posterior, np.asarray(carry[0]))
        state, online = step(posterior, state, x, jnp.array(RESETS[t]))
        for belief in (beliefs[t], online):
            actual = covariance_of(belief)
            close(belief.mean, mean)
            close(np.diag(actual) if covariance == "diagonal" else actual, expected)
        eigenvalues = np.linalg.eigvalsh(expected)
        np.testing.assert_allclose([eigenvalues[0], eigenvalues[-1]], np.exp([-10, 2]), rtol=1e-9)


@pytest.mark.parametrize("kind", POSTERIORS)
def test_prior(kind):
    prior = POSTERIORS[kind](memory_of()).prior()
    np.testing.assert_array_equal(prior.mean, np.zeros(F))
    expected = np.full(F, 0.25) if kind.endswith("diagonal") else 0.25 * np.eye(F)
    close(prior.covariance(), expected)
    close(prior.entropy(), F * 0.5 * math.log(2 * math.pi * math.e * 0.25))


def test_variational_has_a_gradient_in_every_parameter():
    def objective(posterior):
        beliefs = posterior.unroll(inputs_of())
        return jnp.sum(posterior.consecutive_kl(beliefs)) + jnp.sum(beliefs.sample(jax.random.key(0)) ** 2)

    gradient = jax.jit(jax.grad(objective))(POSTERIORS["variational-dense"](memory_of()))
    for leaf in jax.tree.leaves(gradient):
        assert np.isfinite(leaf).all()
        assert np.abs(leaf).max() > 1e-6


# The point posterior


def test_point_posterior_is_the_memory():
    memory = memory_of()
    posterior = rl.PointPosterior(memory)
    beliefs, info = posterior.unroll_info(inputs_of(), jnp.array(RESETS))
    assert isinstance(beliefs, rl.PointBelief)
    assert info.problems() == []
    carry, state = memory.init(), posterior.init()
    for t, x in enumerate(inputs_of()):
        carry, phi = memory.step(memory.init() if RESETS[t] else carry, x)
        state, belief = posterior.update(state, x, bool(RESETS[t]))
        close(beliefs[t].mean, phi)
        close(belief.mean, phi)
    with pytest.raises(ValueError, match="point posterior has no prior"):
        posterior.prior()
    with pytest.raises(ValueError, match="point belief has no entropy"):
        beliefs.entropy()


# Pytrees


def test_parameters_are_shared_name_for_name():
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
    one = jax.tree.structure(rl.LaplacePosterior(memory_of()))
    assert one == jax.tree.structure(rl.LaplacePosterior(memory_of()))
    for options in (
        {"covariance": "diagonal"},
        {"accumulate": "none"},
        {"window": 2},
        {"forgetting": 0.5},
        {"prior_stddev": 2.0},
        {"damping_precision": 2.0},
    ):
        assert one != jax.tree.structure(rl.LaplacePosterior(memory_of(), **options))


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

    point, laplace, variational, own, autodiff = traced(memory_of(), jnp.ones(H), key)
    expected = rl.PointPosterior(memory_of()).unroll(inputs_of(2)).mean
    for mean in (point, laplace, variational):
        close(mean, expected)
    close(own, rl.Memory(rl.GRU(D, H, key=key), features=F, key=key).unroll(inputs_of(2)).features)
    close(autodiff[0], np.tanh(1 + np.full(H, inputs_of(2)[0].sum())))


@pytest.mark.parametrize(
    "build",
    [
        lambda memory: rl.LaplacePosterior(memory, covariance="diagonal", window=2),
        lambda memory: rl.VariationalPosterior(memory, covariance="diagonal", key=jax.random.key(0)),
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
        # Built anew, with other weights: only shapes and options may matter.
        posterior = build(jax.tree.map(lambda leaf: leaf * (1 + i), memory_of()))  # noqa: B023
        unroll(posterior, inputs_of() + i)
        state, _ = update(posterior, state, inputs_of()[i], jnp.array(i == 1))
    assert sorted(traces) == ["unroll", "update"]
    unroll(build(memory_of()), inputs_of(2))
    assert sorted(traces) == ["unroll", "unroll", "update"]


# KLs in time


def kl_by_hand(mean, precision, other_mean, other_precision):
    d = mean - other_mean
    log_det = np.linalg.slogdet(precision)[1] - np.linalg.slogdet(other_precision)[1]
    trace = np.trace(other_precision @ np.linalg.inv(precision))
    return 0.5 * (trace - len(mean) + d @ other_precision @ d + log_det)


@pytest.mark.parametrize("with_resets", [False, True])
@pytest.mark.parametrize("kind", POSTERIORS)
def test_consecutive_kl_is_a_loop_from_the_prior(kind, with_resets):
    posterior = POSTERIORS[kind](memory_of())
    resets = jnp.array(RESETS) if with_resets else None

    @jax.jit
    def both(posterior):
        beliefs = posterior.unroll(inputs_of(), resets)
        return beliefs, posterior.consecutive_kl(beliefs, resets)

    beliefs, actual = both(posterior)
    precision = np.asarray(beliefs.precision())
    if precision.ndim == 2:
        precision = np.stack([np.diag(row) for row in precision])
    prior = np.zeros(F), 4 * np.eye(F)
    previous, expected = prior, []
    for t in range(T):
        if with_resets and RESETS[t]:
            previous = prior
        now = np.asarray(beliefs.mean[t]), precision[t]
        expected.append(kl_by_hand(*now, *previous))
        previous = now
    close(actual, expected)
    assert min(expected) > 0


@pytest.mark.parametrize("kind", ["variational-dense", "laplace-dense"])
def test_consecutive_kl_stops_the_gradient_at_the_past(kind):
    posterior = POSTERIORS[kind](memory_of())
    resets = jnp.array(RESETS)
    beliefs = posterior.unroll(inputs_of(), resets)
    prior = posterior.prior()
    frozen = [prior if RESETS[t] or t == 0 else beliefs[t - 1] for t in range(T)]
    frozen = jax.tree.map(lambda *leaves: jnp.stack(leaves), *frozen)

    @jax.jit
    def gradients(beliefs):
        return (
            jax.grad(lambda beliefs: jnp.sum(posterior.consecutive_kl(beliefs, resets)))(beliefs),
            jax.grad(lambda beliefs: jnp.sum(beliefs.kl(frozen)))(beliefs),
        )

    actual, expected = gradients(beliefs)
    for leaf, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert np.abs(other).max() > 1e-3
        close(leaf, other)


# A second time


@pytest.mark.parametrize("kind", [*POSTERIORS, "point"])
def test_unrolled_again_has_the_values_and_gradients_of_unrolled(kind):
    posterior = (POSTERIORS | {"point": rl.PointPosterior})[kind](memory_of())
    inputs = inputs_of()
    noise = jax.random.normal(jax.random.key(5), (2, T, F))

    def loss(posterior, inputs, unroll):
        trace, beliefs, info = unroll(posterior)(inputs)
        total = jnp.sum(jnp.sin(beliefs.perturb(noise))) + jnp.sum(jax.tree.leaves(trace.carries)[0])
        if kind != "point":
            total += jnp.sum(posterior.consecutive_kl(beliefs)) + jnp.sum(beliefs.entropy())
        return total, (beliefs, info)

    known = posterior.unroll(inputs)
    differentiate = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True), static_argnames="unroll")
    once = differentiate(posterior, inputs, unroll=lambda p: p.unroll_trace)
    again = differentiate(posterior, inputs, unroll=lambda p: lambda x: p.unroll_again(x, known))
    for actual, expected in zip(jax.tree.leaves(again), jax.tree.leaves(once), strict=True):
        close(actual, expected)


@pytest.mark.parametrize("kind", ["laplace-dense", "variational-dense"])
def test_unrolled_again_takes_what_is_costly_from_the_known(kind):
    posterior = POSTERIORS[kind](memory_of())
    known = posterior.unroll(inputs_of())
    marked = jax.tree.map(lambda leaf: leaf + 1, known)
    _, beliefs, _ = posterior.unroll_again(inputs_of(), marked)
    costly = (lambda b: b.precision_cholesky) if kind == "laplace-dense" else lambda b: b.basis
    np.testing.assert_array_equal(costly(beliefs), costly(marked))
    close(beliefs.mean, known.mean)


def test_unrolled_again_refuses_beliefs_of_other_inputs():
    posterior = POSTERIORS["laplace-dense"](memory_of())
    with pytest.raises(ValueError, match=r"known\.mean"):
        posterior.unroll_again(inputs_of(), posterior.unroll(inputs_of(T - 1)))


# Cost


def products_in(jaxpr) -> int:
    """Multiplications of a program: of matrix products and elementwise ones, loops times their length."""
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


def test_the_counter_counts_as_xla_does():
    """XLA counts the body of a loop once, so its count serves where there is none."""
    a, b = jnp.ones((30, 40)), jnp.ones((40, 50))
    product = lambda a, b: a @ b
    flops = jax.jit(product).lower(a, b).compile().cost_analysis()["flops"]
    assert flops == 2 * products_in(jax.make_jaxpr(product)(a, b).jaxpr) == 2 * 30 * 40 * 50


@pytest.mark.parametrize(
    "build",
    [
        rl.PointPosterior,
        functools.partial(rl.LaplacePosterior, covariance="diagonal"),
        rl.LaplacePosterior,
        functools.partial(rl.LaplacePosterior, accumulate="none", window=10),
        functools.partial(rl.LaplacePosterior, accumulate="none", window=None),
        functools.partial(rl.VariationalPosterior, key=jax.random.key(0)),
    ],
    ids=["point", "diagonal", "dense", "window", "all-history", "variational"],
)
def test_cost_is_within_a_factor_of_two(build):
    batch, steps = 8, 20
    key = jax.random.key(0)
    memory = rl.Memory(rl.LSTM(32, 64, dtype=jnp.float32, key=key), features=32, key=key)
    posterior = build(memory)
    inputs = jnp.zeros((batch, steps, 32), jnp.float32)

    def unroll(posterior, inputs):
        return jax.vmap(posterior.unroll)(inputs)

    cost = posterior.cost(steps, batch)
    counted = products_in(jax.make_jaxpr(unroll)(posterior, inputs).jaxpr)
    sizes = jax.jit(unroll).lower(posterior, inputs).compile().memory_analysis()
    held = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    print(f"multiplications {cost.multiplications / counted:.2f}, bytes {cost.bytes / held:.2f}")
    assert 0.5 <= cost.multiplications / counted <= 2
    assert 0.5 <= cost.bytes / held <= 2


def test_cost_grows_with_its_arguments():
    posterior = rl.LaplacePosterior(memory_of())
    one, two = posterior.cost(10), posterior.cost(10, batch=2)
    assert two.multiplications == 2 * one.multiplications
    assert posterior.cost(20).multiplications == 2 * one.multiplications
    assert one.bytes < two.bytes < 2 * one.bytes
    assert "multiplications, " in str(one)
    with pytest.raises(ValueError, match="steps must be a whole number of at least 1; got 0"):
        posterior.cost(0)
