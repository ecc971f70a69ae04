"""Curvature over the hidden state (`space="state"`), mapped to the features by the readout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.posteriors import updates
from support.registry import assert_close

import recurrent_laplace as rl

D, H, F, T = 2, 5, 3, 6
KEYS = jax.random.split(jax.random.key(0), 4)
INPUTS = jax.random.normal(KEYS[0], (T, D), jnp.float64)
CELL = rl.GRU(D, H, dtype=jnp.float64, key=KEYS[1])
READ = rl.Memory(CELL, F, key=KEYS[2])
PLAIN = rl.Memory(CELL)


def by_hand(memory, window, prior, accumulate):
    """Precisions over the hidden state, one Jacobian at a time."""
    carries = memory.unroll(INPUTS).carries
    total, precisions = prior * np.eye(H), []
    for t in range(T):
        jacobians = [memory.jacobian(carries[t], INPUTS[i]) for i in range(max(0, t - window + 1), t + 1)]
        curvature = sum(np.asarray(jacobian.T @ jacobian) for jacobian in jacobians)
        total = total + curvature if accumulate else prior * np.eye(H) + curvature
        precisions.append(total)
    return np.stack(precisions)


@pytest.mark.parametrize(("accumulate", "window"), [("precision", 1), ("none", 3)])
@pytest.mark.parametrize("memory", [READ, PLAIN], ids=["readout", "plain"])
def test_dense(memory, accumulate, window):
    options = {"accumulate": accumulate, "window": window, "prior_stddev": 0.5, "damping_precision": 4.0}
    posterior = rl.LaplacePosterior(memory, covariance="dense", space="state", **options)
    precisions = by_hand(memory, window, 4.0, accumulate == "precision")
    readout = np.eye(H) if memory.readout is None else np.asarray(memory.readout.weight)
    expected = readout @ np.linalg.inv(precisions) @ readout.T
    for beliefs in (posterior.unroll(INPUTS), updates(posterior, INPUTS)[0]):
        assert_close(beliefs.covariance(), expected)
        assert_close(beliefs.mean, memory.unroll(INPUTS).features)
    assert_close(posterior.prior().covariance(), 0.25 * readout @ readout.T)


def test_diagonal_keeps_the_diagonal_over_the_state_and_then_over_the_features():
    posterior = rl.LaplacePosterior(READ, covariance="diagonal", space="state")
    state_variances = 1 / np.diagonal(by_hand(READ, 1, 1.0, True), axis1=1, axis2=2)
    expected = state_variances @ np.asarray(READ.readout.weight).T ** 2
    assert_close(posterior.unroll(INPUTS).variance(), expected)
    assert_close(posterior.prior().variance(), np.sum(np.asarray(READ.readout.weight) ** 2, axis=1))


def test_both_spaces_agree_on_a_normal_linear_network_without_readout():
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(H, H)))
    cell = rl.Linear.from_weights(jnp.zeros((H, D)), jnp.asarray(0.9 * rotation), jnp.zeros(H))

    def precisions(memory):
        posteriors = [rl.LaplacePosterior(memory, space=space) for space in ("features", "state")]
        return [posterior.unroll(INPUTS).precision() for posterior in posteriors]

    assert_close(*precisions(rl.Memory(cell)))
    features, state = precisions(PLAIN)
    assert np.abs(features - state).max() > 1e-3, "otherwise the test could not fail"


def test_more_features_than_state_have_no_dense_covariance():
    wide = rl.Memory(CELL, H + 1, key=KEYS[3])
    with pytest.raises(ValueError, match="a singular covariance"):
        rl.LaplacePosterior(wide, covariance="dense", space="state")
    beliefs = rl.LaplacePosterior(wide, covariance="diagonal", space="state").unroll(INPUTS)
    assert beliefs.mean.shape == (T, H + 1)
    with pytest.raises(ValueError, match="space must be one of"):
        rl.LaplacePosterior(READ, space="weights")


@pytest.mark.parametrize("covariance", ["dense", "diagonal"])
@pytest.mark.parametrize("space", ["features", "state"])
def test_temperature_scales_every_covariance(covariance, space):
    cold = rl.LaplacePosterior(READ, covariance=covariance, space=space)
    warm = rl.LaplacePosterior(READ, covariance=covariance, space=space, temperature=4.0)
    assert_close(warm.unroll(INPUTS).variance(), 4 * cold.unroll(INPUTS).variance())
    assert_close(warm.prior().variance(), 4 * cold.prior().variance())
    assert_close(warm.update(warm.init(), INPUTS[0])[1].variance(), 4 * cold.unroll(INPUTS[:1])[0].variance())
