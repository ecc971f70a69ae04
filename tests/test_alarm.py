"""Alarms: quiet on clean episodes at the rate that was asked for, loud when something changes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import recurrent_laplace as rl
from recurrent_laplace.deploy.alarm import log_ratios, scores
from recurrent_laplace.deploy.recording import Episode
from recurrent_laplace.deploy.signals import signal_table

T = 60
WATCHED = ("td_error", "value_stddev", "value")


def episode(random, *, shift_at=None, by=2.0, source="a", length=T):
    """Signals that drift with t, as beliefs do, and rise from `shift_at` on."""
    t = np.arange(1, length + 1)
    up = by * (t > shift_at) if shift_at is not None else 0.0
    noise = random.normal(size=(4, length))
    # Correlated over time, as readings are.
    noise[:, 1:] = 0.6 * noise[:, :-1] + 0.8 * noise[:, 1:]
    steps = pl.DataFrame(
        {
            "t": t,
            "reward": random.normal(size=length),
            "ended": np.zeros(length, bool),
            "action": np.zeros(length),
            "entropy": 10 - 0.1 * t + 0.2 * noise[0],
            "kl": np.exp(0.02 * t + 0.3 * (noise[1] + up)),
            "value": 0.1 * noise[2],
            "value_stddev": np.exp(-0.01 * t + 0.3 * (noise[3] + up)),
        }
    )
    return Episode(steps, np.zeros((length, 1)), source=source)


@pytest.fixture(scope="module")
def clean():
    random = np.random.default_rng(0)
    return [episode(random) for _ in range(900)]


@pytest.mark.parametrize("statistic", ["cusum", "shiryaev-roberts"])
def test_false_alarms_come_at_the_rate_that_was_asked_for(clean, statistic):
    alarm = rl.ShiftAlarm.fit(clean, signals=WATCHED, false_alarm_rate=0.05, statistic=statistic)
    fit = alarm.fitted
    assert fit.checked_episodes == 300
    random = np.random.default_rng(1)
    fresh = [signal_table(episode(random), fit.signals, fit.discount) for _ in range(1000)]
    rate = np.mean([scores(fit, table).max() > fit.threshold for table in fresh])
    # Three standard errors of the fresh episodes, and as many of the 300 behind the threshold.
    assert abs(rate - 0.05) < 3 * np.sqrt(0.05 * 0.95 * (1 / 1000 + 1 / 300))
    assert abs(fit.checked_false_alarms - 15) < 3 * np.sqrt(2 * 15)


def test_episodes_of_different_lengths():
    """They are worked on together where they can be: the threshold and the check are of each by itself."""
    random = np.random.default_rng(3)
    episodes = [episode(random, length=length) for length in random.choice([T - 20, T], 300)]
    fit = rl.ShiftAlarm.fit(episodes, signals=WATCHED, false_alarm_rate=0.05).fitted
    tables = [signal_table(one, fit.signals, fit.discount) for one in episodes]
    highest = np.array([scores(fit, table).max() for table in tables])
    # The 96th of 100, which one of 20 fresh ones would pass.
    np.testing.assert_allclose(fit.threshold, np.sort(highest[1::3])[95])
    assert fit.checked_false_alarms == np.sum(highest[2::3] > fit.threshold)


@pytest.mark.parametrize("statistic", ["cusum", "shiryaev-roberts"])
def test_changes_are_found_soon_after_they_happen(clean, statistic):
    alarm = rl.ShiftAlarm.fit(clean, signals=WATCHED, false_alarm_rate=0.01, statistic=statistic)
    random = np.random.default_rng(2)
    delays = []
    for _ in range(100):
        table = signal_table(
            episode(random, shift_at=30, by=3.0), alarm.fitted.signals, alarm.fitted.discount
        )
        raised = np.flatnonzero(scores(alarm.fitted, table) > alarm.fitted.threshold)
        delays.append(raised[0] - 29 if len(raised) else np.inf)
    assert np.mean(np.isfinite(delays)) > 0.95
    assert 0 < np.median(delays) <= 10


def test_the_ratio_is_one_on_average_where_it_was_fitted(clean):
    fit = rl.ShiftAlarm.fit(clean, signals=WATCHED, false_alarm_rate=0.05).fitted
    tables = [signal_table(one, fit.signals, fit.discount) for one in clean[0::3]]
    ratios = np.concatenate([log_ratios(fit, table) for table in tables])
    np.testing.assert_allclose(np.mean(np.exp(ratios), axis=0), 1)


def reading_at(one, t, **changes):
    row = one.steps.row(t, named=True)
    nothing = np.zeros(1)
    return dataclasses.replace(
        rl.Reading(
            entropy=row["entropy"],
            kl=row["kl"],
            mahalanobis=np.float64(0),
            mean=nothing,
            stddev=nothing,
            step=t + 1,
            value=row["value"],
            value_stddev=row["value_stddev"],
            source=one.source,
        ),
        **changes,
    )


@pytest.mark.parametrize("statistic", ["cusum", "shiryaev-roberts"])
def test_online_is_the_same(clean, statistic):
    alarm = rl.ShiftAlarm.fit(clean, signals=WATCHED, false_alarm_rate=0.05, statistic=statistic)
    random = np.random.default_rng(3)
    # The second episode must not see the first.
    for one in (episode(random), episode(random, shift_at=20, by=3.0)):
        expected = scores(alarm.fitted, signal_table(one, alarm.fitted.signals, alarm.fitted.discount))
        rewards = [0.0, *one.steps["reward"]]
        said = [alarm.step(reading_at(one, t), reward=rewards[t]) for t in range(T)]
        np.testing.assert_allclose([now.score for now in said], expected / alarm.fitted.threshold)
        assert [bool(now.alarm) for now in said] == list(expected > alarm.fitted.threshold)


@pytest.mark.parametrize("statistic", ["cusum", "shiryaev-roberts"])
def test_changes_are_dated(clean, statistic):
    alarm = rl.ShiftAlarm.fit(clean, signals=WATCHED, false_alarm_rate=0.01, statistic=statistic)
    random = np.random.default_rng(6)
    dated = []
    for _ in range(40):
        one = episode(random, shift_at=20, by=3.0)
        for t in range(T):
            now = alarm.step(reading_at(one, t), reward=0.0)
            if now.alarm:
                dated.append(t - now.since)
                break
    assert len(dated) > 35
    assert abs(np.median(dated) - 20) <= 4


def test_streams_are_apart(clean):
    alarm = rl.ShiftAlarm.fit(clean, false_alarm_rate=0.05, signals=["kl", "value_stddev"])
    random = np.random.default_rng(4)
    pair = [episode(random), episode(random, shift_at=10)]
    for t in range(30):
        readings = [reading_at(one, t) for one in pair]
        both = jax.tree.map(lambda a, b: np.stack([a, b]), *readings)
        now = alarm.step(both)
    assert now.alarm.tolist() == [False, True]
    alone = rl.ShiftAlarm(alarm.fitted)
    for t in range(30):
        single = alone.step(reading_at(pair[1], t))
    assert single.score == pytest.approx(now.score[1])


def test_a_real_monitor_feeds_it():
    keys = jax.random.split(jax.random.key(0), 4)
    memory = rl.Memory(rl.GRU(2, 4, key=keys[0]))
    value = rl.Affine.init(4, 1, key=keys[1])
    posterior = rl.LaplacePosterior(memory, covariance="diagonal", accumulate="none")
    monitor = rl.Monitor(posterior, value=lambda z, seen: value(z), streams=60)
    inputs = jax.random.normal(keys[2], (12, 60, 2))
    readings = [monitor.step(x) for x in inputs]
    episodes = [
        Episode.of(
            list(np.zeros((12, 2))),
            [0] * 12,
            [0.0] * 12,
            [jax.tree.map(lambda leaf, i=i: leaf[i], reading) for reading in readings],
        )
        for i in range(60)
    ]
    alarm = rl.ShiftAlarm.fit(episodes, false_alarm_rate=0.1, signals=["value_stddev", "value_moved", "kl"])
    monitor.reset()
    for x in inputs[:6]:
        quiet = alarm.step(monitor.step(x))
    for x in inputs[6:]:
        loud = alarm.step(monitor.step(10 * x))
    assert quiet.alarm.mean() < 0.3
    assert loud.alarm.mean() > 0.6
    other = rl.Monitor(rl.LaplacePosterior(memory), value=lambda z, seen: value(z))
    with pytest.raises(ValueError, match="of another posterior"):
        alarm.step(other.step(jnp.zeros(2)))


def test_an_alarm_is_kept_with_its_monitor(clean, tmp_path):
    alarm = rl.ShiftAlarm.fit(clean, signals=WATCHED, false_alarm_rate=0.05)
    one = episode(np.random.default_rng(5))
    for t in range(5):
        alarm.step(reading_at(one, t), reward=0.0)
    monitor = rl.Monitor(rl.LaplacePosterior(rl.Memory(rl.GRU(2, 4, key=jax.random.key(0)))))
    monitor.alarm = alarm
    rl.save(tmp_path / "both", monitor)
    rl.save(tmp_path / "alone", alarm)
    expected = alarm.step(reading_at(one, 5), reward=0.5)
    for again in (rl.load(tmp_path / "both").alarm, rl.load(tmp_path / "alone")):
        now = again.step(reading_at(one, 5), reward=0.5)
        assert (now.score, now.alarm, now.since) == (expected.score, expected.alarm, expected.since)


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
    still = [dataclasses.replace(one, steps=one.steps.with_columns(kl=pl.lit(1.0))) for one in clean]
    with pytest.raises(ValueError, match="kl is constant in all clean episodes"):
        rl.ShiftAlarm.fit(still, signals=["kl"])
    mixed = [*clean[:-1], dataclasses.replace(clean[-1], source="b")]
    with pytest.raises(ValueError, match="must all come from one posterior"):
        rl.ShiftAlarm.fit(mixed)
    alarm = rl.ShiftAlarm.fit(clean, signals=WATCHED)
    with pytest.raises(ValueError, match="reward must be given"):
        alarm.step(reading_at(clean[0], 0))
    with pytest.raises(ValueError, match="of another posterior"):
        alarm.step(reading_at(clean[0], 0, source="b"), reward=0.0)
    with pytest.raises(ValueError, match="reading has no value_stddev"):
        alarm.step(reading_at(clean[0], 0, value_stddev=None), reward=0.0)
