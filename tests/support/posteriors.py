"""Posteriors run over sequences, at once or step by step, and comparisons of their beliefs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from support.registry import TOLERANCE


@eqx.filter_jit
def unroll(posterior, inputs, resets=None):
    """Beliefs and diagnostics of a sequence."""
    inference = posterior.infer(inputs, resets)
    return inference.belief, inference.info


@eqx.filter_jit
def update(posterior, state, x, reset=False):
    """Next state, belief and diagnostics of one step."""
    state, inference = posterior.infer_step(state, x, reset)
    return state, inference.belief, inference.info


def updates(posterior, inputs, resets=None):
    """Beliefs and diagnostics of repeated updates, stacked."""
    state, results = posterior.init(), []
    for t, x in enumerate(inputs):
        reset = jnp.asarray(False if resets is None else resets[t])
        state, belief, info = update(posterior, state, x, reset)
        results.append((belief, info))
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *results)


def assert_near(actual, expected, dtype="float64"):
    """Assert that leaves are equal within the tolerance of `dtype` times the largest entry of the leaf."""
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert np.shape(a) == np.shape(e)
        np.testing.assert_allclose(a, e, rtol=0, atol=max(TOLERANCE[dtype] * np.abs(e).max(), 1e-300))


def assert_same_beliefs(actual, expected, dtype="float64"):
    """Assert that means and precisions are near."""
    assert_near((actual.mean, actual.precision()), (expected.mean, expected.precision()), dtype)
