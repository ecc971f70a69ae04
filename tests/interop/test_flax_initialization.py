"""Initial weights in the scheme of Flax, against Flax's own initialisers, in distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import recurrent_laplace as rl
from recurrent_laplace.interop.flax import from_linen
from recurrent_laplace.models.initialization import flax_initialized
from recurrent_laplace.models.layers import MLP

nn = pytest.importorskip("flax.linen")

pytestmark = pytest.mark.interop

INPUTS, HIDDEN, SEEDS = 12, 6, 300
CELLS = {"OptimizedLSTMCell": rl.LSTM, "GRUCell": rl.GRU, "SimpleCell": rl.Elman}
KEYS = jax.random.split(jax.random.key(0), SEEDS)


def assert_same_distribution(ours, theirs):
    """Two-sample Kolmogorov-Smirnov test of the entries; entries that are always equal are equal in both."""
    ours, theirs = np.ravel(ours), np.ravel(theirs)
    if np.ptp(theirs) == 0:
        np.testing.assert_array_equal(ours, theirs[0])
    else:
        assert scipy.stats.ks_2samp(ours, theirs).pvalue > 1e-3


@pytest.mark.parametrize("name", CELLS)
def test_cells(name):
    linen = getattr(nn, name)(HIDDEN, param_dtype=float)
    carry = linen.initialize_carry(jax.random.key(0), (INPUTS,))
    carry = jax.tree.map(lambda leaf: leaf.astype(float), carry)

    def of_flax(key):
        return from_linen(linen.init(key, carry, jnp.zeros(INPUTS)), name).cell

    def of_ours(key):
        return flax_initialized(CELLS[name](INPUTS, HIDDEN, key=key), key=key)

    ours, theirs = (jax.jit(jax.vmap(make))(KEYS) for make in (of_ours, of_flax))
    for our_leaf, their_leaf in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert_same_distribution(our_leaf, their_leaf)
    for gate in range(ours.weight_hh.shape[1] // HIDDEN):
        one, other = (
            cells.weight_hh[:, gate * HIDDEN : (gate + 1) * HIDDEN].astype(float) for cells in (ours, theirs)
        )
        eye = np.broadcast_to(np.eye(HIDDEN), one.shape)
        for matrices in (one, other):
            np.testing.assert_allclose(matrices @ jnp.swapaxes(matrices, -1, -2), eye, atol=1e-5)
        # Rotations and reflections alike, and their traces.
        assert_same_distribution(np.trace(one, axis1=1, axis2=2), np.trace(other, axis1=1, axis2=2))
        signs = [np.linalg.det(matrices) > 0 for matrices in (one, other)]
        assert abs(np.mean(signs[0]) - np.mean(signs[1])) < 5 * np.sqrt(0.5 / SEEDS)


def test_layers():
    dense = nn.Dense(HIDDEN, param_dtype=float)
    theirs = jax.jit(jax.vmap(lambda key: dense.init(key, jnp.zeros(INPUTS))["params"]))(KEYS)
    ours = jax.jit(
        jax.vmap(lambda key: flax_initialized(MLP.init((INPUTS, HIDDEN), key=key), key=key).layers[0])
    )(KEYS)
    assert_same_distribution(ours.weight, theirs["kernel"])
    assert_same_distribution(ours.bias, theirs["bias"])


def test_pytorch_scheme_differs():
    """Or the tests above could not fail."""
    cells = jax.jit(jax.vmap(lambda key: rl.LSTM(INPUTS, HIDDEN, key=key)))(KEYS)
    flax = jax.jit(jax.vmap(lambda key: flax_initialized(rl.LSTM(INPUTS, HIDDEN, key=key), key=key)))(KEYS)
    for name in ("weight_ih", "weight_hh"):
        with pytest.raises(AssertionError):
            assert_same_distribution(getattr(cells, name), getattr(flax, name))
