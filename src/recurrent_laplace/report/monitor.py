"""A page of an agent that was watched: its belief over time, beside what it did and what it got."""

import base64
import dataclasses
import io
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

import recurrent_laplace
from recurrent_laplace.deploy import Monitor
from recurrent_laplace.deploy.recording import Episode, diagnose_episodes
from recurrent_laplace.files import write_text
from recurrent_laplace.report.page import PIXELS_PER_INCH, as_ascii, environment
from recurrent_laplace.report.tasks import BLUE, OTHERS, STYLE, VERMILION

GLOSSARY = {
    "entropy": "How wide the belief is, in nats; lower is surer. Only differences mean something.",
    "kl": "How far the belief moved in this step, in nats: KL from the belief one step before.",
    "mahalanobis": "The part of the KL that the jump of the mean causes.",
    "value": "The value head at the mean of the belief.",
    "value_stddev": "How uncertain the value is under the belief, the head linearised.",
    "value_moved": "How much the value of this very observation changed because the belief did.",
    "policy_entropy": "Entropy of the policy at the mean of the belief, in nats.",
    "policy_disagreement": "Mean KL, in nats, of the policies of draws from the belief from the policy "
    "at its mean.",
    "policy_moved": "How far the policy at this very observation moved because the belief did, in nats.",
}
"""What each reading is, in a sentence."""

LOGARITHMIC = ("kl", "mahalanobis", "policy_disagreement", "policy_moved")
OVERVIEW = ("entropy", "kl", "value_stddev", "policy_disagreement")
MOST_EPISODES = 12
"""Episodes with a figure of their own."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure as the page has it."""

    anchor: str
    title: str
    alt: str
    source: str
    width: int


def write_monitor_page(
    out: Path, monitor: Monitor, episodes: list[Episode], *, name: str, place: str, command: str
) -> None:
    """Write the page of some episodes; `name` is the agent's, `place` where it was played."""
    diagnosis = diagnose_episodes(monitor, episodes)
    pictures = [_picture("overview", "All episodes", draw_overview(episodes))]
    for number, episode in enumerate(episodes[:MOST_EPISODES], 1):
        pictures.append(_picture(f"episode-{number}", f"Episode {number}", draw_episode(episode)))
    html = (
        environment()
        .get_template("monitor.html.jinja")
        .render(
            name=name,
            place=place,
            posterior=describe_posterior(monitor),
            diagnosis=diagnosis,
            compared=min(len(episode.steps) for episode in episodes),
            rows=[episode.summary() for episode in episodes],
            pictures=pictures,
            glossary={key: text for key, text in GLOSSARY.items() if key in episodes[0].readings},
            command=command,
            version=recurrent_laplace.__version__,
        )
    )
    write_text(out, as_ascii(html))


def describe_posterior(monitor: Monitor) -> str:
    """A posterior in a few words."""
    posterior = monitor.posterior
    words = {
        name: getattr(posterior, name)
        for name in ("covariance", "accumulate", "window", "forgetting")
        if hasattr(posterior, name)
    }
    options = ", ".join(f"{name} {'all' if value is None else value}" for name, value in words.items())
    return f"a {type(posterior).__name__} of {posterior.memory.feature_size} features ({options})"


def draw_overview(episodes: list[Episode]) -> Figure:
    """A few readings of all episodes over each other."""
    names = [name for name in OVERVIEW if name in episodes[0].readings]
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
    """All readings of one episode, under its rewards and actions."""
    names = episode.readings
    steps = episode.steps
    t = steps["t"].to_numpy()
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 0.9 + 1.15 * (2 + len(names))), layout="constrained")
        rows = figure.subplots(2 + len(names), 1, sharex=True)
        rows[0].bar(t, steps["reward"].to_numpy(), color=VERMILION, width=1.0)
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
    values = episode.steps[name].to_numpy()
    if name in LOGARITHMIC:
        # Zero has no place on a logarithmic axis.
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
    names = [axes.get_ylabel().replace("\n", " ") for axes in figure.axes]
    alt = f"{title}: {', '.join(names)} over the steps of the episode."
    return Picture(anchor, title, alt, source, round(PIXELS_PER_INCH * figure.get_figwidth()))
