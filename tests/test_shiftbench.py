"""Scores of episodes against plain loops, and the benchmark of alarms from end to end."""

import dataclasses
import io

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from rich.console import Console

import recurrent_laplace as rl
from recurrent_laplace.deploy import scores as scores_module
from recurrent_laplace.deploy.regression_scores import (
    exact_value_surprise,
    prediction_errors,
    watch_functions,
)
from recurrent_laplace.deploy.scores import (
    Baselines,
    Watched,
    belief_scores,
    ensemble_scores,
    play_episodes,
    read_episodes,
    td_errors,
    watched_by,
)
from recurrent_laplace.deploy.shiftbench import COMBINED, ShiftConfig, shiftbench
from recurrent_laplace.evaluation.oracles.regression import SeriesOracle
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.learning.rollout import Experience
from recurrent_laplace.models import with_posterior
from recurrent_laplace.report.shiftbench import overview_table, write_shift_page
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


def test_td_errors_are_those_of_a_loop():
    value, reward, end = RANDOM.normal(size=(E, T)), RANDOM.normal(size=(E, T)), RANDOM.random((E, T)) < 0.3
    found = td_errors(
        reading_of(value=value), experience_of(previous_reward=reward, episode_end=end), discount=0.8
    )
    for e in range(E):
        assert found[e, 0] == 0
        for t in range(1, T):
            beyond = 0.0 if end[e, t - 1] else 0.8 * value[e, t]
            assert found[e, t] == pytest.approx(reward[e, t] + beyond - value[e, t - 1])


def watched_of(hidden: np.ndarray, inputs: np.ndarray) -> Watched:
    return Watched(experience_of(), jnp.asarray(inputs), None, jnp.asarray(hidden))


def test_baselines_are_those_of_their_definitions(monkeypatch):
    monkeypatch.setattr(scores_module, "NEAREST", 3)
    monkeypatch.setattr(scores_module, "RECENT", 4)
    hidden, inputs = RANDOM.normal(size=(E, T, 4)), RANDOM.normal(size=(E, T, 3))
    clean = watched_of(hidden, inputs)
    others = RANDOM.normal(size=(E, T, 4)) + 2
    baselines = Baselines(clean)
    found, again = (
        baselines.scores(watched_of(others, inputs), reading_of(mean=others[..., :2])) for _ in range(2)
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
    config = rl.AgentConfig(hidden_size=8, features=4, embedding_sizes=(8,), head_sizes=(8,))
    return [
        rl.Agent.init(
            config,
            rl.PosteriorConfig(kind="point"),
            observation_size=task.observation_size,
            actions=task.actions,
            policy_input=task.policy_input,
            key=jax.random.key(seed),
        )
        for seed in range(3)
    ]


def test_an_ensemble_of_twins_does_not_disagree(agents):
    size = rl.Gridworld(size=3).observation_size
    observation = jax.random.normal(jax.random.key(0), (E, T, size))
    played = Watched(experience_of(observation=observation), observation, None, observation)
    same = ensemble_scores([agents[0], agents[0]], played)
    others = ensemble_scores(agents, played)
    for name in same:
        np.testing.assert_allclose(same[name], 0, atol=1e-6)
        assert (others[name] > 0).all()


def test_another_network_follows_the_same_episodes(agents):
    """What it reads is what it would have read had it been there."""
    task, key = rl.Gridworld(size=3), jax.random.key(0)
    player, follower = agents[0], with_posterior(agents[1], rl.PosteriorConfig(kind="laplace"), key=key)
    learning = LearningConfig(acting_samples=1)
    played = play_episodes(player, task, learning, episodes=E, steps=T, key=key)
    watched = watched_by(follower, played)
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
    config = rl.AgentConfig(hidden_size=8, features=4, embedding_sizes=(8,), head_sizes=(8,))
    model = rl.Regressor.init(config, rl.PosteriorConfig(kind="laplace"), key=jax.random.key(0))
    played = watch_functions(model, task, "none", functions=E, steps=T, at=4, key=jax.random.key(1))
    x, y = played.experience
    errors = prediction_errors(read_episodes(model, played), played)
    surprise = exact_value_surprise(task, played)
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
            belief = oracle.observe(belief, x[e, t, 0], y[e, t, 0])


@pytest.mark.slow
def test_functions_that_change_are_noticed():
    """An untrained regressor: prediction errors tell of values of twice the size."""
    config = rl.AgentConfig(hidden_size=8, features=4, embedding_sizes=(8,), head_sizes=(8,))
    model = rl.Regressor.init(config, rl.PosteriorConfig(kind="point"), key=jax.random.key(0))
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


@pytest.mark.slow
def test_the_benchmark_from_end_to_end(agents):
    """Untrained agents: what is there, what is finite, and that nothing new raises no more than it may."""
    config = ShiftConfig(episodes=30, steps=20, at=10, false_alarm_rate=0.2)
    task = rl.Gridworld(size=3)
    said: list[str] = []
    frame = shiftbench(
        agents,
        task,
        LearningConfig(acting_samples=1),
        config,
        shifts=["moved", "horizon", "new_task"],
        beside={
            "VRNN": [with_posterior(agents[0], rl.PosteriorConfig(kind="variational"), key=jax.random.key(0))]
        },
        say=said.append,
    )
    assert len(said) == 3 * len(agents)
    assert set(COMBINED) | {
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
    assert "0.5 is wanted" in printed["new_task"]
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
