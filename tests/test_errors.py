"""Errors name the argument, what came, and what is allowed."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recurrent_laplace as rl
from recurrent_laplace.errors import LARGEST_NUMBER, SMALLEST_NUMBER, check_number, check_seed, shown
from recurrent_laplace.runs.config import Run
from recurrent_laplace.runs.models import seed_keys

KEY = jax.random.key(0)
D, H, F = 3, 5, 4


@functools.cache
def memory_of() -> rl.Memory:
    return rl.Memory(rl.GRU(D, H, key=KEY), features=F, key=KEY)


def laplace(**options):
    return lambda: rl.LaplacePosterior(memory_of(), **options)


def variational(**options):
    return lambda: rl.VariationalPosterior(memory_of(), key=KEY, **options)


def diagonal():
    return rl.LaplacePosterior(memory_of(), covariance="diagonal")


COVARIANCES = "covariance must be one of 'dense', 'diagonal'; got "
BATCH_HINT = " Modules act on one example: put jax.vmap around the call for a batch."
CASES = {
    "covariance": (laplace(covariance="full"), COVARIANCES + "'full'."),
    "covariance-variational": (variational(covariance="full"), COVARIANCES + "'full'."),
    "accumulate": (
        laplace(accumulate="both"),
        "accumulate must be one of 'none', 'precision', 'mean_and_precision'; got 'both'.",
    ),
    "window-zero": (laplace(window=0), "window must be a whole number of at least 1; got 0."),
    "window-negative": (laplace(window=-3), "window must be a whole number of at least 1; got -3."),
    "window-true": (laplace(window=True), "window must be a whole number of at least 1; got True."),
    "window-all-accumulated": (
        laplace(window=None),
        "window must be a whole number of at least 1 with accumulate='precision'; got None.",
    ),
    "window-all-accumulated-means": (
        laplace(window=None, accumulate="mean_and_precision"),
        "with accumulate='mean_and_precision'; got None. "
        "An unlimited window would count every input again at each step: use accumulate='none' with it.",
    ),
    "forgetting-zero": (laplace(forgetting=0.0), "forgetting must be a number in (0, 1]; got 0.0."),
    "forgetting-above": (laplace(forgetting=1.5), "forgetting must be a number in (0, 1]; got 1.5."),
    "forgetting-nan": (laplace(forgetting=float("nan")), "forgetting must be a number in (0, 1]; got nan."),
    "damping": (
        laplace(damping_precision=-1.0),
        "damping_precision must be a number in [0, inf); got -1.0.",
    ),
    "prior-zero": (laplace(prior_stddev=0.0), "prior_stddev must be a number in (0, inf); got 0.0."),
    "prior-negative": (laplace(prior_stddev=-1.0), "prior_stddev must be a number in (0, inf); got -1.0."),
    "prior-infinite": (
        laplace(prior_stddev=float("inf")),
        "prior_stddev must be a number in (0, inf); got inf.",
    ),
    "prior-variational": (
        variational(prior_stddev=0.0),
        "prior_stddev must be a number in (0, inf); got 0.0.",
    ),
    "prior-tiny": (
        laplace(prior_stddev=1e-200),
        "prior_stddev must be in [1e-18, 1e+18], so that float32 can hold its square; got 1e-200.",
    ),
    "prior-large": (variational(prior_stddev=1e20), "prior_stddev must be in [1e-18, 1e+18]"),
    "forgetting-tiny": (laplace(forgetting=1e-40), "forgetting must be in [1e-18, 1], so that float32"),
    "damping-tiny": (
        laplace(damping_precision=1e-40),
        "damping_precision must be 0 or in [1e-18, 1e+18], so that float32",
    ),
    "prior-beyond-floats": (
        lambda: check_number("prior_stddev", 10**400, above=0),
        "prior_stddev must be a number in (0, inf); got an integer of about 401 digits.",
    ),
    "hidden-beyond-int32": (
        lambda: rl.GRU(D, 2**31, key=KEY),
        "hidden_size must be at most 2147483647, the largest int32; got 2147483648.",
    ),
    "features": (
        lambda: rl.Memory(memory_of().cell, features=0, key=KEY),
        "features must be a whole number of at least 1; got 0.",
    ),
    "features-key": (
        lambda: rl.Memory(memory_of().cell, features=4),
        "key must be a JAX random key when features=4; got None.",
    ),
    "readout": (
        lambda: rl.Memory(memory_of().cell, readout=rl.Affine.init(7, F, key=KEY)),
        "readout.weight must have shape (features, 5); got (4, 7).",
    ),
    "activation": (
        lambda: rl.Elman(D, H, activation="sigmoid", key=KEY),
        "activation must be one of 'tanh', 'relu'; got 'sigmoid'.",
    ),
    "inputs-size": (
        lambda: diagonal().unroll(jnp.zeros((6, D + 1))),
        "inputs must have shape (T, 3); got (6, 4).",
    ),
    "inputs-vector": (lambda: diagonal().unroll(jnp.zeros(D)), "inputs must have shape (T, 3); got (3,)."),
    "inputs-batch": (
        lambda: diagonal().unroll(jnp.zeros((2, 6, D))),
        "inputs must have shape (T, 3); got (2, 6, 3)." + BATCH_HINT,
    ),
    "inputs-batch-point": (
        lambda: rl.PointPosterior(memory_of()).unroll(jnp.zeros((2, 6, D))),
        "inputs must have shape (T, 3); got (2, 6, 3)." + BATCH_HINT,
    ),
    "inputs-empty": (
        lambda: diagonal().unroll(jnp.zeros((0, D))),
        "inputs must hold at least one step; got none.",
    ),
    "resets": (
        lambda: diagonal().unroll(jnp.zeros((6, D)), jnp.zeros(5, bool)),
        "resets must have shape (6,); got (5,).",
    ),
    "resets-point": (
        lambda: rl.PointPosterior(memory_of()).unroll(jnp.zeros((6, D)), jnp.zeros((6, 1), bool)),
        "resets must have shape (6,); got (6, 1)." + BATCH_HINT,
    ),
    "x-size": (
        lambda: diagonal().update(diagonal().init(), jnp.zeros(D + 1)),
        "x must have shape (3,); got (4,).",
    ),
    "x-batch": (
        lambda: diagonal().update(diagonal().init(), jnp.zeros((2, D))),
        "x must have shape (3,); got (2, 3)." + BATCH_HINT,
    ),
    "x-batch-point": (
        lambda: rl.PointPosterior(memory_of()).update(memory_of().init(), jnp.zeros((2, D))),
        "x must have shape (3,); got (2, 3)." + BATCH_HINT,
    ),
    "samples": (
        lambda: rl.predict_average(jnp.tanh, diagonal().prior(), samples=0, key=KEY),
        "samples must be a whole number of at least 1; got 0.",
    ),
    "samples-mixture": (
        lambda: rl.predict_mixture(jnp.tanh, diagonal().prior(), samples=-1, key=KEY),
        "samples must be a whole number of at least 1; got -1.",
    ),
    "capacity": (
        lambda: diagonal().init(capacity=0),
        "capacity must be a whole number of at least 1; got 0.",
    ),
    "cost-steps": (lambda: diagonal().cost(0), "steps must be a whole number of at least 1; got 0."),
    "cost-batch": (lambda: diagonal().cost(5, batch=0), "batch must be a whole number of at least 1; got 0."),
    "autodiff-window": (
        lambda: rl.LaplacePosterior(rl.Memory(_unknown_input()), window=3).init(),
        "input_size must be given to Autodiff to keep a window online; got None.",
    ),
    "autodiff-cost": (
        lambda: rl.LaplacePosterior(rl.Memory(_unknown_input())).cost(5),
        "input_size must be given to Autodiff to estimate a cost; got None.",
    ),
}


def _unknown_input() -> rl.Autodiff:
    return rl.Autodiff(lambda h, x: jnp.tanh(h + jnp.sum(x)), jnp.zeros(H))


@pytest.mark.parametrize("name", CASES)
def test_errors_say_what_came_and_what_is_allowed(name):
    call, text = CASES[name]
    with pytest.raises(ValueError, match=re.escape(text)):
        call()


def test_resets_of_another_length_are_refused_in_the_kl():
    posterior = diagonal()
    beliefs = posterior.unroll(jnp.zeros((6, D)))
    with pytest.raises(ValueError, match="resets"):
        posterior.consecutive_kl(beliefs, jnp.zeros(5, bool))


def test_numbers_of_numpy_are_fine():
    """They come out of every sweep; kept static, they must not count as arrays."""
    posterior = rl.LaplacePosterior(memory_of(), forgetting=np.float64(0.5), prior_stddev=np.float64(2.0))
    assert posterior.forgetting == 0.5
    assert jax.tree.structure(posterior) == jax.tree.structure(
        rl.LaplacePosterior(memory_of(), forgetting=0.5, prior_stddev=2.0)
    )


def test_consecutive_kl_of_a_batch_asks_for_vmap():
    posterior = diagonal()
    beliefs = jax.vmap(posterior.unroll)(jnp.zeros((2, 6, D)))
    text = f"beliefs.mean must have shape (T, {F}); got (2, 6, {F})." + BATCH_HINT
    with pytest.raises(ValueError, match=re.escape(text)):
        posterior.consecutive_kl(beliefs)


@pytest.mark.parametrize("number", [SMALLEST_NUMBER, LARGEST_NUMBER])
def test_the_range_of_numbers_is_what_float32_can_square_and_invert(number):
    check_number("stddev", number, above=0)
    square = np.float32(number) ** 2
    assert 0 < square < np.inf
    assert 0 < 1 / square < np.inf
    # A hundred times further out the square is infinite or subnormal.
    with np.errstate(all="ignore"):
        beyond = np.float32(number * (100 if number > 1 else 0.01)) ** 2
        assert not (np.finfo(np.float32).tiny <= beyond < np.inf)


def test_seeds_have_keys_of_their_own():
    check_seed(2**32 - 1)
    check_seed(2**32 - 5, 5)
    for seed, seeds in ((2**32, 1), (2**32 - 5, 6), (10**400, 1)):
        with pytest.raises(ValueError, match=r"seed must be at most 2\^32 - 1; got"):
            check_seed(seed, seeds)


@pytest.mark.parametrize("seed", [0, 2**31 - 1, 2**32 - 3])
def test_several_seeds_have_the_keys_of_each(seed):
    with jax.enable_x64(False):
        several = jax.random.key_data(seed_keys(Run(config=rl.Config(), seed=seed, seeds=3)))
        single = [
            jax.random.key_data(seed_keys(Run(config=rl.Config(), seed=seed + index))) for index in range(3)
        ]
    np.testing.assert_array_equal(several, np.stack(single))
    assert len(np.unique(several, axis=0)) == 3


def test_values_of_any_kind_can_be_shown():
    deep: list = []
    for _ in range(10**5):
        deep = [deep]
    assert shown(deep) == "a list that is too large to print"
    assert shown([10**5000]) == "a list that is too large to print"
    assert shown(10**5000) == "an integer of about 5001 digits"
    assert len(shown("x" * 10**6)) < 300
