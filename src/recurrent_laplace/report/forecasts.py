"""Figures of one-step forecasts beside what happened, in the units of the environment."""

from typing import NamedTuple

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.stats import norm

from recurrent_laplace.monitoring.forecast import MOST_SHOWN, Forecasts
from recurrent_laplace.monitoring.verdict import LEVEL
from recurrent_laplace.posterior import AbstractLikelihood
from recurrent_laplace.report.style import BLUE, STYLE, VERMILION

REACH = float(norm.ppf((1 + LEVEL) / 2))
"""Half the width of the intervals, in standard deviations."""


class Entry(NamedTuple):
    """One number that is forecast, along an episode."""

    label: str
    is_gaussian: bool
    mean: Float[np.ndarray, " T"]
    stddev: Float[np.ndarray, " T"]
    target: Float[np.ndarray, " T"]


def entries_of(likelihood: AbstractLikelihood, forecasts: Forecasts) -> list[Entry]:
    """The first few numbers of each target."""
    entries, start = [], 0
    for name, part in likelihood.named_parts:
        for index in range(min(part.size, MOST_SHOWN)):
            columns = (array[:, start + index] for array in forecasts)
            label = name if part.size == 1 else f"{name}[{index}]"
            entries.append(Entry(label, part.is_gaussian, *columns))
        start += part.size
    return entries


def draw_forecasts(likelihood: AbstractLikelihood, forecasts: Forecasts) -> Figure:
    """Draw forecasts and outcomes, and the errors of Gaussian forecasts with their intervals."""
    entries = entries_of(likelihood, forecasts)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 0.7 + 1.45 * len(entries)), layout="constrained")
        axes = figure.subplots(len(entries), 2, sharex=True, squeeze=False, width_ratios=(3, 2))
        # Forecasts are drawn at the step at which their target arrives.
        t = 2 + np.arange(len(forecasts.mean))
        for entry, (left, right) in zip(entries, axes, strict=True):
            _outcomes(left, t, entry)
            _errors(right, t, entry)
            left.set_ylabel(entry.label)
        axes[0, 0].set_title("forecast from the step before, and what came", loc="left")
        axes[0, 1].set_title(f"error, and {LEVEL:.0%} interval", loc="left")
        axes[0, 0].legend(loc="best", ncols=2, frameon=False)
        for bottom in axes[-1]:
            bottom.set_xlabel("step of the episode")
            bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _outcomes(axes: Axes, t: np.ndarray, entry: Entry) -> None:
    if entry.is_gaussian:
        low, high = entry.mean - REACH * entry.stddev, entry.mean + REACH * entry.stddev
        axes.fill_between(t, low, high, color=BLUE, alpha=0.25, linewidth=0)
    axes.plot(t, entry.mean, color=BLUE, linewidth=1.1, label="forecast")
    axes.plot(t, entry.target, color="0.6", linestyle="", marker=".", markersize=6, zorder=1, label="outcome")
    _tidy(axes)


def _errors(axes: Axes, t: np.ndarray, entry: Entry) -> None:
    if not entry.is_gaussian:
        axes.set_axis_off()
        return
    reach, error = REACH * entry.stddev, entry.target - entry.mean
    axes.fill_between(t, -reach, reach, color=BLUE, alpha=0.25, linewidth=0)
    outside = np.abs(error) > reach
    for chosen, colour in ((~outside, "black"), (outside, VERMILION)):
        axes.plot(t[chosen], error[chosen], color=colour, linestyle="", marker=".", markersize=3)
    _tidy(axes)


def _tidy(axes: Axes) -> None:
    axes.grid(alpha=0.25, linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def example_of(likelihood: AbstractLikelihood, forecasts: Forecasts) -> str:
    """One forecast of an episode in words, in its middle, with the outcome."""
    step = len(forecasts.mean) // 2
    texts = [
        f"{entry.label} = {entry.mean[step]:.3g} ± {entry.stddev[step]:.2g} (it was {entry.target[step]:.3g})"
        for entry in entries_of(likelihood, forecasts)
    ]
    return f"Forecast at step {step + 1} of what comes next: {', '.join(texts)}."
