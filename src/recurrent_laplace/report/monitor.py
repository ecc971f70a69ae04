"""Page of a monitored agent: readings of its belief over time, with actions and rewards."""

import base64
import dataclasses
import io
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from recurrent_laplace.files import write_text
from recurrent_laplace.monitoring import Monitor, PredictorFit, Recording
from recurrent_laplace.monitoring.diagnose import diagnose_episodes
from recurrent_laplace.monitoring.episode import Episode, format_number
from recurrent_laplace.monitoring.forecast import forecast_episodes
from recurrent_laplace.monitoring.signals import finite_or_nan
from recurrent_laplace.monitoring.verdict import format_percent, judge
from recurrent_laplace.report.forecasts import draw_forecasts, example_of
from recurrent_laplace.report.page import PIXELS_PER_INCH, render_template
from recurrent_laplace.report.style import BLUE, OTHERS, STYLE, VERMILION

GLOSSARY = {
    "surprise": "Negative log-likelihood of this reward and observation under the forecast from the step "
    "before, less its expectation, in nats: 0 on average as long as the forecasts are right.",
    "entropy": "Entropy of the belief, in nats; lower is more certain. Only differences are meaningful.",
    "kl": "KL divergence of the belief from the belief one step before, in nats.",
    "mahalanobis": "The part of the KL that is due to the change of the mean.",
    "value": "The value head at the mean of the belief.",
    "value_stddev": "Standard deviation of the value under the belief, with the head linearised.",
    "value_moved": "Change of the value of the current observation due to the change of the belief.",
    "policy_entropy": "Entropy of the policy at the mean of the belief, in nats.",
    "policy_disagreement": "Mean KL, in nats, of the policies of belief samples from the policy at the mean.",
    "policy_moved": "KL, in nats, of the policy at this observation from that of the previous belief.",
}
"""Definition of each reading."""

LOGARITHMIC = ("kl", "mahalanobis", "policy_disagreement", "policy_moved")
OVERVIEW = ("surprise", "entropy", "kl", "value_stddev", "policy_disagreement")
WITHOUT_SCALE = ("entropy", "kl", "mahalanobis")
"""Readings that are left to the figures of episodes if there is a surprise, which has a scale."""
MOST_EPISODES = 12
"""Maximum number of episodes with their own figure."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure embedded in the page."""

    anchor: str
    title: str
    alt: str
    source: str
    width: int


def write_monitor_page(
    out: Path,
    monitor: Monitor,
    episodes: list[Episode],
    *,
    name: str,
    environment: str,
    command: str,
    fit: PredictorFit | None = None,
) -> None:
    """Write the page of some episodes of the agent `name` in an environment.

    `fit` is that of the monitored posterior, if it predicts.
    """
    posterior, forecasts, example = monitor.posterior, [], ""
    likelihood = posterior.likelihood
    if likelihood is not None:
        known = forecast_episodes(
            posterior, likelihood, [Recording.of(each) for each in episodes[:MOST_EPISODES]]
        )
        forecasts = [draw_forecasts(likelihood, each) for each in known]
        example = example_of(likelihood, known[0])
    pictures = [_picture("overview", "All episodes", draw_overview(episodes))]
    for number, episode in enumerate(episodes[:MOST_EPISODES], 1):
        if forecasts and number > 1:
            picture = _picture(f"forecasts-{number}", f"Episode {number}: forecasts", forecasts[number - 1])
            pictures.append(picture)
        pictures.append(_picture(f"episode-{number}", f"Episode {number}", draw_episode(episode)))
    html = render_template(
        "monitor",
        name=name,
        environment=environment,
        posterior=describe_posterior(monitor),
        fit=fit,
        verdict=None if fit is None else judge(fit.explained),
        sentences=[] if fit is None else str(fit).splitlines(),
        forecasts=_picture("forecasts", "Forecasts of episode 1", forecasts[0]) if forecasts else None,
        example=example,
        diagnosis=diagnose_episodes(monitor, episodes),
        compared=min(len(episode.steps) for episode in episodes),
        rows=[_summary(episode) for episode in episodes],
        number=format_number,
        percent=format_percent,
        pictures=pictures,
        glossary={key: text for key, text in GLOSSARY.items() if key in episodes[0].readings},
        command=command,
    )
    write_text(out, html)


def _summary(episode: Episode) -> dict[str, float]:
    """Summary of an episode, in which readings with a scale come first."""
    summary = episode.summary()
    names = leading_readings(list(summary), summary)
    return {name: summary[name] for name in [*names, *(each for each in summary if each not in names)]}


def describe_posterior(monitor: Monitor) -> str:
    """Short description of the posterior."""
    posterior = monitor.posterior
    names = [field.name for field in dataclasses.fields(posterior) if field.metadata.get("static")]
    values = {name: getattr(posterior, name) for name in names}
    options = ", ".join(f"{name} {_short(value)}" for name, value in values.items())
    features = f"a {type(posterior).__name__} of {posterior.memory.feature_size} features"
    return f"{features} ({options})" if options else features


def _short(value: Any) -> str:
    """Value of an option: numbers with three digits, and "all" for None, an unlimited window."""
    if value is None:
        return "all"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def leading_readings(names: Sequence[str], known: Collection[str]) -> list[str]:
    """Names that are known, without those that have no scale if there is a surprise."""
    left_out = WITHOUT_SCALE if "surprise" in known else ()
    return [name for name in names if name in known and name not in left_out]


def draw_overview(episodes: list[Episode]) -> Figure:
    """Draw some readings of all episodes in common panels."""
    names = leading_readings(OVERVIEW, episodes[0].readings)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.7 * len(names)), layout="constrained")
        rows = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
        colours = (BLUE, VERMILION, *OTHERS)
        for name, axes in zip(names, rows, strict=True):
            for index, episode in enumerate(episodes):
                colour = colours[index % len(colours)]
                label = f"episode {index + 1}" if index < len(colours) else None
                _line(axes, episode, name, colour, label)
            _label(axes, name)
        if len(episodes) <= len(colours):
            rows[0].legend(loc="best", ncols=min(len(episodes), 5), frameon=False)
        rows[-1].set_xlabel("step of the episode")
    return figure


def draw_episode(episode: Episode) -> Figure:
    """Draw all readings of one episode below its rewards and actions."""
    names = episode.readings
    steps = episode.steps
    t = steps["t"].to_numpy()
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 0.9 + 1.15 * (2 + len(names))), layout="constrained")
        rows = figure.subplots(2 + len(names), 1, sharex=True)
        rows[0].bar(t, finite_or_nan(steps["reward"].to_numpy()), color=VERMILION, width=1.0)
        _label(rows[0], "reward")
        for column, colour in zip(episode.actions, (BLUE, VERMILION, *OTHERS), strict=False):
            rows[1].plot(t, steps[column].to_numpy(), color=colour, linewidth=0.9, drawstyle="steps-mid")
        _label(rows[1], "action")
        for name, axes in zip(names, rows[2:], strict=True):
            _line(axes, episode, name, BLUE)
            _label(axes, name)
        rows[-1].set_xlabel("step of the episode")
        rows[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _line(axes: Axes, episode: Episode, name: str, colour: str, label: str | None = None) -> None:
    values = finite_or_nan(episode.steps[name].to_numpy())
    if name in LOGARITHMIC:
        values = np.where(values > 0, values, np.nan)
        axes.set_yscale("log")
    axes.plot(episode.steps["t"].to_numpy(), values, color=colour, linewidth=1.1, label=label)


def _label(axes: Axes, name: str) -> None:
    axes.set_ylabel(name.replace("_", "\n"))
    axes.grid(alpha=0.25, linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _picture(anchor: str, title: str, figure: Figure) -> Picture:
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "recurrent-laplace"}):
        figure.savefig(content, format="svg", metadata={"Date": None})
    source = f"data:image/svg+xml;base64,{base64.b64encode(content.getvalue()).decode()}"
    names = [axes.get_ylabel().replace("\n", " ") for axes in figure.axes if axes.get_ylabel()]
    alt = f"{title}: {', '.join(names)} over the steps of the episode."
    return Picture(anchor, title, alt, source, round(PIXELS_PER_INCH * figure.get_figwidth()))
