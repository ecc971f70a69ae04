"""Likelihoods of targets against SciPy, and predictions through a head."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
import scipy.special
import scipy.stats
from support.gaussians import moments
from support.registry import assert_close, beliefs

import recurrent_laplace as rl

K = 3
RANDOM = np.random.default_rng(0)
STDDEV = np.array([0.5, 1.0, 2.0])
OUTPUTS = RANDOM.normal(size=(4, K))
LIKELIHOODS = {
    "gaussian": rl.GaussianLikelihood(jnp.log(jnp.asarray(STDDEV))),
    "bernoulli": rl.BernoulliLikelihood(K),
    "categorical": rl.CategoricalLikelihood(K),
}
TARGETS = {
    "gaussian": RANDOM.normal(size=(4, K)),
    "bernoulli": RANDOM.integers(2, size=(4, K)).astype(float),
    "categorical": np.eye(K)[[0, 2, 1, 1]],
}


def scipy_log_prob(name, outputs, target):
    if name == "gaussian":
        return scipy.stats.norm(outputs, STDDEV).logpdf(target).sum(-1)
    if name == "bernoulli":
        return scipy.stats.bernoulli(scipy.special.expit(outputs)).logpmf(target).sum(-1)
    chance = scipy.special.softmax(outputs, axis=-1)
    return np.array([scipy.stats.multinomial(1, p).logpmf(y) for p, y in zip(chance, target, strict=True)])


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_likelihoods_against_scipy(name):
    likelihood, target, outputs = LIKELIHOODS[name], jnp.asarray(TARGETS[name]), jnp.asarray(OUTPUTS)
    assert likelihood.size == K
    log_prob = likelihood.log_prob(outputs, target)
    assert_close(log_prob, scipy_log_prob(name, OUTPUTS, target))
    mean, variance = likelihood.mean(outputs), likelihood.variance(outputs)
    if name == "gaussian":
        assert_close((mean, variance), (OUTPUTS, np.tile(STDDEV**2, (4, 1))))
        assert_close(likelihood.deviance(outputs, target), ((OUTPUTS - target) ** 2).sum(-1))
        assert_close(likelihood.with_noise(2.0).variance(outputs), np.tile(4 * STDDEV**2, (4, 1)))
    else:
        chance = scipy.special.expit(OUTPUTS) if name == "bernoulli" else scipy.special.softmax(OUTPUTS, -1)
        assert_close((mean, variance), (chance, chance * (1 - chance)))
        assert_close(
            likelihood.deviance(outputs, target),
            -2 * scipy_log_prob(name, OUTPUTS, target),
        )
    if name == "gaussian":
        entropy = scipy.stats.norm(0, STDDEV).entropy().sum()
    elif name == "bernoulli":
        entropy = scipy.stats.bernoulli(chance).entropy().sum(-1)
    else:
        entropy = scipy.stats.entropy(chance, axis=-1)
    assert_close(likelihood.entropy(outputs), np.broadcast_to(entropy, (4,)))
    # Logits of categories are determined up to a constant.
    assert_close(likelihood.mean(likelihood.outputs_of(mean)), mean)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_fisher_information_is_the_covariance_of_the_score(name):
    likelihood, outputs = LIKELIHOODS[name], jnp.asarray(OUTPUTS[0])
    root = np.asarray(likelihood.fisher_root(outputs))
    fisher = -jax.hessian(lambda o: likelihood.log_prob(o, jnp.asarray(TARGETS[name][0])))(outputs)
    assert_close(root @ root.T, fisher)


def test_joint_likelihood_is_the_product_of_its_parts():
    joint = rl.JointLikelihood(tuple(LIKELIHOODS), tuple(LIKELIHOODS.values()))
    outputs = jnp.asarray(RANDOM.normal(size=(4, 3 * K)))
    target = jnp.asarray(np.concatenate(list(TARGETS.values()), axis=-1))
    parts = zip(LIKELIHOODS.values(), joint.split(outputs), joint.split(target), strict=True)
    parts = list(parts)
    assert_close(joint.log_prob(outputs, target), sum(p.log_prob(o, y) for p, o, y in parts))
    assert_close(joint.deviance(outputs, target), sum(p.deviance(o, y) for p, o, y in parts))
    assert_close(joint.entropy(outputs), sum(p.entropy(o) for p, o, _ in parts))
    root = joint.fisher_root(outputs[0])
    blocks = [np.asarray(p.fisher_root(o[0])) for p, o, _ in parts]
    assert_close(root, scipy.linalg.block_diag(*blocks))
    for method in ("mean", "variance"):
        expected = np.concatenate([getattr(p, method)(o) for p, o, _ in parts], axis=-1)
        assert_close(getattr(joint, method)(outputs), expected)
    assert_close(joint.mean(joint.outputs_of(joint.mean(outputs))), joint.mean(outputs))
    with pytest.raises(ValueError, match=r"parts must have one likelihood for each of 1 names.*; got 0"):
        rl.JointLikelihood(("reward",), ())


def test_integrated_bernoulli_is_near_the_integral():
    likelihood = rl.BernoulliLikelihood(1)
    for mean, variance in ((0.5, 0.3), (-1.0, 2.0), (3.0, 9.0)):
        outputs, same = likelihood.integrate(jnp.array([mean]), jnp.array([variance]))
        normal = scipy.stats.norm(mean, variance**0.5)
        exact, _ = scipy.integrate.quad(
            lambda o, normal=normal: scipy.special.expit(o) * normal.pdf(o), -40, 40
        )
        # MacKay's approximation has an error of up to about 0.01.
        assert same.mean(outputs)[0] == pytest.approx(exact, abs=0.02)
        assert abs(exact - scipy.special.expit(mean)) > 0.003


def head(z, x):
    return jnp.stack([z[..., 0] * x[..., 0], z[..., 1] + z[..., 2]], axis=-1)


@pytest.mark.parametrize("family", ["point", "diagonal", "dense", "spectral"])
def test_linearised_prediction_of_a_linear_head_is_exact(family):
    belief = beliefs((2,), 4, jnp.float64, jax.random.key(1))[family]
    predictor = rl.Predictor(head, rl.GaussianLikelihood(jnp.log(jnp.array([0.5, 2.0]))), context_size=1)
    query = jnp.array([[2.0], [-1.0]])
    predictive = predictor.predict(belief, query)
    covariance = np.zeros((2, 4, 4)) if family == "point" else moments(belief)[1]
    for i, x in enumerate(query[:, 0]):
        g = np.array([[x, 0, 0, 0], [0, 1, 1, 0]])
        variance = np.diag(g @ covariance[i] @ g.T) + np.array([0.25, 4])
        assert_close(predictive.variance()[i], variance)
        assert_close(predictive.stddev()[i], np.sqrt(variance))
        assert_close(predictive.mean()[i], g @ np.asarray(belief.mean[i]))
        y = jnp.array([0.3, -0.7])
        normal = scipy.stats.norm(g @ np.asarray(belief.mean[i]), np.sqrt(variance))
        assert_close(predictive.log_prob(y)[i], normal.logpdf(y).sum())


def test_sampled_prediction_tends_to_the_exact_one():
    samples = 20_000
    belief = beliefs((2,), 4, jnp.float64, jax.random.key(1))["dense"]
    predictor = rl.Predictor(head, rl.GaussianLikelihood(jnp.log(jnp.array([0.5, 2.0]))), context_size=1)
    query = jnp.array([[2.0], [-1.0]])
    exact = predictor.predict(belief, query)
    sampled = predictor.predict(belief, query, samples=samples, key=jax.random.key(2))
    error = np.abs(sampled.mean() - exact.mean())
    assert (error < 5 * exact.stddev() / np.sqrt(samples)).all()
    # The variance of a sample variance of a normal is 2 v^2 / n.
    error = np.abs(sampled.variance() - exact.variance())
    assert (error < 5 * np.sqrt(2 / samples) * exact.variance()).all()


def test_sampled_log_prob_is_that_of_the_mixture():
    belief = beliefs((), 4, jnp.float64, jax.random.key(1))["diagonal"]
    predictor = rl.Predictor(head, rl.BernoulliLikelihood(2), context_size=1)
    predictive = predictor.predict(belief, jnp.ones(1), samples=5, key=jax.random.key(0))
    z = np.asarray(belief.sample(jax.random.key(0), (5,)))
    chance = scipy.special.expit(np.stack([z[:, 0], z[:, 1] + z[:, 2]], axis=-1))
    assert_close(
        predictive.log_prob(jnp.array([1.0, 0.0])), np.log(np.mean(chance[:, 0] * (1 - chance[:, 1])))
    )
    assert_close(predictive.mean(), chance.mean(axis=0))
    # The variance of a mixture of Bernoulli variables is that of its mean.
    assert_close(predictive.variance(), chance.mean(axis=0) * (1 - chance.mean(axis=0)))


def test_predictions_check_their_arguments():
    belief = beliefs((2,), 4, jnp.float64, jax.random.key(1))["dense"]
    predictor = rl.Predictor(head, rl.BernoulliLikelihood(2), context_size=1)
    with pytest.raises(ValueError, match=r"query must have shape \(2, 1\); got \(1,\)"):
        predictor.predict(belief, jnp.ones(1))
    with pytest.raises(ValueError, match="key must be a JAX random key with samples=3; got None"):
        predictor.predict(belief, jnp.ones((2, 1)), samples=3)
    for wrong in (jnp.ones(3), "linear"):
        with pytest.raises(ValueError, match="head must be an Equinox module or a function of z and"):
            rl.Predictor(wrong, rl.GaussianLikelihood(jnp.zeros(1)))


def test_supports():
    targets = jnp.array([[0.0, 1.0], [1.0, 1.0], [0.5, 0.5], [jnp.inf, 0.0]])
    bernoulli, categorical = rl.BernoulliLikelihood(2), rl.CategoricalLikelihood(2)
    gaussian = rl.GaussianLikelihood(jnp.zeros(2))
    joint = rl.JointLikelihood(("a", "b"), (rl.BernoulliLikelihood(1), rl.GaussianLikelihood(jnp.zeros(1))))
    assert gaussian.allows(targets).tolist() == [True, True, True, False]
    assert bernoulli.allows(targets).tolist() == [True, True, False, False]
    assert categorical.allows(targets).tolist() == [True, False, False, False]
    assert joint.allows(targets).tolist() == [True, True, False, False]
