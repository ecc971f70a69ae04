"""Layers below the one that the belief is about."""

import jax
import jax.numpy as jnp
import pytest
from registry import assert_close

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
    """What reaches the top: each lower layer run by itself."""
    outputs = INPUTS
    for cell in LOWER:
        carries = rl.Memory(cell).unroll(outputs, resets).carries
        outputs = jax.vmap(cell.hidden)(carries)
    return outputs


@pytest.mark.parametrize("resets", [None, RESETS], ids=["whole", "reset"])
@pytest.mark.parametrize(
    "options",
    [
        {"covariance": "dense"},
        {"covariance": "dense", "accumulate": "none", "window": 3},
        {"covariance": "diagonal", "accumulate": "none", "window": None},
        {"covariance": "diagonal", "accumulate": "mean_and_precision", "window": 2},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_a_stack_is_its_top_on_what_the_lower_layers_say(options, resets):
    expected = rl.LaplacePosterior(ALONE, **options).unroll(lower_outputs(resets), resets)
    posterior = rl.LaplacePosterior(STACK, **options)
    beliefs = posterior.unroll(INPUTS, resets)
    assert_close(beliefs.mean, expected.mean)
    assert_close(beliefs.precision(), expected.precision())
    # And online.
    state = posterior.init()
    for t in range(T):
        reset = False if resets is None else resets[t]
        state, belief = posterior.update(state, INPUTS[t], reset)
        assert_close(belief.mean, expected[t].mean)
        assert_close(belief.precision(), expected[t].precision())


@pytest.mark.parametrize("kind", [rl.PointPosterior, rl.VariationalPosterior])
def test_read_posteriors_of_a_stack(kind):
    extra = {"key": KEYS[5]} if kind is rl.VariationalPosterior else {}
    posterior = kind(STACK, **extra)
    expected = kind(ALONE, **extra).unroll(lower_outputs())
    assert_close(posterior.unroll(INPUTS).mean, expected.mean)
    state, belief = posterior.init(), None
    for x in INPUTS:
        state, belief = posterior.update(state, x)
    assert_close(belief.mean, expected[-1].mean)


def test_the_jacobian_is_that_of_one_step_by_the_tops_hidden_state():
    carry = STACK.init()
    for x in INPUTS[:4]:
        carry, _ = STACK.step(carry, x)
    lower, (h, c) = carry

    def features(h):
        return STACK.step((lower, (h, c)), INPUTS[4])[1]

    assert_close(STACK.jacobian(carry, INPUTS[4]), jax.jacfwd(features)(h))


def test_cost_counts_every_layer():
    posterior = rl.PointPosterior(STACK)
    alone = rl.PointPosterior(ALONE).cost(T).multiplications
    lower = sum(rl.PointPosterior(rl.Memory(cell)).cost(T).multiplications for cell in LOWER)
    assert posterior.cost(T).multiplications == alone + lower


def test_layers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="a cell of 6 units feeds one with 4 inputs"):
        rl.Memory(TOP, below=LOWER[:1])
    with pytest.raises(ValueError, match=r"x must have shape \(3,\)"):
        STACK.step(STACK.init(), jnp.zeros(4))
