"""Memories with cells below the one that is read out."""

import jax
import jax.numpy as jnp
import pytest
from support.posteriors import assert_same_beliefs, updates
from support.registry import assert_close

import recurrent_laplace as rl

D, T = 3, 9
KEYS = jax.random.split(jax.random.key(0), 8)
INPUTS = jax.random.normal(KEYS[0], (T, D), jnp.float64)
RESETS = jnp.arange(T) == 5
LOWER = (
    rl.LSTM(D, 6, dtype=jnp.float64, key=KEYS[1]),
    rl.GRU(6, 4, dtype=jnp.float64, key=KEYS[2]),
)
TOP = rl.LSTM(4, 5, dtype=jnp.float64, key=KEYS[3])
STACK = rl.Memory(TOP, 2, below=LOWER, key=KEYS[4])
ALONE = rl.Memory(TOP, readout=STACK.readout)


def lower_outputs(resets=None):
    """Inputs of the top cell, from each lower cell run separately."""
    outputs = INPUTS
    for cell in LOWER:
        carries = rl.Memory(cell).unroll(outputs, resets).carries
        outputs = jax.vmap(cell.hidden)(carries)
    return outputs


@pytest.mark.parametrize(
    ("options", "resets"),
    [
        ({"covariance": "dense"}, None),
        ({"covariance": "dense", "accumulate": "none", "window": 3}, RESETS),
        ({"covariance": "diagonal", "accumulate": "none", "window": None}, RESETS),
        ({"covariance": "diagonal", "accumulate": "mean_and_precision", "window": 2}, RESETS),
    ],
)
def test_stack_is_its_top_on_the_outputs_of_the_lower_cells(options, resets):
    expected = rl.LaplacePosterior(ALONE, **options).unroll(lower_outputs(resets), resets)
    posterior = rl.LaplacePosterior(STACK, **options)
    assert_same_beliefs(posterior.unroll(INPUTS, resets), expected)
    assert_same_beliefs(updates(posterior, INPUTS, resets)[0], expected)


@pytest.mark.parametrize("kind", [rl.PointPosterior, rl.VariationalPosterior])
def test_point_and_variational_posteriors_of_a_stack(kind):
    extra = {"key": KEYS[5]} if kind is rl.VariationalPosterior else {}
    posterior = kind(STACK, **extra)
    expected = kind(ALONE, **extra).unroll(lower_outputs())
    assert_close(posterior.unroll(INPUTS).mean, expected.mean)
    assert_close(updates(posterior, INPUTS)[0].mean, expected.mean)


def test_jacobian_is_with_respect_to_the_hidden_state_of_the_top():
    carry = STACK.init()
    for x in INPUTS[:4]:
        carry, _ = STACK.step(carry, x)
    lower, (h, c) = carry

    def features(h):
        return STACK.step((lower, (h, c)), INPUTS[4])[1]

    assert_close(STACK.jacobian(carry, INPUTS[4]), jax.jacfwd(features)(h))


def test_cost_counts_every_cell():
    posterior = rl.PointPosterior(STACK)
    alone = rl.PointPosterior(ALONE).cost(T).multiplications
    lower = sum(rl.PointPosterior(rl.Memory(cell)).cost(T).multiplications for cell in LOWER)
    assert posterior.cost(T).multiplications == alone + lower


def test_cells_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="a cell of 6 units feeds one with 4 inputs"):
        rl.Memory(TOP, below=LOWER[:1])
    with pytest.raises(ValueError, match=r"x must have shape \(3,\)"):
        STACK.step(STACK.init(), jnp.zeros(4))
