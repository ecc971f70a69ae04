"""Checks without an exact belief: where the answer is known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recurrent_laplace as rl
from recurrent_laplace.monitoring.checks import order_sensitivity

N, T, D, F = 60, 12, 2, 3
KEYS = jax.random.split(jax.random.key(0), 4)
INPUTS = jax.random.normal(KEYS[0], (N, T, D))
MEMORY = rl.Memory(rl.GRU(D, 6, key=KEYS[1]), F, key=KEYS[2])
QUERIES = jax.random.normal(KEYS[3], (N, T, 1)).at[:, 0].set(jnp.nan)


def posterior_of(noise, **options):
    gaussian = rl.GaussianLikelihood(jnp.log(jnp.array([noise])))
    predictor = rl.Predictor(
        lambda z, x: jnp.stack([jnp.sum(z) * x[0], z[0]]),
        rl.JointLikelihood(("reward", "sign"), (gaussian, rl.BernoulliLikelihood(1))),
        context_size=1,
    )
    return rl.LikelihoodPosterior(MEMORY, predictor, **options)


def targets_of(posterior):
    """Targets sampled from the posterior's own predictions; the sign from its chance."""
    beliefs = jax.vmap(lambda x, q: posterior.unroll(x, queries=q))(INPUTS, QUERIES)
    predictive = posterior.predict(beliefs[:, :-1], QUERIES[:, 1:])
    random = np.random.default_rng(0)
    reward = predictive.mean()[..., 0] + predictive.stddev()[..., 0] * random.normal(size=(N, T - 1))
    sign = random.uniform(size=(N, T - 1)) < predictive.mean()[..., 1]
    return np.pad(np.stack([reward, sign], axis=-1), ((0, 0), (1, 0), (0, 0)), constant_values=np.nan)


def test_own_predictions_are_calibrated_and_those_of_a_smaller_noise_are_not():
    posterior = posterior_of(0.5)
    targets = targets_of(posterior)
    found = rl.diagnose(posterior, INPUTS, queries=QUERIES, targets=targets)
    reward, sign = found.predictions["reward"], found.predictions["sign"]
    count = N * (T - 1)
    assert abs(reward.coverage - 0.9) < 5 * 0.3 / np.sqrt(count)
    assert reward.pit_distance < 1.95 / np.sqrt(count)
    # The variance is proportional to the squared query, and known.
    assert reward.gain > 0.1
    assert np.isnan([sign.coverage, sign.pit_distance]).all()
    # The mean Brier score of chances p is the mean of p (1 - p), that of the best constant c (1 - c).
    assert 0 < sign.crps < 1
    assert "90% intervals cover" in str(found)
    narrow = rl.diagnose(posterior_of(0.05), INPUTS, queries=QUERIES, targets=targets).predictions["reward"]
    assert narrow.coverage < reward.coverage
    assert narrow.pit_distance > reward.pit_distance
    assert narrow.crps > reward.crps


def test_order_test_is_exact_without_memory_in_the_cell():
    memoryless = rl.Elman(D, 6, key=KEYS[1])
    memoryless = eqx.tree_at(lambda cell: cell.weight_hh, memoryless, jnp.zeros((6, 6)))
    conjugate = rl.ConjugatePosterior(rl.Memory(memoryless, F, key=KEYS[2]), key=KEYS[3])
    assert order_sensitivity(conjugate, INPUTS) < 1e-20
    # The mean of the last input alone: a shuffle replaces it by that of an independent one.
    last = rl.LaplacePosterior(rl.Memory(memoryless, F, key=KEYS[2]))
    assert order_sensitivity(last, INPUTS) == pytest.approx(1, abs=0.3)
    found = rl.diagnose(conjugate, INPUTS, exchangeable=True)
    assert found.order < 1e-20
    assert "Shuffling the inputs moves the mean by 0%" in str(found)


def test_predictions_decide_what_is_informative():
    """The baseline is the same head without the belief."""
    posterior = posterior_of(0.05, prior_stddev=0.05)
    options = {"queries": QUERIES, "targets": targets_of(posterior)}
    blind = rl.diagnose(posterior, INPUTS, baseline=posterior.predictor, **options)
    assert blind.informative
    assert blind.words[0].startswith("Predicts the next reward ")
    assert "judge the uncertainty by the intervals" in str(blind)
    reward = blind.explained["reward"]
    target = options["targets"][:, 1:, 0]
    assert reward.observation == pytest.approx(np.mean(target**2) / target.var(), rel=1e-6)
    features = jax.vmap(lambda x: MEMORY.unroll(x).features)(INPUTS)
    mean = jnp.sum(features, axis=-1)[:, :-1] * QUERIES[:, 1:, 0]
    assert reward.full == pytest.approx(np.mean((target - np.asarray(mean)) ** 2) / target.var(), rel=1e-6)


def test_martingale_test_of_a_belief_that_never_moves():
    memory = rl.Memory(MEMORY.cell, readout=rl.Affine(jnp.zeros((F, 6)), jnp.ones(F)))
    head = lambda z, x: jnp.sum(z, keepdims=True) * x[0]
    predictor = rl.Predictor(head, rl.GaussianLikelihood(jnp.zeros(1)), context_size=1)
    posterior = rl.LikelihoodPosterior(memory, predictor)
    found = rl.diagnose(posterior, INPUTS[:4], queries=QUERIES[:4], exchangeable=True)
    # Means stand still while variances fall.
    assert found.martingale.drift == 0
    assert 0 <= found.martingale.movement < 1e-3
    assert "Predictions of fixed queries drift by 0.0 standard errors" in str(found)
    assert rl.diagnose(rl.LaplacePosterior(MEMORY), INPUTS[:4], exchangeable=True).martingale is None


@pytest.mark.parametrize("streams", [None, 2])
def test_surprise_is_the_excess_of_the_negative_log_likelihood(streams):
    posterior = posterior_of(0.5)
    targets = jnp.asarray(targets_of(posterior))
    monitor = rl.Monitor(posterior, streams=streams)
    expand = (lambda x: x) if streams is None else (lambda x: jnp.stack([x, x]))
    read = []
    for t in range(4):
        options = {"query": expand(QUERIES[0, t]), "target": expand(targets[0, t])}
        reading = monitor.step(expand(INPUTS[0, t]), **options)
        assert np.all(reading.finite)
        read.append(np.ravel(reading.surprise)[-1])
    beliefs = posterior.unroll(INPUTS[0, :4], queries=QUERIES[0, :4])
    predictive = posterior.predict(beliefs[:-1], QUERIES[0, 1:4])
    expected = -predictive.log_prob(targets[0, 1:4]) - predictive.likelihood.entropy(predictive.outputs)[0]
    np.testing.assert_allclose(read, [0, *expected], rtol=1e-9, atol=1e-12)
    assert "surprise" in reading.scalars()
    # Zero on average if the predictions are right.
    beliefs = jax.vmap(lambda x, q: posterior.unroll(x, queries=q))(INPUTS, QUERIES)
    predictive = posterior.predict(beliefs[:, :-1], QUERIES[:, 1:])
    excess = -predictive.log_prob(targets[:, 1:]) - predictive.likelihood.entropy(predictive.outputs)[0]
    assert abs(np.mean(excess)) < 5 * np.std(excess) / np.sqrt(excess.size)


@pytest.mark.parametrize("streams", [None, 2])
def test_a_monitor_predicts_in_the_units_of_the_target(streams):
    posterior = posterior_of(0.5)
    monitor = rl.Monitor(posterior, streams=streams)
    expand = (lambda x: x) if streams is None else (lambda x: jnp.stack([x, x]))
    for x, query in zip(INPUTS[0, :3], QUERIES[0, :3], strict=True):
        reading = monitor.step(expand(x), query=expand(query))
    assert reading.finite.all()
    forecast = monitor.predict(expand(QUERIES[0, 3]))
    belief = posterior.unroll(INPUTS[0, :3], queries=QUERIES[0, :3])[-1]
    predictive = posterior.predict(belief, QUERIES[0, 3])
    one = (lambda x: x) if streams is None else (lambda x: x[1])
    np.testing.assert_allclose(one(forecast.mean["reward"]), predictive.mean()[:1], rtol=1e-10)
    np.testing.assert_allclose(one(forecast.stddev["sign"]), predictive.stddev()[1:], rtol=1e-10)
    assert str(forecast).startswith(f"next reward {predictive.mean()[0]:.2g} ± {predictive.stddev()[0]:.1g}")


def test_bad_input():
    laplace = rl.LaplacePosterior(MEMORY)
    with pytest.raises(ValueError, match=r"posterior must be an .* to predict, .*; got a LaplaceP"):
        rl.Monitor(laplace).predict(jnp.ones(1))
    with pytest.raises(ValueError, match=r"targets must be left out unless an .*; got a LaplacePosterior"):
        rl.diagnose(laplace, INPUTS, targets=QUERIES)
    posterior = posterior_of(0.5)
    with pytest.raises(ValueError, match=r"targets must have shape \(60, 12, 2\); got \(60, 12, 1\)"):
        rl.diagnose(posterior, INPUTS, queries=QUERIES, targets=QUERIES)
    with pytest.raises(ValueError, match=r"query must have shape \(1,\); got \(2,\)"):
        rl.Monitor(posterior).predict(jnp.ones(2))
    monitor = rl.Monitor(posterior)
    monitor.step(INPUTS[0, 0])  # the first input answers no query
    with pytest.raises(ValueError, match="query must be given to a LikelihoodPosterior"):
        monitor.step(INPUTS[0, 1])
    with pytest.raises(ValueError, match=r"target must have shape \(2,\); got \(3,\)"):
        monitor.step(INPUTS[0, 1], query=QUERIES[0, 1], target=np.zeros(3))
    with pytest.raises(ValueError, match=r"posterior must be an .* to predict, .*; got a LaplaceP"):
        rl.Monitor(laplace).step(INPUTS[0, 0], target=np.zeros(2))
    with pytest.raises(ValueError, match="targets must have a query and a target that are both known"):
        rl.diagnose(posterior, INPUTS, queries=np.full((N, T, 1), np.nan), targets=np.ones((N, T, 2)))


def with_bounded_query(noise=0.5):
    """A posterior whose head is bounded in the query: infinite queries have finite predictions."""
    predictor = rl.Predictor(
        lambda z, x: jnp.tanh(x[:1]) * z[:1],
        rl.GaussianLikelihood(jnp.log(jnp.array([noise]))),
        context_size=1,
    )
    return rl.LikelihoodPosterior(MEMORY, predictor)


def test_an_infinite_query_is_not_finite_although_the_belief_is():
    posterior = with_bounded_query()
    queries = QUERIES.at[3, 5].set(jnp.inf)
    assert jnp.isfinite(posterior.unroll(INPUTS[3], queries=queries[3]).entropy()).all()
    found = rl.diagnose(posterior, INPUTS, queries=queries, targets=jnp.ones((N, T, 1)))
    assert not found.informative
    assert not found.finite
    assert found.words[0].startswith(f"Not finite: queries, at 1 of {N * T} steps.")
    monitor = rl.Monitor(posterior)
    monitor.step(INPUTS[3, 0], query=QUERIES[3, 0])
    before = monitor.state
    assert not monitor.step(INPUTS[3, 5], query=queries[3, 5]).finite
    assert eqx.tree_equal((monitor.state.belief, monitor.state.state), (before.belief, before.state))
    for number in (np.inf, np.nan):
        with pytest.raises(ValueError, match=r"query must be finite; got \[\s*(inf|nan)\]"):
            monitor.predict(np.array([number]))


@pytest.mark.parametrize(
    ("index", "number", "message"),
    [
        ((2, 3, 0), np.inf, r"targets of the reward must be finite numbers, .* NaN for none; got \[inf\]"),
        ((2, 3, 1), 0.5, r"targets of the sign must be 0 or 1, .* NaN for none; got \[0.5\]"),
        ((), np.nan, "targets must have at least one that is known; all are NaN"),
    ],
)
def test_impossible_targets_are_refused(index, number, message):
    posterior, targets = posterior_of(0.5), jnp.ones((N, T, 2)).at[index].set(number)
    with pytest.raises(ValueError, match=message):
        rl.diagnose(posterior, INPUTS, queries=QUERIES, targets=targets)
    with pytest.raises(ValueError, match=message):
        rl.calibrate(posterior, INPUTS, queries=QUERIES, targets=targets)


def test_calibration_refuses_what_is_not_finite():
    posterior, targets = with_bounded_query(), jnp.ones((N, T, 1))
    with pytest.raises(ValueError, match="inputs must be finite; got inf in task 2 at step 3"):
        rl.calibrate(posterior, INPUTS.at[2, 3, 0].set(jnp.inf), queries=QUERIES, targets=targets)
    with pytest.raises(
        ValueError, match="queries must be finite, or NaN for none; got inf in task 1 at step 4"
    ):
        rl.calibrate(posterior, INPUTS, queries=QUERIES.at[1, 4].set(jnp.inf), targets=targets)


def test_a_linear_recurrence_is_called_a_clock(caplog):
    posterior = rl.LaplacePosterior(rl.Memory(rl.Linear(D, 6, key=KEYS[1])))
    entropy = jax.vmap(posterior.unroll)(INPUTS[:3]).entropy()
    np.testing.assert_allclose(entropy[1:], entropy[:-1], rtol=1e-12)
    assert posterior.is_clock
    rl.Monitor(posterior)
    assert "The recurrence is linear" in caplog.text
    assert "The recurrence is linear" in str(rl.diagnose(posterior, INPUTS))
    caplog.clear()
    rl.Monitor(rl.LaplacePosterior(MEMORY))
    assert not caplog.text
