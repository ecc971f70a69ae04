"""Shift alarms: false-alarm rate on clean episodes, and detection of shifts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from support.episodes import SIGNALS, T, clean_episodes, episode, reading_at, record, run_alarm

import recurrent_laplace as rl
from recurrent_laplace.monitoring.sequential import log_ratios, scores
from recurrent_laplace.monitoring.signals import signal_table


@pytest.fixture(scope="module")
def clean():
    return clean_episodes(900)


each_statistic = pytest.mark.parametrize("statistic", ["cusum", "shiryaev-roberts"])


def table_of(fit, one):
    return signal_table(one, fit.signals, fit.discount)


@each_statistic
def test_false_alarm_rate(clean, statistic):
    alarm = rl.ShiftAlarm.fit(clean, signals=SIGNALS, false_alarm_rate=0.05, statistic=statistic)
    fit = alarm.fitted
    assert fit.checked_episodes == 300
    random = np.random.default_rng(1)
    peaks = [scores(fit, table_of(fit, episode(random))).max() for _ in range(1000)]
    rate = np.mean(np.array(peaks) > fit.threshold)
    # Three standard errors of the new episodes and of the 300 that determine the threshold.
    assert abs(rate - 0.05) < 3 * np.sqrt(0.05 * 0.95 * (1 / 1000 + 1 / 300))
    assert abs(fit.checked_false_alarms - 15) < 3 * np.sqrt(2 * 15)


def test_episodes_of_different_lengths():
    """Episodes are stacked by length; the threshold and the check are those of each by itself."""
    random = np.random.default_rng(3)
    episodes = [episode(random, length=length) for length in random.choice([T - 20, T], 300)]
    fit = rl.ShiftAlarm.fit(episodes, signals=SIGNALS, false_alarm_rate=0.05).fitted
    highest = np.array([scores(fit, table_of(fit, one)).max() for one in episodes])
    # The 96th of 100, which one in 20 new episodes would exceed.
    np.testing.assert_allclose(fit.threshold, np.sort(highest[1::3])[95])
    assert fit.checked_false_alarms == np.sum(highest[2::3] > fit.threshold)


@each_statistic
def test_shifts_are_detected_soon(clean, statistic):
    fit = rl.ShiftAlarm.fit(clean, signals=SIGNALS, false_alarm_rate=0.01, statistic=statistic).fitted
    random = np.random.default_rng(2)
    delays = []
    for _ in range(100):
        table = table_of(fit, episode(random, shift_at=30, by=3.0))
        raised = np.flatnonzero(scores(fit, table) > fit.threshold)
        delays.append(raised[0] - 29 if len(raised) else np.inf)
    assert np.mean(np.isfinite(delays)) > 0.95
    assert 0 < np.median(delays) <= 10


def test_likelihood_ratios_average_to_one_on_the_fitted_episodes(clean):
    fit = rl.ShiftAlarm.fit(clean, signals=SIGNALS, false_alarm_rate=0.05).fitted
    ratios = np.concatenate([log_ratios(fit, table_of(fit, one)) for one in clean[0::3]])
    np.testing.assert_allclose(np.mean(np.exp(ratios), axis=0), 1)


@each_statistic
def test_online_scores_equal_offline_scores(clean, statistic):
    alarm = rl.ShiftAlarm.fit(clean, signals=SIGNALS, false_alarm_rate=0.05, statistic=statistic)
    random = np.random.default_rng(3)
    # The second episode must not depend on the first.
    for one in (episode(random), episode(random, shift_at=20, by=3.0)):
        expected = scores(alarm.fitted, table_of(alarm.fitted, one))
        outputs = run_alarm(alarm, one)
        np.testing.assert_allclose([output.score for output in outputs], expected / alarm.fitted.threshold)
        assert [bool(output.alarm) for output in outputs] == list(expected > alarm.fitted.threshold)


@each_statistic
def test_shifts_are_dated(clean, statistic):
    alarm = rl.ShiftAlarm.fit(clean, signals=SIGNALS, false_alarm_rate=0.01, statistic=statistic)
    random = np.random.default_rng(6)
    dated = []
    for _ in range(40):
        one = episode(random, shift_at=20, by=3.0)
        for t in range(T):
            output = alarm.step(reading_at(one, t), reward=0.0)
            if output.alarm:
                dated.append(t - output.since)
                break
    assert len(dated) > 35
    assert abs(np.median(dated) - 20) <= 4


def test_streams_are_independent(clean):
    alarm = rl.ShiftAlarm.fit(clean, false_alarm_rate=0.05, signals=["kl", "value_stddev"])
    random = np.random.default_rng(4)
    pair = [episode(random), episode(random, shift_at=10)]
    for t in range(30):
        readings = [reading_at(one, t) for one in pair]
        both = jax.tree.map(lambda a, b: np.stack([a, b]), *readings)
        output = alarm.step(both)
    assert output.alarm.tolist() == [False, True]
    alone = rl.ShiftAlarm(alarm.fitted)
    for t in range(30):
        single = alone.step(reading_at(pair[1], t))
    assert single.score == pytest.approx(output.score[1])


def test_alarm_of_a_real_monitor():
    keys = jax.random.split(jax.random.key(0), 4)
    memory = rl.Memory(rl.GRU(2, 4, key=keys[0]))
    value = rl.Affine.init(4, 1, key=keys[1])
    posterior = rl.LaplacePosterior(memory, covariance="diagonal", accumulate="none")
    monitor = rl.Monitor(posterior, value=lambda z, context: value(z), streams=60)
    inputs = jax.random.normal(keys[2], (12, 60, 2))
    episodes = record(monitor, inputs.swapaxes(0, 1))
    alarm = rl.ShiftAlarm.fit(episodes, false_alarm_rate=0.1, signals=["value_stddev", "value_moved", "kl"])
    monitor.reset()
    for x in inputs[:6]:
        clean = alarm.step(monitor.step(x))
    for x in inputs[6:]:
        shifted = alarm.step(monitor.step(10 * x))
    assert clean.alarm.mean() < 0.3
    assert shifted.alarm.mean() > 0.6
    other = rl.Monitor(rl.LaplacePosterior(memory), value=lambda z, context: value(z))
    with pytest.raises(ValueError, match="of another posterior"):
        alarm.step(other.step(jnp.zeros(2)))


def test_alarms_are_saved_alone_and_with_their_monitor(clean, tmp_path):
    alarm = rl.ShiftAlarm.fit(clean, signals=SIGNALS, false_alarm_rate=0.05)
    one = episode(np.random.default_rng(5))
    for t in range(5):
        alarm.step(reading_at(one, t), reward=0.0)
    monitor = rl.Monitor(rl.LaplacePosterior(rl.Memory(rl.GRU(2, 4, key=jax.random.key(0)))))
    monitor.alarm = alarm
    rl.save(tmp_path / "both", monitor)
    rl.save(tmp_path / "alone", alarm)
    expected = alarm.step(reading_at(one, 5), reward=0.5)
    for loaded in (rl.load(tmp_path / "both").alarm, rl.load(tmp_path / "alone")):
        assert loaded.step(reading_at(one, 5), reward=0.5) == expected


def test_bad_input(clean):
    with pytest.raises(ValueError, match=r"at least 300 for a false-alarm rate of 0\.01; got 9"):
        rl.ShiftAlarm.fit(clean[:9])
    for rate in (0.0, 1.0, -1, float("nan")):
        with pytest.raises(ValueError, match="false_alarm_rate must be"):
            rl.ShiftAlarm.fit(clean, false_alarm_rate=rate)
    with pytest.raises(ValueError, match="signals must be one of"):
        rl.ShiftAlarm.fit(clean, signals=["policy_moved"])
    with pytest.raises(ValueError, match="statistic must be one of"):
        rl.ShiftAlarm.fit(clean, statistic="t-test")
    constant = [dataclasses.replace(one, steps=one.steps.with_columns(kl=pl.lit(1.0))) for one in clean]
    with pytest.raises(ValueError, match="kl is constant in all clean episodes"):
        rl.ShiftAlarm.fit(constant, signals=["kl"])
    mixed = [*clean[:-1], dataclasses.replace(clean[-1], source="b")]
    with pytest.raises(ValueError, match="must all come from one posterior"):
        rl.ShiftAlarm.fit(mixed)
    alarm = rl.ShiftAlarm.fit(clean, signals=SIGNALS)
    with pytest.raises(ValueError, match="reward must be given"):
        alarm.step(reading_at(clean[0], 0))
    with pytest.raises(ValueError, match="of another posterior"):
        alarm.step(reading_at(clean[0], 0, source="b"), reward=0.0)
    with pytest.raises(ValueError, match="reading has no value_stddev"):
        alarm.step(reading_at(clean[0], 0, value_stddev=None), reward=0.0)
