"""Scores of episodes against plain loops, and the benchmark of alarms from end to end."""

import dataclasses
import io

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from rich.console import Console
from support.models import small_agent, small_config

import recurrent_laplace as rl
from recurrent_laplace.evaluation.play import RolloutTrace, play_episodes, replayed_by
from recurrent_laplace.evaluation.shifts import scores as scores_module
from recurrent_laplace.evaluation.shifts.regression_scores import (
    exact_value_surprise,
    observe_functions,
    prediction_errors,
)
from recurrent_laplace.evaluation.shifts.scores import (
    Baselines,
    alarm_scores,
    belief_scores,
    ensemble_scores,
    read_episodes,
)
from recurrent_laplace.evaluation.shifts.study import ALARMS, COMBINED, ShiftConfig, shiftbench
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.models import with_posterior
from recurrent_laplace.monitoring.episode import Episode
from recurrent_laplace.monitoring.signals import signal_table
from recurrent_laplace.oracles.regression import SeriesOracle
from recurrent_laplace.report.shiftbench import overview_table, write_shift_page
from recurrent_laplace.tasks.experience import Experience
from recurrent_laplace.tasks.shifts import SHIFTS

E, T = 5, 9
RANDOM = np.random.default_rng(0)


def experience_of(**changes) -> Experience:
    """Episodes of nothing in particular."""
    zeros = jnp.zeros((E, T))
    fields = {
        "observation": jnp.zeros((E, T, 2)),
        "previous_action": zeros.astype(int),
        "previous_reward": zeros,
        "action": zeros.astype(int),
        "log_prob": zeros,
        "value": jnp.zeros((E, T + 1)),
        "reward": zeros,
        "regret": zeros,
        "episode_end": zeros.astype(bool),
    }
    return Experience(**fields | changes)


def reading_of(**changes) -> rl.Reading:
    zeros = np.zeros((E, T))
    fields = {"entropy": zeros, "kl": zeros, "mahalanobis": zeros, "step": zeros.astype(int)}
    return rl.Reading(**fields | {"mean": zeros[..., None], "stddev": zeros[..., None]} | changes)


def trace_of(hidden: np.ndarray, inputs: np.ndarray) -> RolloutTrace:
    return RolloutTrace(experience_of(), jnp.asarray(inputs), None, jnp.asarray(hidden))


def test_baselines_are_those_of_their_definitions(monkeypatch):
    monkeypatch.setattr(scores_module, "NEAREST", 3)
    monkeypatch.setattr(scores_module, "RECENT", 4)
    hidden, inputs = RANDOM.normal(size=(E, T, 4)), RANDOM.normal(size=(E, T, 3))
    clean = trace_of(hidden, inputs)
    others = RANDOM.normal(size=(E, T, 4)) + 2
    baselines = Baselines(clean)
    found, again = (
        baselines.scores(trace_of(others, inputs), reading_of(mean=others[..., :2])) for _ in range(2)
    )
    # By chance alone: other episodes must not have the same numbers.
    assert not np.any(found["random"] == again["random"])
    flat = hidden.reshape(-1, 4)
    center, precision = flat.mean(axis=0), np.linalg.inv(np.cov(flat.T) + 1e-6 * np.eye(4))
    for e, t in np.ndindex(E, T):
        h = others[e, t]
        distances = np.sort(np.linalg.norm(flat - h, axis=-1))
        assert found["kNN of the state"][e, t] == pytest.approx(distances[2], rel=1e-6)
        distance = np.sqrt((h - center) @ precision @ (h - center))
        assert found["Mahalanobis of the state"][e, t] == pytest.approx(distance, rel=1e-5)
        before = others[e, t - 1] if t else np.zeros(4)
        assert found["jump of the state"][e, t] == pytest.approx(np.linalg.norm(h - before), rel=1e-6)
        before = others[e, t - 1, :2] if t else np.zeros(2)
        assert found["jump of the mean"][e, t] == pytest.approx(np.linalg.norm(h[:2] - before), rel=1e-6)
        window = slice(max(0, t - 3), t + 1)
        recent = inputs[e, window]
        drift = np.linalg.norm(
            (recent - inputs.mean(axis=0)[max(0, t + 1 - len(recent)) : t + 1]).mean(axis=0)
        )
        alike = np.linalg.norm((recent / np.linalg.norm(recent, axis=-1, keepdims=True)).mean(axis=0))
        assert found["two statistics of the inputs"][e, t] == pytest.approx(drift + alike, rel=1e-5)


@pytest.fixture(scope="module")
def agents() -> list[rl.Agent]:
    task = rl.Gridworld(size=3)
    return [small_agent(task, rl.PointConfig(), key=jax.random.key(seed)) for seed in range(3)]


def test_an_ensemble_of_twins_does_not_disagree(agents):
    size = rl.Gridworld(size=3).observation_size
    observation = jax.random.normal(jax.random.key(0), (E, T, size))
    played = RolloutTrace(experience_of(observation=observation), observation, None, observation)
    same = ensemble_scores([agents[0], agents[0]], played)
    others = ensemble_scores(agents, played)
    for name in same:
        np.testing.assert_allclose(same[name], 0, atol=1e-6)
        assert (others[name] > 0).all()


def test_another_network_follows_the_same_episodes(agents):
    """What it reads is what it would have read had it been there."""
    task, key = rl.Gridworld(size=3), jax.random.key(0)
    player, follower = agents[0], with_posterior(agents[1], rl.LaplaceConfig(), key=key)
    learning = LearningConfig(acting_samples=1)
    played = play_episodes(player, task, learning, episodes=E, steps=T, key=key)
    watched = replayed_by(follower, played)
    found = belief_scores("other", read_episodes(follower, watched))
    experience = played.experience
    for e in range(E):
        inputs, _ = follower.embed(
            experience.observation[e], experience.previous_action[e], experience.previous_reward[e]
        )
        np.testing.assert_allclose(
            found["other: entropy"][e], follower.posterior.unroll(inputs).entropy(), rtol=1e-4, atol=1e-4
        )
    assert not np.allclose(watched.hidden, played.hidden)


@pytest.mark.slow
def test_errors_and_surprise_of_a_regressor_are_those_of_a_loop():
    """The prediction before a value, and Bayesian linear regression before it."""
    task = rl.Regression()
    model = rl.Regressor.init(small_config(), rl.LaplaceConfig(), key=jax.random.key(0))
    played = observe_functions(model, task, "none", functions=E, steps=T, at=4, key=jax.random.key(1))
    x, y = played.experience
    errors = prediction_errors(read_episodes(model, played), played)
    surprise = exact_value_surprise(SeriesOracle(task), played)
    oracle = SeriesOracle(task)
    for e in range(E):
        means = model.posterior.unroll(model.embed(x[e], y[e])).mean
        belief = oracle.prior()
        for t in range(T):
            before = means[t - 1] if t else jnp.zeros_like(means[0])
            expected = y[e, t, 0] - model.predict(before[None], x[e, t]).mean[0]
            np.testing.assert_allclose(errors[e, t], expected, rtol=1e-3, atol=1e-4)
            density = jnp.exp(belief.predict(x[e, t]).log_prob(y[e, t]))
            np.testing.assert_allclose(
                surprise[e, t], -jnp.log(jnp.maximum(density, 1e-6)), rtol=2e-2, atol=1e-2
            )
            belief = oracle.observe(belief, x[e, t], y[e, t])


@pytest.mark.slow
def test_functions_that_change_are_noticed():
    """An untrained regressor: prediction errors tell of values of twice the size."""
    model = rl.Regressor.init(small_config(), rl.PointConfig(), key=jax.random.key(0))
    frame = shiftbench(
        [model],
        rl.Regression(),
        LearningConfig(steps=20),
        ShiftConfig(episodes=30, false_alarm_rate=0.2),
        shifts=["support", "horizon", "new_task"],
    )
    auroc = {(row["shift"], row["score"]): row["auroc"] for row in frame.iter_rows(named=True)}
    assert auroc["support", "prediction error"] > 0.75
    assert auroc["support", "exact surprise"] > 0.75
    assert abs(auroc["new_task", "random"] - 0.5) < 0.25
    assert "combined alarm" in frame["score"]


def test_the_alarm_that_is_benchmarked_is_the_one_that_ships(agents):
    """`ShiftAlarm` by default, on the same episodes: same signals, same numbers, same comparisons."""
    task, learning = rl.Gridworld(size=3), LearningConfig(acting_samples=1)
    played = play_episodes(agents[0], task, learning, episodes=60, steps=T, key=jax.random.key(0))
    watcher = with_posterior(agents[0], rl.LaplaceConfig(), key=jax.random.key(0))
    reading, experience = read_episodes(watcher, played), played.experience
    found = alarm_scores(reading, experience, learning.discount)
    episodes = [
        Episode.of(
            list(np.zeros((T, 1))),
            *([list(np.asarray(column[e])) for column in (experience.action, experience.reward)]),
            [jax.tree.map(lambda leaf, e=e, t=t: leaf[e, t], reading) for t in range(T)],
            ended=np.asarray(experience.episode_end[e]),
        )
        for e in range(60)
    ]
    fit = rl.ShiftAlarm.fit(episodes, false_alarm_rate=0.2, discount=learning.discount).fitted
    labels, given = zip(*COMBINED["combined alarm"], strict=True)
    assert fit.given == given
    for e, one in enumerate(episodes):
        table = signal_table(one, fit.signals, learning.discount)
        np.testing.assert_array_equal(table[:, :-1], np.stack([found[name][e] for name in labels], axis=-1))


@pytest.mark.slow
def test_the_benchmark_from_end_to_end(agents):
    """Untrained agents: what is there, what is finite, and that nothing new raises no more than it may."""
    config = ShiftConfig(episodes=30, steps=20, at=10, false_alarm_rate=0.2)
    task = rl.Gridworld(size=3)
    messages: list[str] = []
    frame = shiftbench(
        agents,
        task,
        LearningConfig(acting_samples=1),
        config,
        shifts=["moved", "horizon", "new_task"],
        baseline_models={"VRNN": [with_posterior(agents[0], rl.VariationalConfig(), key=jax.random.key(0))]},
        progress=messages.append,
    )
    assert len(messages) == 3 * len(agents)
    assert set(ALARMS) | {
        "exact surprise",
        "TD error",
        "random",
        "ensemble: stddev of the value",
        "VRNN: kl",
    } <= set(frame["score"])
    counts = frame.group_by("seed", "shift", "score").len()["len"]
    assert (counts == 1).all()
    assert frame["auroc"].is_between(0, 1).all()
    assert (frame["auroc_low"] <= frame["auroc"]).all()
    random = frame.filter(pl.col("score") == "random")
    assert ((random["auroc"] - 0.5).abs() < 0.25).all()
    again = shiftbench(
        agents[:1],
        task,
        dataclasses.replace(LearningConfig(), acting_samples=1),
        config,
        shifts=["moved"],
    )
    old = frame.filter((pl.col("seed") == 0) & (pl.col("shift") == "moved") & (pl.col("score") == "TD error"))
    new = again.filter(pl.col("score") == "TD error")
    assert old["auroc"].to_list() == new["auroc"].to_list()


def test_the_printed_table_is_for_eighty_columns(tmp_path):
    """All shifts, and the longest names; what is not in it is on the page."""
    long = "policy_disagreement, over the state, no accumulation"
    aurocs = {"combined alarm": 0.97, "combined alarm, no rewards": 0.93, "exact surprise": 0.99}
    aurocs |= {long: 0.81, "kl, accumulated": 0.61, "random": 0.95}
    shifts = [shift for shift in SHIFTS if shift != "none"]
    rows = [
        {
            **{"seed": seed, "shift": shift, "score": score, "auroc": auroc + 0.02 * seed},
            **{"aupr": 0.5, "fpr95": 0.5, "auroc_low": 0.0, "auroc_high": 1.0},
            **{"missed": 0.25, "false_alarms": 0.01, "delay": np.inf if shift == "slips" else 7.0},
        }
        for seed in range(2)
        for shift in shifts
        for score, auroc in aurocs.items()
    ]
    frame = pl.DataFrame(rows)
    text = io.StringIO()
    Console(file=text, width=80).print(overview_table(frame))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in text.getvalue()
    printed = {shift: next(line for line in lines if shift.replace("_", " ") in line) for shift in shifts}
    assert " ".join(printed["function_class"].split()).startswith("function class 0.98 0.94 7 25% 1.00 0.82")
    assert " ".join(printed["slips"].split()).startswith("slips 0.98 0.94 - 25% 1.00")
    assert "target 0.5" in printed["new_task"]
    # The best of the others, whole, in as many lines as it needs; chance is no score.
    begin = lines.index(printed["moved"])
    column = printed["moved"].index("0.82")
    assert " ".join(line[column:].strip() for line in lines[begin : begin + 4]).startswith(
        f"0.82 {long.replace('_', ' ')}"
    )
    assert "All 6 scores are on the page." in text.getvalue()
    assert "1.0% of clean episodes" in text.getvalue()

    write_shift_page(tmp_path / "page.html", frame, task="gridworld", agents=2, command="shiftbench")
    page = (tmp_path / "page.html").read_text()
    for score in aurocs:
        assert score.replace("_", " ") in page


def test_regressors_have_one_alarm():
    rows = [
        {"seed": 0, "shift": "moved", "score": score, "auroc": 0.9, "delay": 3.0, "missed": 0.0}
        for score in ("combined alarm", "prediction error", "exact surprise")
    ]
    text = io.StringIO()
    frame = pl.DataFrame(rows).with_columns(false_alarms=0.0)
    Console(file=text, width=80).print(overview_table(frame))
    assert "rewards" not in text.getvalue()
    assert "0.90 prediction error" in text.getvalue()
