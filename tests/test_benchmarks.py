"""A ratio means nothing unless both programs compute the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recurrent_laplace.benchmarks.posterior import objective
from recurrent_laplace.benchmarks.reference import Reference
from recurrent_laplace.benchmarks.variants import VARIANTS
from recurrent_laplace.cells import LSTM, Memory


@pytest.mark.parametrize("name", VARIANTS)
def test_reference_and_ours_agree(name):
    k1, k2, k3, k4 = jax.random.split(jax.random.key(0), 4)
    memory = Memory(LSTM(3, 8, key=k1), features=4, key=k2)
    inputs, noise = jax.random.normal(k3, (13, 3)), jax.random.normal(k4, (13, 4))
    variant = VARIANTS[name]
    value, gradient = jax.jit(jax.value_and_grad(lambda m: objective(m, variant, inputs, noise)))(memory)
    reference = Reference.like(memory)
    theirs, their_gradient = jax.jit(jax.value_and_grad(lambda m: m.objective(variant, inputs, noise)))(
        reference
    )
    np.testing.assert_allclose(value, theirs, rtol=1e-10)
    pairs = [
        (gradient.cell.weight_ih, their_gradient.cell.weight_ih),
        (gradient.cell.weight_hh, their_gradient.cell.weight_hh),
        (gradient.cell.bias, their_gradient.cell.bias),
        (gradient.readout.weight, their_gradient.readout.weight),
        (gradient.readout.bias, their_gradient.readout.bias),
    ]
    for ours, other in pairs:
        np.testing.assert_allclose(ours, other, rtol=1e-10, atol=1e-10 * float(jnp.abs(other).max()))
