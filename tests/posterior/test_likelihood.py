"""Likelihood posterior: exact where it must be, and against sums over Jacobians in NumPy."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.posteriors import assert_near, assert_same_beliefs
from support.registry import assert_close, memories

import recurrent_laplace as rl
from recurrent_laplace.models.layers import Head

D, H, F, T, C = 3, 5, 4, 7, 2
RESETS = np.array([False, False, False, True, False, True, False])
RANDOM = np.random.default_rng(1)
INPUTS = jnp.asarray(RANDOM.normal(size=(T, D)))
QUERIES = jnp.asarray(RANDOM.normal(size=(T, C))).at[jnp.array([0, 3])].set(jnp.nan)
LIKELIHOODS = {
    "gaussian": rl.GaussianLikelihood(jnp.log(jnp.array([0.5, 2.0]))),
    "bernoulli": rl.BernoulliLikelihood(2),
    "categorical": rl.CategoricalLikelihood(3),
    "joint": rl.JointLikelihood(("reward", "tile"), (rl.BernoulliLikelihood(1), rl.CategoricalLikelihood(3))),
}
FORMS = {
    "accumulated": {"accumulate": "precision"},
    "forgetting": {"accumulate": "precision", "forgetting": 0.7},
    "window": {"accumulate": "none", "window": 3},
    "history": {"accumulate": "none", "window": None},
}
MEMORY = rl.Memory(rl.LSTM(D, H, key=jax.random.key(0)), features=F, key=jax.random.key(1))


def predictor_of(likelihood, *, features=F, actions=0, dtype=jnp.float64):
    sizes = (max(actions, 1) * likelihood.size, (6,))
    head = Head.init(features + C - actions, sizes[1], sizes[0], layer_norm=True, key=jax.random.key(2))
    head, likelihood = jax.tree.map(lambda leaf: leaf.astype(dtype), (head, likelihood))
    return rl.Predictor(head, likelihood, context_size=C - actions, actions=actions)


def posterior_of(likelihood="joint", memory=MEMORY, **options):
    return rl.LikelihoodPosterior(memory, predictor_of(LIKELIHOODS[likelihood]), **options)


@eqx.filter_jit
def unroll(posterior, inputs, resets, queries):
    return posterior.infer(inputs, resets, queries=queries)


@eqx.filter_jit
def step(posterior, state, x, reset, query):
    return posterior.infer_step(state, x, reset, query=query)


def updates(posterior, inputs, resets, queries):
    state, results = posterior.init(capacity=T), []
    for x, reset, query in zip(inputs, resets, queries, strict=True):
        state, inference = step(posterior, state, x, jnp.asarray(reset), query)
        results.append(inference)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *results)


# Exact cases


@pytest.mark.parametrize("form", ["accumulated", "history"])
def test_linear_head_is_bayesian_linear_regression(form):
    """Precisions and predictions of `y = f(x)^T z + noise` with a Gaussian prior on z."""
    noise, prior, weight = 0.3, 2.0, RANDOM.normal(size=(F, C))
    predictor = rl.Predictor(
        lambda z, x: (jnp.tanh(jnp.asarray(weight) @ x) @ z)[None],
        rl.GaussianLikelihood(jnp.log(jnp.full(1, noise))),
        context_size=C,
    )
    posterior = rl.LikelihoodPosterior(MEMORY, predictor, prior_stddev=prior, **FORMS[form])
    queries = RANDOM.normal(size=(T, C))
    beliefs = posterior.unroll(INPUTS, queries=jnp.asarray(queries))
    design = np.tanh(queries @ weight.T)
    for t in range(T):
        precision = np.eye(F) / prior**2 + design[: t + 1].T @ design[: t + 1] / noise**2
        assert_near(beliefs[t].precision(), precision)
        predictive = posterior.predict(beliefs[t], jnp.asarray(queries[0]))
        variance = noise**2 + design[0] @ np.linalg.inv(precision) @ design[0]
        assert_close(predictive.variance(), np.array([variance]))
        assert_close(predictive.mean(), np.array([design[0] @ np.asarray(beliefs.mean[t])]))


@pytest.mark.parametrize("likelihood", ["bernoulli", "categorical"])
def test_curvature_at_the_mode_of_newton(likelihood):
    """One observation: the features are the mode that Newton's iteration finds, with the same Hessian."""
    family = LIKELIHOODS[likelihood]
    weight = jnp.asarray(RANDOM.normal(size=(family.size, F)))
    predictor = rl.Predictor(lambda z, x: weight @ (x[0] * z), family, context_size=1)
    query, target = jnp.array([1.5]), jnp.eye(family.size)[1]

    def energy(z):
        return 0.5 * jnp.sum(z**2) / 0.8**2 - family.log_prob(predictor(z, query), target)

    hessian, gradient, z = jax.jit(jax.hessian(energy)), jax.jit(jax.grad(energy)), np.zeros(F)
    for _ in range(50):
        z = z - np.linalg.solve(hessian(z), gradient(z))
    assert np.abs(gradient(z)).max() < 1e-12
    # A memory that has found the mode.
    readout = rl.Affine(jnp.zeros((F, H)), jnp.asarray(z))
    memory = rl.Memory(MEMORY.cell, readout=readout)
    posterior = rl.LikelihoodPosterior(memory, predictor, prior_stddev=0.8)
    _, belief = posterior.update(posterior.init(), jnp.ones(D), query=query)
    assert_near((belief.mean, belief.precision()), (z, hessian(z)))


# Sums by hand


# The diagonal is taken of the same terms, whatever their likelihood.
@pytest.mark.parametrize(
    ("likelihood", "covariance"), [*((name, "dense") for name in LIKELIHOODS), ("joint", "diagonal")]
)
@pytest.mark.parametrize("form", FORMS)
def test_precision_is_the_sum_over_answered_queries(form, likelihood, covariance):
    options = FORMS[form] | {"covariance": covariance, "prior_stddev": 0.5, "noise_scale": 1.5}
    posterior = posterior_of(likelihood, **options)
    results = [run(posterior, INPUTS, RESETS, QUERIES) for run in (unroll, updates)]
    features = np.asarray(results[0].belief.mean)
    terms = np.asarray(information(posterior.predictor, features, np.nan_to_num(QUERIES))) / 1.5**2
    prior, total, start = 4 * np.eye(F), 4 * np.eye(F), 0
    for t in range(T):
        if RESETS[t]:
            total, start = prior, t
        if form == "history":
            answered = range(start, t + 1)
        else:
            answered = range(max(start, t - 2), t + 1) if form == "window" else [t]
        new = sum(terms[t, i] for i in answered if not np.isnan(QUERIES[i]).any())
        if options["accumulate"] == "precision":
            g = posterior.forgetting
            total = g * total + (1 - g) * prior + new
        else:
            total = prior + new
        expected = np.diag(total) if covariance == "diagonal" else total
        for inference in results:
            assert inference.info.problems() == []
            assert_near(inference.belief[t].precision(), expected)
            assert_near(inference.belief.mean[t], features[t])


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0, None))
@functools.partial(jax.vmap, in_axes=(None, None, 0))
def information(predictor, z, query):
    """Gauss-Newton term, with minus the expected Hessian of the log-likelihood as Fisher information."""
    outputs = predictor(z, query)
    jacobian = jax.jacfwd(lambda z: predictor(z, query))(z)
    target = predictor.likelihood.mean(outputs)
    fisher = -jax.hessian(lambda o: predictor.likelihood.log_prob(o, target))(outputs)
    return jacobian.T @ fisher @ jacobian


# Terms depend on the features alone, not on the cell that they are from.
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("lstm-no-bias", jnp.float64), ("gru-readout", jnp.float32), ("autodiff-readout", jnp.float64)],
)
def test_unroll_is_repeated_update(name, dtype):
    memory = memories(D, H, F, dtype, jax.random.key(5))[name]
    predictor = predictor_of(LIKELIHOODS["bernoulli"], features=memory.feature_size, actions=1, dtype=dtype)
    posterior = rl.LikelihoodPosterior(memory, predictor, accumulate="none", window=2)
    arguments = (jnp.asarray(INPUTS, dtype), RESETS, jnp.asarray(QUERIES, dtype))
    whole, stepped = (run(posterior, *arguments).belief for run in (unroll, updates))
    assert_same_beliefs(stepped, whole, dtype.__name__)


def test_a_query_selects_an_action():
    likelihood = rl.GaussianLikelihood(jnp.zeros(1))
    head = lambda z, x: jnp.stack([z[0], 2 * z[1], 3 * z[2]])
    predictor = rl.Predictor(head, likelihood, actions=3)
    posterior = rl.LikelihoodPosterior(MEMORY, predictor)
    actions = jnp.array([0, 2, 2, 1])
    beliefs = posterior.unroll(jnp.asarray(INPUTS[:4]), queries=predictor.query(None, actions))
    assert_near(beliefs[-1].precision(), np.diag([2.0, 1 + 4.0, 1 + 2 * 9.0, 1.0]))


def test_history_grows():
    posterior = posterior_of(accumulate="none", window=None, covariance="diagonal")
    inputs, queries = (jnp.tile(array, (2, 1)) for array in (INPUTS, QUERIES))
    state = posterior.init(capacity=2)
    for x, query in zip(inputs, queries, strict=True):
        state, belief = posterior.update(state, x, query=query)
    assert posterior.capacity(state) == 16
    assert_same_beliefs(belief, posterior.unroll(inputs, queries=queries)[-1])


def test_gradients_reach_the_mean_alone():
    posterior = posterior_of("bernoulli")

    def loss(posterior, noise):
        beliefs = posterior.unroll(INPUTS, queries=QUERIES)
        return jnp.sum(jnp.sin(beliefs.perturb(noise))) + jnp.sum(beliefs.entropy())

    noise = jax.random.normal(jax.random.key(3), (T, F))
    gradient = jax.jit(jax.grad(loss))(posterior, noise)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(gradient.predictor)) == 0
    assert min(np.abs(leaf).max() for leaf in jax.tree.leaves(gradient.memory)) > 1e-6


def test_reused_beliefs():
    posterior = posterior_of("bernoulli")
    arguments = {"queries": QUERIES}
    known = posterior.unroll(INPUTS, **arguments)
    again = posterior.infer(INPUTS, reuse=known, **arguments).belief
    assert_same_beliefs(again, known)


# Bad input


def test_queries_are_checked():
    posterior, laplace = posterior_of(), rl.LaplacePosterior(MEMORY)
    with pytest.raises(ValueError, match=r"queries must be given to a LikelihoodPosterior: .* 2 entries"):
        posterior.unroll(INPUTS)
    with pytest.raises(ValueError, match="query must be given to a LikelihoodPosterior"):
        posterior.update(posterior.init(), INPUTS[0])
    with pytest.raises(ValueError, match=r"queries must have shape \(7, 2\); got \(7, 3\)"):
        posterior.unroll(INPUTS, queries=INPUTS)
    with pytest.raises(ValueError, match="queries must be left out, since a LaplacePosterior takes none"):
        laplace.unroll(INPUTS, queries=QUERIES)


def test_a_partly_missing_query_is_reported():
    queries = QUERIES.at[4, 1].set(jnp.nan)
    info = unroll(posterior_of(), INPUTS, RESETS, queries).info
    assert info.problems()[0] == "the input has NaN or infinity, first at step 4 (1 of 7)"
    np.testing.assert_array_equal(info.finite_belief, np.arange(T) != 4)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"covariance": "round"}, "covariance must be one of"),
        ({"accumulate": "mean_and_precision"}, "accumulate must be one of 'none', 'precision'"),
        (
            {"window": 2},
            "window must be 1 with accumulate='precision', .*; got 2",
        ),
        ({"accumulate": "none", "window": 0}, "window must be a whole number of at least 1; got 0"),
        ({"prior_stddev": 0.0}, "prior_stddev must be"),
        ({"noise_scale": 0.0}, "noise_scale must be"),
        ({"forgetting": 1.5}, "forgetting must be"),
    ],
)
def test_refused_options(option, message):
    with pytest.raises(ValueError, match=message):
        posterior_of(**option)


def test_refused_heads():
    likelihood = LIKELIHOODS["gaussian"]
    with pytest.raises(ValueError, match=r"head must return outputs of shape \(2,\), .*; got \(4,\)"):
        rl.LikelihoodPosterior(MEMORY, rl.Predictor(lambda z, x: z, likelihood, context_size=C))
    with pytest.raises(ValueError, match=r"head must take 4 features and a context of length 2; it fails: "):
        rl.LikelihoodPosterior(MEMORY, rl.Predictor(lambda z, x: z + x, likelihood, context_size=C))
    with pytest.raises(ValueError, match=r"predictor must be an rl.Predictor, .*; got a function"):
        rl.LikelihoodPosterior(MEMORY, lambda z, x: z)
    with pytest.raises(ValueError, match=r"likelihood must be an AbstractLikelihood, .*; got a str"):
        rl.Predictor(lambda z, x: z, "gaussian")
