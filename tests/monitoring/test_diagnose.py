"""Posteriors that say something, and posteriors that only look as if they did."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recurrent_laplace as rl
from recurrent_laplace.monitoring.diagnose import Variation

D, H, N, T = 2, 6, 8, 12
KEYS = jax.random.split(jax.random.key(0), 4)
# Tasks differ in the size of their inputs, so that gates differ too.
SCALES = jnp.linspace(0.1, 4, N)[:, None, None]
INPUTS = SCALES * jax.random.normal(KEYS[0], (N, T, D))
GRU = rl.GRU(D, H, key=KEYS[1])
LINEAR = rl.Linear(D, H, key=KEYS[1])


def test_shares_of_variance():
    rows, columns = np.array([[0.0], [2.0]]), np.array([[1.0, 3.0, 5.0]])
    clock = Variation.of(np.repeat(columns, 2, axis=0))
    assert (clock.time, clock.task, clock.rest) == (1.0, 0.0, 0.0)
    both = Variation.of(rows + columns)
    assert both.time == pytest.approx(columns.var() / (columns.var() + rows.var()))
    assert both.task == pytest.approx(1 - both.time)
    assert Variation.of(np.ones((2, 3))).stddev == 0


def test_a_linear_network_has_a_constant_width_without_accumulation():
    found = rl.diagnose(rl.LaplacePosterior(rl.Memory(LINEAR), accumulate="none"), INPUTS)
    assert not found.informative
    assert "the width of the belief is the same everywhere" in found.words[0]


def test_a_linear_network_that_accumulates_is_a_clock():
    found = rl.diagnose(rl.LaplacePosterior(rl.Memory(LINEAR)), INPUTS)
    assert not found.informative
    assert found.variations["entropy"].time == pytest.approx(1, abs=1e-6)
    assert found.words[0].startswith("A clock: t alone explains 100%")


def test_gates_make_it_informative():
    found = rl.diagnose(rl.LaplacePosterior(rl.Memory(GRU), covariance="diagonal", accumulate="none"), INPUTS)
    assert found.informative
    assert found.variations["entropy"].time < 0.5
    assert str(found).startswith("Informative: ")
    assert "by t" in str(found)


def test_conditioning_is_that_of_the_last_belief():
    posterior = rl.LaplacePosterior(rl.Memory(GRU))
    found = rl.diagnose(posterior, INPUTS)
    variances = [np.linalg.eigvalsh(posterior.unroll(x).covariance()[-1]) for x in INPUTS]
    assert found.condition == pytest.approx(max(v[-1] / v[0] for v in variances), rel=1e-3)


def test_draws_that_drown_the_heads_are_reported():
    sharp = eqx.tree_at(lambda a: a.weight, rl.Affine.init(H, 3, key=KEYS[2]), replace_fn=lambda w: 20 * w)
    options = {"policy": lambda z, context: sharp(z), "value": lambda z, context: sharp(z)[0]}
    posterior = rl.LaplacePosterior(rl.Memory(GRU), covariance="diagonal", accumulate="none")
    words = " ".join(rl.diagnose(posterior, INPUTS, **options).words)
    assert "sampling changes what the agent does" in words
    assert "too wide for the value head" in words
    narrow = rl.LaplacePosterior(
        rl.Memory(GRU), covariance="diagonal", accumulate="none", damping_precision=1e6
    )
    words = " ".join(rl.diagnose(narrow, INPUTS, **options).words)
    assert "sampling hardly changes behaviour" in words
    assert "too wide" not in words


def test_bad_input():
    posterior = rl.LaplacePosterior(rl.Memory(GRU))
    with pytest.raises(ValueError, match=r"inputs must have shape \(N, T, 2\)"):
        rl.diagnose(posterior, INPUTS[0])
    with pytest.raises(ValueError, match="at least two tasks and two steps"):
        rl.diagnose(posterior, INPUTS[:1])
    with pytest.raises(ValueError, match="got a PointPosterior"):
        rl.diagnose(rl.PointPosterior(rl.Memory(GRU)), INPUTS)


def test_an_infinite_input_is_not_informative_although_saturated_gates_are_finite():
    posterior = rl.LaplacePosterior(rl.Memory(GRU), covariance="diagonal", accumulate="none")
    inputs = INPUTS.at[2, 9, 0].set(np.inf)
    assert jnp.isfinite(posterior.unroll(inputs[2]).entropy()).all()
    found = rl.diagnose(posterior, inputs)
    assert not found.informative
    assert not found.finite
    assert found.words[0].startswith(f"Not finite: inputs, at 1 of {N * T} steps.")


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_beliefs_and_heads_that_are_not_finite_are_not_informative(number):
    posterior = rl.LaplacePosterior(rl.Memory(GRU), covariance="diagonal", accumulate="none")
    broken = rl.diagnose(posterior, INPUTS.at[2, 9, 0].set(np.nan))
    dense = rl.diagnose(rl.LaplacePosterior(rl.Memory(GRU)), INPUTS.at[2, 9, 0].set(np.nan))
    assert np.isnan([broken.condition, dense.condition]).all()
    assert not broken.informative
    assert not broken.finite
    assert len(broken.words) == 1
    assert broken.words[0].startswith("Not finite: ")
    # A recurrent state that is NaN stays so: steps 9, 10 and 11 of one task.
    assert f"at 3 of {N * T} steps" in broken.words[0]
    assert "kl                   not finite" in str(broken)
    assert "nan" not in str(broken)
    options = {"value": lambda z, context: context + z[0], "context": jnp.zeros((N, T)).at[1, 3].set(number)}
    heads = rl.diagnose(posterior, INPUTS, **options)
    assert not heads.informative
    # The same observation after both beliefs: an infinite value moves by infinity less infinity.
    assert heads.words[0].startswith(f"Not finite: value, value_moved, at 1 of {N * T} steps.")
    assert np.isfinite(heads.variations["entropy"].mean)
