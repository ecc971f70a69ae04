"""The logged KL of a Laplace posterior, from the covariances of all tasks or of a fraction of them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.registry import assert_close

import recurrent_laplace as rl
from recurrent_laplace.gaussians import DenseGaussian, DiagonalGaussian
from recurrent_laplace.learning.beliefs import BeliefTerms, consecutive_mahalanobis, with_standard_error
from recurrent_laplace.posterior import Info

TASKS, STEPS, FEATURES = 12, 5, 3
MEMORY = rl.Memory(rl.Elman(2, FEATURES, key=jax.random.key(0)))


def posterior_of(covariance):
    return rl.LaplacePosterior(MEMORY, covariance=covariance, prior_stddev=0.7)


def beliefs_of(covariance, tasks=TASKS, seed=1):
    """Beliefs whose scales differ from task to task."""
    rng = np.random.default_rng(seed)
    means = jnp.asarray(rng.normal(size=(tasks, STEPS, FEATURES)))
    scale = np.exp(0.5 * rng.normal(size=(tasks, 1, 1)))
    if covariance == "diagonal":
        return DiagonalGaussian(means, jnp.asarray(scale * rng.uniform(0.5, 2, size=means.shape)))
    root = rng.normal(size=(tasks, STEPS, FEATURES, FEATURES + 2))
    precision = scale[..., None] * (root @ np.swapaxes(root, -1, -2) + np.eye(FEATURES))
    return DenseGaussian.from_precision(means, jnp.asarray(precision))


def terms_of(covariance, beliefs, **options):
    options = rl.LearningConfig(batch=TASKS, **options)
    finite = jnp.ones(beliefs.batch_shape, bool)
    info = Info(finite_input=finite, finite_belief=finite, added_precision=jnp.zeros(beliefs.batch_shape))
    return BeliefTerms.of(posterior_of(covariance), beliefs, info, options)


COVARIANCES = pytest.mark.parametrize("covariance", ["diagonal", "dense"])


@COVARIANCES
def test_kl_is_a_mahalanobis_term_and_a_term_of_the_covariances(covariance):
    posterior, beliefs = posterior_of(covariance), beliefs_of(covariance)[0]
    previous = posterior.previous_beliefs(beliefs)
    assert_close(consecutive_mahalanobis(posterior, beliefs), beliefs.mahalanobis(previous))
    whole = consecutive_mahalanobis(posterior, beliefs) + beliefs.covariance_kl(previous)
    assert_close(whole, posterior.consecutive_kl(beliefs))


@pytest.mark.parametrize(
    ("covariance", "fraction"), [("dense", 1.0), ("diagonal", 1.0), ("dense", 0.5), ("diagonal", 1e-3)]
)
def test_gradient_is_that_of_the_exact_kl(covariance, fraction):
    posterior, beliefs = posterior_of(covariance), beliefs_of(covariance)

    def moved(means):
        return dataclasses.replace(beliefs, mean=means)

    def exact(means):
        return jnp.mean(jax.vmap(posterior.consecutive_kl)(moved(means)))

    def logged(means):
        return terms_of(covariance, moved(means), kl_fraction=fraction).kl

    (value, slope), (expected, expected_slope) = jax.jit(
        lambda means: (jax.value_and_grad(logged)(means), jax.value_and_grad(exact)(means))
    )(beliefs.mean)
    assert_close(slope, expected_slope)
    if fraction == 1:
        assert_close(value, expected)


@COVARIANCES
def test_estimate_and_standard_error_agree_with_the_exact_kl(covariance):
    """Over many batches the estimate is unbiased, and its variance is what is logged."""
    batches = 400
    beliefs = beliefs_of(covariance, tasks=batches * TASKS)
    beliefs = jax.tree.map(lambda leaf: leaf.reshape(batches, TASKS, *leaf.shape[1:]), beliefs)

    @jax.jit
    @jax.vmap
    def both(beliefs):
        estimate = terms_of(covariance, beliefs, kl_fraction=1 / 3)
        return estimate.kl, estimate.kl_variance, terms_of(covariance, beliefs).kl

    kl, variance, exact = both(beliefs)
    error = np.asarray(kl - exact)
    assert abs(error.mean()) < 5 * error.std() / np.sqrt(batches)
    assert error.std() > 0
    # The standard error of the mean of 400 squared errors, from the errors themselves.
    squares = error**2
    tolerance = 5 * np.hypot(squares.std(), np.std(variance)) / np.sqrt(batches)
    assert abs(squares.mean() - np.mean(variance)) < tolerance


def test_chunks_of_a_batch_give_the_standard_error_of_the_whole():
    """Averaged over chunks of equal fractions, the variance is that of the mean over all sampled tasks."""
    beliefs = beliefs_of("dense", tasks=TASKS)
    chunks = [terms_of("dense", beliefs[start : start + 4], kl_fraction=0.5) for start in (0, 4, 8)]
    metrics = {"kl_variance": jnp.mean(jnp.stack([chunk.kl_variance for chunk in chunks]))}
    posterior = posterior_of("dense")
    of_task = jax.vmap(lambda b: jnp.mean(b.covariance_kl(posterior.previous_beliefs(b))))(beliefs)
    # Each chunk contributes a third of the mean, from two of four tasks.
    by_hand = sum(np.var(of_task[start : start + 2], ddof=1) / 2 * (1 - 2 / 4) / 9 for start in (0, 4, 8))
    assert_close(with_standard_error(metrics), {"kl_standard_error": np.sqrt(by_hand)})


def test_an_exact_kl_has_no_standard_error():
    assert terms_of("dense", beliefs_of("dense")).kl_variance is None
    assert terms_of("dense", beliefs_of("dense", tasks=2), kl_fraction=0.1).kl_variance is None
    assert with_standard_error({"kl": jnp.zeros(())}) == {"kl": jnp.zeros(())}


def test_training_logs_the_standard_error_and_learns_the_same():
    learning = rl.LearningConfig(updates=2, steps=4, batch=8, beta=0.1)
    agent = rl.AgentConfig(
        cell="elman", hidden_size=6, features=3, embedding_sizes=(4,), head_sizes=(4,), layer_norm=False
    )
    config = rl.Config(
        task=rl.Gridworld(size=3),
        agent=agent,
        posterior=rl.LaplaceConfig(covariance="dense"),
        learning=learning,
    )
    sampled = dataclasses.replace(config, learning=dataclasses.replace(learning, kl_fraction=0.25))
    (exact_state, exact), (state, metrics) = (
        jax.jit(rl.make_train(one))(jax.random.key(0)) for one in (config, sampled)
    )
    assert_close(state.model, exact_state.model)
    assert set(metrics) == {*exact, "kl_standard_error"}
    assert np.all(metrics["kl_standard_error"] > 0)
    assert np.any(metrics["kl"] != exact["kl"])
