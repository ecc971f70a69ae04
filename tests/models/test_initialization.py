"""Initial weights in the scheme of Flax, in distribution; tests/interop compares with Flax's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import recurrent_laplace as rl
from recurrent_laplace.models.initialization import flax_initialized, random_orthogonal

CELLS = {"lstm": rl.LSTM, "gru": rl.GRU, "elman": rl.Elman}
TRUNCATED = scipy.stats.truncnorm(-2, 2)


def agent(posterior, **options):
    config = rl.AgentConfig(hidden_size=32, features=8, embedding_sizes=(16,), head_sizes=(16,), **options)
    return rl.Agent.init(
        config, posterior, observation_size=3, actions=4, policy_input="belief", key=jax.random.key(0)
    )


def assert_lecun_normal(weight):
    """Truncated at two standard deviations, with variance 1 / columns."""
    stddev = weight.shape[1] ** -0.5 / TRUNCATED.std()
    assert scipy.stats.kstest(np.ravel(weight) / stddev, TRUNCATED.cdf).pvalue > 1e-3


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_orthogonal_matrices_are_orthogonal(size):
    matrix = jax.jit(lambda: random_orthogonal(jax.random.key(size), size))()
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(size), atol=1e-12)


def test_orthogonal_matrices_are_uniformly_distributed():
    size, count = 4, 20_000
    matrices = jax.vmap(lambda key: random_orthogonal(key, size))(jax.random.split(jax.random.key(0), count))
    # Traces of Haar orthogonal matrices have mean 0 and variance 1; squared entries are Beta(1/2, (n-1)/2).
    trace = np.trace(matrices, axis1=1, axis2=2)
    assert abs(trace.mean()) < 5 * count**-0.5
    assert abs(trace.var() - 1) < 5 * (2 / count) ** 0.5
    exact = scipy.stats.beta(0.5, (size - 1) / 2)
    for entry in np.reshape(matrices, (count, -1)).T:
        assert scipy.stats.kstest(entry**2, exact.cdf).pvalue > 1e-4
        assert abs((entry > 0).mean() - 0.5) < 5 * 0.5 * count**-0.5


@pytest.mark.parametrize("kind", CELLS)
def test_cells(kind):
    cell = flax_initialized(CELLS[kind](48, 32, key=jax.random.key(0)), key=jax.random.key(1))
    assert_lecun_normal(cell.weight_ih)
    for gate in cell.weight_hh.reshape(-1, 32, 32):
        np.testing.assert_allclose(gate @ gate.T, np.eye(32), atol=1e-12)
    rest = [leaf for leaf in jax.tree.leaves(cell) if leaf.ndim == 1]
    assert rest
    assert not any(np.any(leaf) for leaf in rest)


@pytest.mark.parametrize(
    "posterior", [rl.PointConfig(), rl.VariationalConfig(prior_stddev=0.5), rl.LaplaceConfig()]
)
def test_agents(posterior):
    ours, flax = agent(posterior), agent(posterior, initialization="flax")
    assert jax.tree.structure(ours) == jax.tree.structure(flax)
    assert_lecun_normal(flax.posterior.memory.readout.weight)
    assert_lecun_normal(flax.observation_embedder.mlp.layers[0].weight)
    # A near-uniform first policy, in both schemes.
    assert np.std(flax.policy_head.mlp.layers[-1].weight) == pytest.approx(0.01 * 16**-0.5, rel=0.3)
    assert not np.any(flax.posterior.memory.readout.bias)
    if posterior.kind == "variational":
        np.testing.assert_allclose(flax.posterior.log_eigenvalue_head.bias, 2 * np.log(0.5))
        assert_lecun_normal(flax.posterior.log_eigenvalue_head.weight)


def test_regressors():
    config = rl.AgentConfig(hidden_size=32, features=8, embedding_sizes=(16,), initialization="flax")
    model = rl.Regressor.init(config, rl.PointConfig(), key=jax.random.key(0))
    assert_lecun_normal(model.posterior.memory.cell.weight_ih)


def test_a_head_added_post_hoc_follows_the_scheme_and_keeps_the_network():
    parent = agent(rl.PointConfig(), initialization="flax")
    made = rl.with_posterior(parent, rl.VariationalConfig(), initialization="flax", key=jax.random.key(1))
    assert jax.tree.all(jax.tree.map(jnp.array_equal, made.posterior.memory, parent.posterior.memory))
    assert_lecun_normal(made.posterior.log_eigenvalue_head.weight)
    assert not np.any(made.posterior.log_eigenvalue_head.bias)
