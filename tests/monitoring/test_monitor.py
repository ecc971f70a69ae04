"""A belief that is watched: online readings against whole sequences."""

import logging

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.registry import assert_close

import recurrent_laplace as rl
from recurrent_laplace.monitoring.readings import policy_kl

D, H, F, T, N, K = 3, 5, 4, 7, 3, 2
KEYS = jax.random.split(jax.random.key(0), 8)
MEMORY = rl.Memory(rl.LSTM(D, H, dtype=jnp.float64, key=KEYS[0]), F, key=KEYS[1])
INPUTS = jax.random.normal(KEYS[2], (T, N, D), jnp.float64)
RESETS = np.zeros((T, N), bool)
RESETS[4, 1] = RESETS[2, 0] = True
POLICY = rl.Affine.init(F + 1, K, dtype=jnp.float64, key=KEYS[3])
VALUE = rl.Affine.init(F + 1, 1, dtype=jnp.float64, key=KEYS[4])


class OnContext(eqx.Module):
    """A head that sees a number beside the belief."""

    layer: rl.Affine

    def __call__(self, z, context):
        return self.layer(jnp.append(z, context))


def posteriors():
    return {
        "dense": rl.LaplacePosterior(MEMORY, covariance="dense"),
        "window": rl.LaplacePosterior(MEMORY, covariance="diagonal", accumulate="none", window=3),
        "variational": rl.VariationalPosterior(MEMORY, covariance="dense", key=KEYS[5]),
        "conjugate": rl.ConjugatePosterior(MEMORY, forgetting=0.9, key=KEYS[5]),
        "likelihood": likelihood(accumulate="none", window=3),
        "likelihood-accumulated": likelihood(),
    }


def likelihood(**options):
    predictor = rl.Predictor(lambda z, x: z[:1] * x, rl.BernoulliLikelihood(1), context_size=1)
    return rl.LikelihoodPosterior(MEMORY, predictor, **options)


# The first input of an episode answers no query.
QUERIES = np.where(RESETS | (np.arange(T) == 0)[:, None], np.nan, np.cos(np.arange(T))[:, None])[..., None]


@pytest.mark.parametrize("name", posteriors())
def test_readings_are_those_of_the_unrolled_sequences(name):
    posterior = posteriors()[name]
    monitor = rl.Monitor(posterior, streams=N)
    queries = QUERIES if posterior.query_size else [None] * T
    readings = [monitor.step(INPUTS[t], RESETS[t], query=queries[t]) for t in range(T)]
    assert all(reading.finite.all() for reading in readings)
    for stream in range(N):
        resets = jnp.asarray(RESETS[:, stream])
        query = jnp.asarray(QUERIES[:, stream]) if posterior.query_size else None
        beliefs = posterior.unroll(INPUTS[:, stream], resets, queries=query)
        expected = {
            "entropy": beliefs.entropy(),
            "kl": posterior.consecutive_kl(beliefs, resets),
            "mean": beliefs.mean,
            "stddev": jnp.sqrt(beliefs.variance()),
        }
        for field, values in expected.items():
            got = np.stack([getattr(reading, field)[stream] for reading in readings])
            assert_close(got, values)
    assert [reading.step[0] for reading in readings] == [1, 2, 1, 2, 3, 4, 5]


def test_one_stream_has_no_axis_and_its_mahalanobis_is_a_part_of_its_kl():
    posterior = posteriors()["dense"]
    monitor = rl.Monitor(posterior)
    for t in range(3):
        reading = monitor.step(INPUTS[t, 0])
    assert reading.entropy.shape == ()
    assert reading.mean.shape == (F,)
    beliefs = posterior.unroll(INPUTS[:3, 0])
    assert_close(reading.mahalanobis, beliefs[2].mahalanobis(beliefs[1]))
    assert 0 < reading.mahalanobis < reading.kl
    assert set(reading.scalars()) == {"entropy", "kl", "mahalanobis", "step"}
    monitor.reset()
    assert monitor.step(INPUTS[0, 0]).step == 1


def test_predictive_readings_of_affine_heads_are_exact():
    posterior = posteriors()["dense"]
    monitor = rl.Monitor(posterior, policy=OnContext(POLICY), value=OnContext(VALUE), samples=2000)
    context = jnp.linspace(-1, 1, T)
    for t in range(T):
        reading = monitor.step(INPUTS[t, 0], context=context[t])
    beliefs = posterior.unroll(INPUTS[:, 0])
    now, before = beliefs[-1], beliefs[-2]
    weight = VALUE.weight[0, :F]
    assert_close(reading.value, OnContext(VALUE)(now.mean, context[-1])[0])
    assert_close(reading.value_stddev, jnp.sqrt(weight @ now.covariance() @ weight))
    # The same observation: what is left is the belief's own movement.
    assert_close(reading.value_moved, weight @ (now.mean - before.mean))
    new, old = (jax.nn.log_softmax(OnContext(POLICY)(b.mean, context[-1])) for b in (now, before))
    assert_close(reading.policy_moved, jnp.sum(jnp.exp(new) * (new - old)))
    # Two actions: the KL depends on z through the difference of the logits alone, which is normal.
    difference = POLICY.weight[1, :F] - POLICY.weight[0, :F]
    spread = jnp.sqrt(difference @ now.covariance() @ difference)
    at_mean = jnp.diff(reading.policy)[0]
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    kls = [policy_kl(jnp.array([0.0, at_mean + spread * node]), reading.policy) for node in nodes]
    expected = np.dot(kls, weights) / np.sqrt(2 * np.pi)
    assert reading.policy_disagreement == pytest.approx(expected, rel=0.1)


def test_kl_of_continuous_policies():
    first = (jnp.array([0.3, -1.0]), jnp.array([0.1, -0.4]))
    second = (jnp.array([0.0, 0.5]), jnp.array([-0.2, 0.3]))
    as_beliefs = [rl.DiagonalGaussian(mean, jnp.exp(-2 * log_stddev)) for mean, log_stddev in (first, second)]
    assert_close(policy_kl(first, second), as_beliefs[0].kl(as_beliefs[1]))


@pytest.mark.parametrize("name", ["dense", "window", "likelihood", "likelihood-accumulated"])
def test_memory_does_not_grow(name):
    posterior = posteriors()[name]
    monitor = rl.Monitor(posterior)
    before = monitor.nbytes
    for t in range(T):
        monitor.step(INPUTS[t, 0], query=QUERIES[t, 0] if posterior.query_size else None)
    assert monitor.nbytes == before


def test_all_history_grows_and_says_what_it_costs(caplog):
    posterior = rl.LaplacePosterior(MEMORY, covariance="diagonal", accumulate="none", window=None)
    monitor = rl.Monitor(posterior, streams=2)
    inputs = jax.random.normal(KEYS[6], (70, 2, D), jnp.float64)
    with caplog.at_level(logging.WARNING, logger="recurrent_laplace"):
        for x in inputs:
            reading = monitor.step(x)
    (record,) = caplog.records
    assert "full with 64 inputs: room for 128" in record.getMessage()
    assert_close(reading.entropy[1], posterior.unroll(inputs[:, 1]).entropy()[-1])


def test_bad_input():
    posterior = posteriors()["dense"]
    with pytest.raises(ValueError, match="got a PointPosterior"):
        rl.Monitor(rl.PointPosterior(MEMORY))
    with pytest.raises(ValueError, match="streams must be a whole number"):
        rl.Monitor(posterior, streams=0)
    with pytest.raises(ValueError, match=r"x must have shape \(3,\); got \(4,\)"):
        rl.Monitor(posterior).step(jnp.zeros(4))
    with pytest.raises(ValueError, match=r"reset must be one boolean or have shape \(2,\)"):
        rl.Monitor(posterior, streams=2).step(jnp.zeros((2, D)), np.zeros(3, bool))
    with pytest.raises(ValueError, match="value must return one number"):
        rl.Monitor(posterior, value=lambda z, context: z).step(jnp.zeros(D))
    with pytest.raises(ValueError, match="policy must return logits"):
        rl.Monitor(posterior, policy=lambda z, context: z[None]).step(jnp.zeros(D))


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("name", [*posteriors(), "history"])
def test_an_input_that_is_not_finite_is_flagged_and_not_remembered(name, number):
    history = rl.LaplacePosterior(MEMORY, covariance="diagonal", accumulate="none", window=None)
    posterior = (posteriors() | {"history": history})[name]
    monitor, alone = rl.Monitor(posterior, streams=2), rl.Monitor(posterior, streams=2)
    queries = [{"query": jnp.full((2, 1), t)} if posterior.query_size else {} for t in range(4)]
    for t in range(2):
        assert monitor.step(INPUTS[t, :2], **queries[t]).finite.tolist() == [True, True]
        alone.step(INPUTS[t, :2], **queries[t])
    broken = monitor.step(INPUTS[2, :2].at[0, 1].set(number), **queries[2])
    expected = alone.step(INPUTS[2, :2], **queries[2])
    assert broken.finite.tolist() == [False, True]
    assert broken.step.tolist() == [3, 3]
    assert broken.kl[1] == expected.kl[1]
    # The other stream has taken this step; the broken one goes on from where it was.
    one = rl.Monitor(posterior)
    for t in (0, 1, 3):
        skipped = one.step(INPUTS[t, 0], **{name: query[0] for name, query in queries[t].items()})
    after, expected = monitor.step(INPUTS[3, :2], **queries[3]), alone.step(INPUTS[3, :2], **queries[3])
    assert after.finite.all()
    assert_close(after.mean[0], skipped.mean)
    assert_close(after.kl[0], skipped.kl)
    assert after.entropy[1] == expected.entropy[1]


def test_a_reset_with_an_input_that_is_not_finite_is_a_reset():
    monitor = rl.Monitor(posteriors()["dense"])
    monitor.step(INPUTS[0, 0])
    assert not monitor.step(np.full(D, np.nan), reset=True).finite
    expected = rl.Monitor(posteriors()["dense"]).step(INPUTS[1, 0])
    assert_close(monitor.step(INPUTS[1, 0]).kl, expected.kl)


def test_heads_that_are_not_finite_are_flagged():
    monitor = rl.Monitor(posteriors()["dense"], value=lambda z, context: jnp.log(context) + z[0])
    assert monitor.step(INPUTS[0, 0], context=1.0).finite
    broken = monitor.step(INPUTS[1, 0], context=-1.0)
    assert not broken.finite
    assert np.isfinite(broken.entropy)
    assert monitor.step(INPUTS[2, 0], context=1.0).finite
    # The belief itself was finite, and was kept.
    assert_close(monitor.state.belief.mean, posteriors()["dense"].unroll(INPUTS[:3, 0])[-1].mean)
