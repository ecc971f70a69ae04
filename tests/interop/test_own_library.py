"""Weights of a library without an edge of its own, converted from outside of the package."""

import jax.numpy as jnp
import numpy as np
import pytest

import recurrent_laplace as rl

D, H, F, STEPS = 3, 4, 2, 12


def keras_weights(rng):
    """A Keras GRU (`reset_after=True`): gates z, r, h in columns, and a bias on both sides."""
    names = {"kernel": (D, 3 * H), "recurrent_kernel": (H, 3 * H), "bias": (2, 3 * H)}
    return {name: rng.normal(size=shape) for name, shape in names.items()}


def keras_gru(weights, inputs):
    """Hidden states as Keras computes them."""
    h, states = np.zeros(H), []
    for x in inputs:
        x_z, x_r, x_h = np.split(x @ weights["kernel"] + weights["bias"][0], 3)
        h_z, h_r, h_h = np.split(h @ weights["recurrent_kernel"] + weights["bias"][1], 3)
        z, r = 1 / (1 + np.exp(-(x_z + h_z))), 1 / (1 + np.exp(-(x_r + h_r)))
        h = z * h + (1 - z) * np.tanh(x_h + r * h_h)
        states.append(h)
    return np.array(states)


def from_keras(weights, readout):
    """The same GRU as a memory: gates r, z, n in rows, and a bias of the candidate inside of the reset."""

    def rows(matrix):
        z, r, n = np.split(matrix, 3, axis=-1)
        return np.concatenate([r, z, n], axis=-1).T

    of_input, of_state = (rows(bias) for bias in weights["bias"])
    bias_n = of_state[2 * H :].copy()
    of_state[2 * H :] = 0
    cell = rl.GRU.from_weights(
        rows(weights["kernel"]), rows(weights["recurrent_kernel"]), of_input + of_state, bias_n=bias_n
    )
    return rl.Memory(cell, readout=rl.Affine(jnp.asarray(readout), None))


@pytest.fixture
def trained():
    rng = np.random.default_rng(0)
    return keras_weights(rng), rng.normal(size=(F, H)), rng.normal(size=(STEPS, D))


def test_converted_weights_give_the_same_outputs(trained):
    weights, readout, inputs = trained
    trace = from_keras(weights, readout).unroll(jnp.asarray(inputs))
    expected = keras_gru(weights, inputs)
    np.testing.assert_allclose(trace.hidden, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(trace.features, expected @ readout.T, rtol=0, atol=1e-12)


def test_the_memory_takes_a_posterior(trained):
    weights, readout, inputs = trained
    beliefs = rl.LaplacePosterior(from_keras(weights, readout)).unroll(jnp.asarray(inputs))
    assert np.all(np.diff(beliefs.entropy()) < 0)
