"""Work in chunks is the work."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recurrent_laplace.chunks import map_chunks


@pytest.mark.parametrize("most", [1, 3, 4, 13, 100])
@pytest.mark.parametrize("count", [1, 2, 6, 7, 13])
def test_chunks_are_of_one_size_and_give_what_all_at_once_gives(count, most):
    sizes = set()

    def function(items):
        sizes.add(len(items["x"]))
        return jnp.sin(items["x"]), items["n"] * 2

    numbers = np.random.default_rng(0)
    items = {"x": jnp.asarray(numbers.normal(size=(count, 2))), "n": jnp.arange(count)}
    sine, double = map_chunks(function, items, most)
    np.testing.assert_array_equal(sine, np.sin(items["x"]))
    np.testing.assert_array_equal(double, 2 * np.arange(count))
    (size,) = sizes
    assert size <= most
    # No more chunks than it takes, and none of crumbs.
    assert -(-count // size) == -(-count // most)


def test_chunks_under_vmap_and_their_gradient():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 7)))
    weights = jnp.arange(21.0).reshape(3, 7)

    def total(x, most):
        return jnp.sum(weights * jax.vmap(lambda row: map_chunks(jnp.sin, row, most))(x))

    np.testing.assert_allclose(total(x, 3), total(x, 7), rtol=1e-12)
    # The overlap counts once: what is written last is what there is.
    np.testing.assert_allclose(jax.grad(total)(x, 3), weights * jnp.cos(x), rtol=1e-12)
