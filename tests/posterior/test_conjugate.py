"""Conjugate posterior: against NumPy, and where it is exact."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.posteriors import assert_near, assert_same_beliefs, unroll, updates

import recurrent_laplace as rl

D, H, F, T = 3, 5, 4, 7
RESETS = np.array([False, False, False, True, False, True, False])
INPUTS = np.random.default_rng(1).normal(size=(T, D))


def conjugate(features=F, **options):
    keys = jax.random.split(jax.random.key(0), 3)
    memory = rl.Memory(rl.LSTM(D, H, key=keys[0]), features=features, key=keys[1])
    return rl.ConjugatePosterior(memory, key=keys[2], **options)


def softplus(x):
    return np.log1p(np.exp(x))


@pytest.mark.parametrize(
    ("options", "resets"),
    [
        ({}, None),  # a cumulative sum, the others are associative scans
        ({}, RESETS),
        ({"prior_stddev": 0.5, "forgetting": 0.8}, None),
        ({"prior_stddev": 0.5, "forgetting": 0.8, "features": None}, RESETS),
    ],
    ids=str,
)
def test_conjugate_by_hand(options, resets):
    posterior = conjugate(**options)
    memory, head = posterior.memory, posterior.precision_head
    results = [run(posterior, jnp.asarray(INPUTS), resets) for run in (unroll, updates)]
    carry = memory.init()
    precision, weighted = np.zeros(memory.feature_size), np.zeros(memory.feature_size)
    for t, x in enumerate(INPUTS):
        if resets is not None and resets[t]:
            carry, precision, weighted = memory.init(), np.zeros_like(precision), np.zeros_like(weighted)
        carry, phi = memory.step(carry, jnp.asarray(x))
        s = softplus(np.asarray(head.weight) @ np.asarray(carry[0]) + np.asarray(head.bias) - 3)
        precision = posterior.forgetting * precision + s
        weighted = posterior.forgetting * weighted + s * np.asarray(phi)
        total = posterior.prior_stddev**-2 + precision
        for beliefs, info in results:
            assert info.problems() == []
            assert_near(beliefs.precisions[t], total)
            assert_near(beliefs.mean[t], weighted / total)


def reader(noise_stddev):
    """A posterior whose memory only passes its input on, with measurements of known noise."""
    cell = rl.Linear(1, 1, use_bias=False, key=jax.random.key(0))
    one = jnp.ones((1, 1))
    cell = eqx.tree_at(lambda cell: (cell.weight_ih, cell.weight_hh), cell, (one, 0 * one))
    posterior = rl.ConjugatePosterior(rl.Memory(cell), prior_stddev=2.0, key=jax.random.key(1))
    bias = jnp.full(1, math.log(math.expm1(noise_stddev**-2)) + 3)
    return eqx.tree_at(lambda p: (p.precision_head.weight, p.precision_head.bias), posterior, (0 * one, bias))


def test_exact_for_measurements_of_a_constant():
    noise = 0.7
    values = 1.5 + noise * np.random.default_rng(2).normal(size=20)
    beliefs = reader(noise).unroll(jnp.asarray(values)[:, None])
    for t in range(1, 21):
        # Normal prior N(0, 2^2), Normal likelihood N(z, 0.7^2).
        variance = 1 / (1 / 4 + t / noise**2)
        np.testing.assert_allclose(beliefs.variance()[t - 1, 0], variance, rtol=1e-10)
        mean = variance * values[:t].sum() / noise**2
        np.testing.assert_allclose(beliefs.mean[t - 1, 0], mean, rtol=1e-10)


def test_order_of_inputs_does_not_matter_without_memory_in_the_cell():
    cell = conjugate().memory.cell
    memoryless = rl.Elman(D, H, key=jax.random.key(3))
    memoryless = eqx.tree_at(lambda cell: cell.weight_hh, memoryless, jnp.zeros((H, H)))
    last = {}
    for name, one in (("memoryless", memoryless), ("lstm", cell)):
        posterior = rl.ConjugatePosterior(
            rl.Memory(one, features=F, key=jax.random.key(4)), key=jax.random.key(5)
        )
        last[name] = [posterior.unroll(jnp.asarray(order))[-1] for order in (INPUTS, INPUTS[::-1])]
    assert_same_beliefs(*last["memoryless"])
    assert np.abs(last["lstm"][0].mean - last["lstm"][1].mean).max() > 1e-3


def test_untrained_factors_are_weak():
    precisions = conjugate().unroll(jnp.asarray(INPUTS)).precisions
    added = np.diff(np.vstack([np.ones(F), precisions]), axis=0)
    np.testing.assert_allclose(np.log(added), np.log(softplus(-3)), atol=0.8)


def test_gradient_in_every_parameter():
    def objective(posterior):
        beliefs = posterior.unroll(jnp.asarray(INPUTS))
        return jnp.sum(posterior.consecutive_kl(beliefs)) + jnp.sum(beliefs.sample(jax.random.key(0)) ** 2)

    gradient = jax.jit(jax.grad(objective))(conjugate(forgetting=0.9))
    for leaf in jax.tree.leaves(gradient):
        assert np.isfinite(leaf).all()
        assert np.abs(leaf).max() > 1e-6


def test_consecutive_kl_tends_to_zero():
    posterior = conjugate()
    inputs = jnp.asarray(np.random.default_rng(3).normal(size=(2000, D)))
    kl = posterior.consecutive_kl(posterior.unroll(inputs))
    assert kl[-100:].mean() < 0.01 * kl[:100].mean()


def test_forgetting_lets_the_belief_widen():
    posterior = conjugate(forgetting=0.5)
    precisions = posterior.unroll(jnp.zeros((50, D))).precisions
    # A sum of 0.5^i s has the limit 2 s.
    np.testing.assert_allclose(precisions[-1] - 1, 2 * (precisions[-1] - (precisions[-2] + 1) / 2), rtol=1e-5)


@pytest.mark.parametrize(("option", "bad"), [("prior_stddev", 0.0), ("forgetting", 0.0), ("forgetting", 1.5)])
def test_refused_options(option, bad):
    with pytest.raises(ValueError, match=f"{option} must be .*; got {bad}"):
        conjugate(**{option: bad})
    with pytest.raises(ValueError, match=f"{option} must be .*; got {bad}"):
        rl.ConjugateConfig(**{option: bad}).check()
