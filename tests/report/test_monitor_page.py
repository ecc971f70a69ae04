"""Page and printed table of episodes with non-finite readings."""

import html
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from support.episodes import monitored_episodes

import recurrent_laplace as rl
from recurrent_laplace.cli.monitor import episode_table, verdict_text
from recurrent_laplace.monitoring.episode import Episode
from recurrent_laplace.monitoring.forecast import forecast_episodes
from recurrent_laplace.report.forecasts import draw_forecasts
from recurrent_laplace.report.monitor import write_monitor_page

D, T = 2, 6


@pytest.fixture(scope="module")
def monitored():
    """Two episodes, the second with a NaN input and an infinite reward."""
    posterior = rl.LaplacePosterior(rl.Memory(rl.GRU(D, 3, key=jax.random.key(0))), covariance="diagonal")
    monitor = rl.Monitor(posterior, streams=2)
    inputs = np.random.default_rng(0).normal(size=(T, 2, D))
    inputs[3, 1] = np.nan
    rewards = [[1.0] * T, [1.0] * (T - 1) + [np.inf]]
    return monitor, monitored_episodes(monitor, inputs, actions=[0] * T, rewards=rewards)


def test_the_printed_table_says_not_finite(monitored):
    text = io.StringIO()
    Console(file=text, width=100).print(episode_table(monitored[1]))
    first, second = (line for line in text.getvalue().splitlines() if line.startswith(("│ 1", "│ 2")))
    assert "not finite" not in first
    # Return, entropy and KL.
    assert second.count("not finite") == 3
    assert "nan" not in text.getvalue()
    assert "inf" not in text.getvalue()


def test_the_page_says_not_finite(monitored, tmp_path):
    out = tmp_path / "page.html"
    write_monitor_page(out, *monitored, name="agent", environment="environment", command="command")
    page = out.read_text()
    assert '<span class="verdict not-reproduced">not finite</span> Not finite: ' in page
    assert '<td class="number-cell">not finite</td>' in page
    assert "a LaplacePosterior of 3 features (covariance diagonal, accumulate precision, window 1" in page
    assert ">nan" not in page
    assert ">inf<" not in page


@pytest.fixture(scope="module")
def predicted():
    """A fit to eight episodes whose rewards follow the features, and two monitored episodes."""
    memory = rl.Memory(rl.GRU(D, 3, key=jax.random.key(0)))
    random, recordings = np.random.default_rng(0), []
    for _ in range(8):
        inputs, actions = random.normal(size=(20, D)), random.integers(2, size=20)
        z = np.asarray(memory.unroll(jnp.asarray(inputs)).features)
        rewards = z.sum(axis=-1) + 0.1 * random.normal(size=20)
        # In other units than the inputs.
        recordings.append(rl.Recording(inputs, actions, rewards, 1000 * inputs))
    fit = rl.fit_predictor(rl.PointPosterior(memory), recordings, hidden_sizes=())
    monitor, episodes = rl.Monitor(fit.posterior), []
    for each in recordings[:2]:
        readings = []
        for t, x in enumerate(each.inputs):
            options = {"query": fit.queries(each)[t], "target": fit.targets(each)[t]}
            readings.append(monitor.step(x, reset=t == 0, **options))
        arrays = map(list, (each.inputs, each.actions, each.rewards))
        episodes.append(Episode.of(*arrays, readings, observations=list(each.observations)))
    return fit, monitor, episodes


def test_the_page_shows_forecasts_and_what_they_are_worth(predicted, tmp_path):
    fit, monitor, episodes = predicted
    out = tmp_path / "page.html"
    named = {"name": "agent", "environment": "environment", "command": "command"}
    write_monitor_page(out, monitor, episodes, **named, fit=fit)
    page = html.unescape(out.read_text())
    for sentence in str(fit).splitlines():
        assert sentence in page
    assert '<span class="verdict reproduced">informative</span> Predicts the next reward' in page
    assert page.count("<figure") == 5  # overview, and forecasts and readings of each episode
    assert "What is the belief worth?" in page
    assert "A clock" not in page
    assert ">nan" not in page
    assert " nan" not in page
    # Forecasts are those of the monitor, in the units of the observations.
    forecasts = forecast_episodes(
        monitor.posterior, monitor.posterior.likelihood, [rl.Recording.of(episodes[0])]
    )[0]
    assert np.abs(forecasts.target[:-1, 1:]).max() > 500
    monitor.reset()
    monitor.step(episodes[0].inputs[0])
    asked = fit.query(episodes[0].observations[0], 1)
    assert rl.Recording.of(episodes[0]).observations is episodes[0].observations
    if int(episodes[0].steps["action"][0]) != 1:
        asked = fit.query(episodes[0].observations[0], 0)
    np.testing.assert_allclose(monitor.predict(asked).mean["reward"][0], forecasts.mean[0, 0], rtol=1e-6)
    assert "Forecast at step 11 of what comes next: reward = " in page


def test_a_figure_of_forecasts_has_a_row_for_each_number(predicted):
    _, monitor, episodes = predicted
    likelihood = monitor.posterior.predictor.likelihood
    forecasts = forecast_episodes(
        monitor.posterior, monitor.posterior.likelihood, [rl.Recording.of(episodes[0])]
    )[0]
    figure = draw_forecasts(likelihood, forecasts)
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert [label.replace("\n", " ") for label in labels if label] == [
        "reward",
        "observation[0]",
        "observation[1]",
    ]
    left = figure.axes[0]
    line, points = left.get_lines()
    np.testing.assert_allclose(line.get_ydata(), forecasts.mean[:, 0])
    np.testing.assert_allclose(points.get_ydata(), forecasts.target[:, 0])
    # A forecast is drawn where its outcome arrives.
    assert line.get_xdata()[0] == 2
    outside = figure.axes[1].get_lines()[1].get_ydata()
    error = forecasts.target[:, 0] - forecasts.mean[:, 0]
    reach = 1.6448536269514722 * forecasts.stddev[:, 0]
    np.testing.assert_allclose(outside, error[np.abs(error) > reach])


def test_the_printed_verdict(predicted):
    text = verdict_text(predicted[0]).plain
    assert text.startswith("The belief is informative. Predicts the next reward ")
    assert "\n" not in text


def test_what_has_no_scale_is_not_in_the_summary(predicted, monitored):
    titles = [str(column.header) for column in episode_table(predicted[2]).columns]
    assert titles == ["episode", "steps", "return", "surprise"]
    titles = [str(column.header) for column in episode_table(monitored[1]).columns]
    assert titles == ["episode", "steps", "return", "entropy", "kl"]
