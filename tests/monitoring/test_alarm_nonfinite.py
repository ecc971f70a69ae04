"""Shift alarms and non-finite numbers, which raise alarms and leave the statistics unchanged."""

import dataclasses
import json

import jax
import numpy as np
import polars as pl
import pytest
from support.episodes import SIGNALS, T, clean_episodes, episode, reading_at, run_alarm

import recurrent_laplace as rl
from recurrent_laplace.monitoring.sequential import scores
from recurrent_laplace.monitoring.signals import signal_table

RATE = 0.05


@pytest.fixture(scope="module")
def clean():
    return clean_episodes(300)


@pytest.fixture(scope="module")
def fit(clean):
    return rl.ShiftAlarm.fit(clean, signals=SIGNALS, false_alarm_rate=RATE).fitted


def with_value(one, column, t, number):
    """Episode with one entry replaced."""
    values = one.steps[column].to_numpy().astype(float).copy()
    values[t] = number
    return dataclasses.replace(one, steps=one.steps.with_columns(pl.Series(column, values)))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", ["value", "value_stddev", "entropy", "reward"])
def test_non_finite_numbers_raise_an_alarm_with_a_reason(fit, column, number):
    one = with_value(episode(np.random.default_rng(1)), column, 9, number)
    outputs = run_alarm(rl.ShiftAlarm(fit), one)
    raised = outputs.pop(10 if column == "reward" else 9)
    assert (raised.alarm, raised.score, raised.since) == (True, np.inf, 0)
    assert column in raised.reason.removeprefix("not finite: ").split(", ")
    assert all(output.reason == "" and np.isfinite(output.score) for output in outputs)
    assert not any(output.alarm for output in outputs)


@pytest.mark.parametrize("column", ["value", "value_stddev", "reward"])
@pytest.mark.parametrize("statistic", ["cusum", "shiryaev-roberts"])
def test_later_shifts_are_detected_as_without_them(clean, statistic, column):
    fit = rl.ShiftAlarm.fit(clean, signals=SIGNALS, false_alarm_rate=RATE, statistic=statistic).fitted
    random = np.random.default_rng(2)
    finite = [episode(random, shift_at=30, by=3.0) for _ in range(20)]
    broken = [with_value(one, column, 5, np.nan) for one in finite]
    detected, detected_broken = (
        [any(output.alarm for output in run_alarm(rl.ShiftAlarm(fit), one)[30:]) for one in episodes]
        for episodes in (finite, broken)
    )
    assert sum(detected) >= 19
    assert sum(detected_broken) == sum(detected)


def test_non_finite_signals_leave_the_statistic_unchanged(fit):
    alone = rl.ShiftAlarm(dataclasses.replace(fit, **first_signal(fit, "value_stddev")))
    one = episode(np.random.default_rng(3))
    for t in range(10):
        before = alone.step(reading_at(one, t))
    state = alone.to_json()["state"]
    assert alone.step(reading_at(one, 10, value_stddev=np.nan)).alarm
    assert alone.to_json()["state"][:2] == state[:2]
    assert np.isfinite(before.score)


def first_signal(fit, name):
    k = fit.signals.index(name)
    arrays = {key: getattr(fit, key)[k : k + 1] for key in ("scales", "tilts", "log_normalizers", "peaks")}
    return arrays | {"signals": (name,), "given": fit.given[k : k + 1], "tails": fit.tails[k : k + 1]}


def test_other_streams_are_unaffected(fit):
    random = np.random.default_rng(4)
    pair = [with_value(episode(random), "value", 5, np.nan), episode(random, shift_at=20, by=3.0)]
    together = rl.ShiftAlarm(fit)
    expected = run_alarm(rl.ShiftAlarm(fit), pair[1])
    rewards = [[0.0, *one.steps["reward"]] for one in pair]
    for t in range(T):
        both = jax.tree.map(lambda *leaves: np.stack(leaves), *(reading_at(one, t) for one in pair))
        output = together.step(both, reward=np.array([rewards[0][t], rewards[1][t]]))
        assert (output.score[1], output.since[1]) == (expected[t].score, expected[t].since)
        assert output.reason.tolist() == [("not finite: value, td_error" if t == 5 else ""), ""]
        assert output.alarm[0] == (t == 5)


def test_offline_scores_equal_online_scores(fit):
    one = with_value(episode(np.random.default_rng(5)), "value_stddev", 7, np.inf)
    table = signal_table(one, fit.signals, fit.discount)
    online = [output.score for output in run_alarm(rl.ShiftAlarm(fit), one)]
    np.testing.assert_allclose(online, scores(fit, table) / fit.threshold)


@pytest.mark.parametrize("column", ["value", "value_stddev", "reward"])
def test_fitting_excludes_non_finite_episodes_with_a_warning(clean, column):
    broken = [with_value(clean[0], column, 3, np.nan), with_value(clean[1], column, 4, np.inf)]
    with pytest.warns(UserWarning, match="2 of 302 episodes have inputs or signals that are not finite"):
        alarm = rl.ShiftAlarm.fit([*broken, *clean], signals=SIGNALS, false_alarm_rate=RATE)
    expected = rl.ShiftAlarm.fit(clean, signals=SIGNALS, false_alarm_rate=RATE)
    assert alarm.to_json() == expected.to_json()


def test_fitting_excludes_an_infinite_input_with_finite_signals(clean):
    """Infinite inputs can saturate all gates, so that beliefs and signals are finite."""
    inputs = clean[0].inputs.copy()
    inputs[3] = np.inf
    with pytest.warns(UserWarning, match="1 of 301 episodes have inputs or signals that are not finite"):
        rl.ShiftAlarm.fit([dataclasses.replace(clean[0], inputs=inputs), *clean], signals=SIGNALS)


def test_fitting_refuses_when_too_few_remain(clean):
    broken = [with_value(one, "value", 3, np.nan) for one in clean[:250]]
    with pytest.raises(
        ValueError, match=r"at least 60 .* got 50: 250 of 300 episodes have inputs or signals"
    ):
        rl.ShiftAlarm.fit([*broken, *clean[250:]], signals=SIGNALS, false_alarm_rate=RATE)


def test_the_state_after_non_finite_numbers_is_serialized(fit):
    alarm = rl.ShiftAlarm(fit)
    one = with_value(episode(np.random.default_rng(6), shift_at=8), "value", 5, np.nan)
    for t in range(6):
        alarm.step(reading_at(one, t), reward=0.0)
    again = rl.ShiftAlarm.from_json(json.loads(json.dumps(alarm.to_json())))
    for t in range(6, 20):
        assert again.step(reading_at(one, t), reward=0.0) == alarm.step(reading_at(one, t), reward=0.0)


def test_an_infinite_input_with_finite_readings_raises_an_alarm(fit):
    one = episode(np.random.default_rng(7))
    output = rl.ShiftAlarm(fit).step(reading_at(one, 0, finite=np.False_), reward=0.0)
    assert output.alarm
    assert output.reason == "not finite: the input of the monitor"
