"""Pictures of the problems that a task draws, and how a figure becomes a file."""

import dataclasses
import math
import os
import secrets
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from jaxtyping import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator, MultipleLocator

from recurrent_laplace.errors import check_choice, check_size
from recurrent_laplace.tasks import AbstractBandit, AbstractTask, Gridworld, PiecewiseCoin, Regression
from recurrent_laplace.tasks.coin import HEADS
from recurrent_laplace.tasks.gridworld import GridProblem
from recurrent_laplace.tasks.regression import STRIPS

BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "0.75"
OTHERS = ("#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8A7B00")
"""Okabe and Ito's colours, which the colour-blind tell apart; the yellow darker, to be seen on white."""

SUFFIXES = (".png", ".pdf", ".svg")
OBSERVED = 20
"""How many points of a function are shown."""
TOSSES = 100
"""How many tosses of a coin are shown."""
PAGE_WIDTH = 8.0
"""In inches: where panels go on in the next row."""

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "figure.titlesize": 10,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
}
"""Text and lines of the size that they have in papers."""


TUPLES = {tuple: HandlerTuple(ndivide=None, pad=0.2)}
"""For legends: a tuple of lines is shown as several lines side by side."""


def draw_task(task: AbstractTask, *, key: Array, count: int = 4) -> Figure:
    """Draw problems that the task gives for training.

    `count` is how many problems. Functions share one panel, and one of them has its first observations
    in it; bandits, grids and coins have a panel each.

    ```python
    figure = draw_task(rl.Gridworld(size=5), key=jax.random.key(0))
    save_figure(figure, "build/gridworld.png")
    ```
    """
    check_size("count", count)
    with matplotlib.rc_context(STYLE):
        if isinstance(task, Regression):
            return _draw_regression(task, key, count)
        if isinstance(task, AbstractBandit):
            return _draw_bandits(task, key, count)
        if isinstance(task, Gridworld):
            return _draw_grids(task, key, count)
        if isinstance(task, PiecewiseCoin):
            return _draw_coins(task, key, count)
    raise ValueError(
        f"task must be a Regression, a bandit, a Gridworld or a PiecewiseCoin to be drawn; got {task!r}."
    )


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure whole or not at all, and return where it is.

    `path` ends in .png, .pdf or .svg, which is the format; its folder is made if it is missing. The same
    figure gives the same bytes, since no date is written.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    check_choice("the end of a figure's file name", suffix, SUFFIXES)
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, because a file can be replaced in one step only within its file system.
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    dates = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    try:
        with matplotlib.rc_context({"svg.hashsalt": "recurrent-laplace", "pdf.fonttype": 42}):
            figure.savefig(unfinished, format=suffix[1:], dpi=200, metadata=dates.get(suffix))
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def sample_problems(task: AbstractTask, key: Array, count: int) -> list[Any]:
    """Problems as a task draws them for training."""
    problems = jax.jit(jax.vmap(task.sample))(jax.random.split(key, count))
    return [jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), problems) for i in range(count)]


def _title(task: AbstractTask) -> str:
    """What would make the task again: its name and its parameters."""
    parameters = [f"{field.name}={getattr(task, field.name)}" for field in dataclasses.fields(task)]
    return f"{task.name}: {', '.join(parameters)}"


def _panels(task: AbstractTask, count: int, *, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """`count` panels side by side, as many as a page is wide; sizes in inches."""
    columns = min(count, max(1, int(PAGE_WIDTH / width)))
    rows = math.ceil(count / columns)
    # A single panel must still be wide enough for the title.
    size = (max(4.2, 0.4 + width * columns), 0.5 + height * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for unused in grid.flat[count:]:
        unused.remove()
    figure.suptitle(_title(task))
    return figure, list(grid.flat[:count])


def _label(panels: list[Axes], x: str, y: str) -> None:
    """Name the axes, which all panels share: x below each, y and its numbers at the left of each row."""
    for axes in panels:
        axes.set_xlabel(x)
        spec = axes.get_subplotspec()
        if spec is None or spec.is_first_col():
            axes.set_ylabel(y)
        else:
            axes.tick_params(axis="y", labelleft=False)


def _draw_regression(task: Regression, key: Array, count: int) -> Figure:
    key_problems, key_pairs = jax.random.split(key)
    figure, (axes,) = _panels(task, 1, width=5.5, height=3.2)
    legend = draw_functions(axes, task, sample_problems(task, key_problems, count), key_pairs)
    figure.legend(
        list(legend.values()),
        list(legend),
        loc="outside lower center",
        ncols=len(legend) if len(legend) < 4 else 2,
        frameon=False,
        handler_map=TUPLES,
    )
    return figure


def draw_functions(axes: Axes, task: Regression, problems: list[Any], key: Array) -> dict[str, Any]:
    """Functions in one panel, the first of them with its first observations; returns what a legend needs."""
    first, *rest = problems
    grid = jnp.linspace(-1, 1, 401)
    (line,) = axes.plot(grid, first(grid), color=BLUE, linewidth=2, zorder=3)
    x, y = task.pairs(first, key, OBSERVED)
    (points,) = axes.plot(x, y, "o", markersize=5, markerfacecolor="white", color="black", zorder=4)
    legend: dict[str, Any] = {"one function": line, f"its first {OBSERVED} observations": points}
    if rest:
        lines = [
            axes.plot(grid, problem(grid), color=OTHERS[i % len(OTHERS)], linewidth=1)[0]
            for i, problem in enumerate(rest)
        ]
        legend["other functions"] = tuple(lines[:3])
    if task.inputs == "strips":
        for low, high in STRIPS:
            legend["where they are observed"] = axes.axvspan(low, high, color="0.92", linewidth=0, zorder=0)
    axes.set_xlim(-1.02, 1.02)
    axes.xaxis.set_major_locator(MultipleLocator(0.5))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.spines[["top", "right"]].set_visible(False)
    _label([axes], "input x", "output y")
    return legend


def _draw_bandits(task: AbstractBandit, key: Array, count: int) -> Figure:
    # Wider where there are more bars, but two of them still on a page.
    figure, panels = _panels(task, count, width=min(PAGE_WIDTH / 2, 1.2 + 0.15 * task.actions), height=2.1)
    for i, (axes, chances) in enumerate(zip(panels, sample_problems(task, key, count), strict=True)):
        draw_bandit(axes, chances)
        axes.set_title(f"problem {i + 1}")
    _label(panels, "arm", "chance of reward 1")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=2, frameon=False)
    return figure


def draw_bandit(axes: Axes, chances: np.ndarray) -> None:
    """The chance of reward of each arm."""
    best = int(np.argmax(chances))
    axes.bar(np.arange(len(chances)), chances, width=0.75, color=GREY, label="other arms")
    axes.bar(best, chances[best], width=0.75, color=VERMILION, label="best arm")
    axes.text(best, chances[best] + 0.02, f"{chances[best]:.2f}", ha="center", fontsize=8, color=VERMILION)
    axes.set(xlim=(-0.75, len(chances) - 0.25), ylim=(0, 1.12))
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    axes.spines[["top", "right"]].set_visible(False)


def _draw_grids(task: Gridworld, key: Array, count: int) -> Figure:
    figure, panels = _panels(task, count, width=1.8, height=2.4)
    # The layout for panels that must be square.
    figure.set_layout_engine("compressed")
    for axes, problem in zip(panels, sample_problems(task, key, count), strict=True):
        draw_grid(axes, task, problem)
    _label(panels, "column", "row")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def draw_grid(axes: Axes, task: Gridworld, problem: GridProblem) -> None:
    """Where a walk starts, where its goal is, and the shortest way."""
    # In points: as large as tiles are, within what can be seen and what fits the legend.
    marker = min(12.0, max(4.0, 50 / task.size))
    path = _shortest_path(problem)
    distance = len(path) - 1
    axes.plot(path[:, 1], path[:, 0], color=BLUE, linewidth=2, label="shortest path")
    for tile, colour, shape, size, label in (
        (problem.start, BLUE, "o", 0.8 * marker, "start"),
        (problem.goal, VERMILION, "*", 1.3 * marker, "goal (hidden)"),
    ):
        row, column = tile
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=colour, alpha=0.15, linewidth=0))
        axes.plot(column, row, shape, markersize=size, color=colour, linestyle="none", label=label)
    late = "" if distance <= task.episode_length else ", too far"
    axes.set_title(f"{distance} step{'s' * (distance > 1)} away{late}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
        axis.set_minor_locator(FixedLocator(list(np.arange(task.size + 1) - 0.5)))
    axes.grid(which="minor", color="0.85", linewidth=0.8)
    axes.tick_params(which="both", length=0)
    # Row 0 on top, so that the action "up" goes up.
    axes.set(xlim=(-0.5, task.size - 0.5), ylim=(task.size - 0.5, -0.5), aspect="equal")


def _shortest_path(problem: GridProblem) -> np.ndarray:
    """The tiles from the start to the goal, both included: first to its row, then to its column."""
    here, goal = np.array(problem.start), np.asarray(problem.goal)
    path = [here.copy()]
    for axis in range(2):
        while here[axis] != goal[axis]:
            here[axis] += np.sign(goal[axis] - here[axis])
            path.append(here.copy())
    return np.stack(path)


def _draw_coins(task: PiecewiseCoin, key: Array, count: int) -> Figure:
    key_problems, key_tosses = jax.random.split(key)
    figure, panels = _panels(task, count, width=PAGE_WIDTH / 2, height=1.6)
    problems = sample_problems(task, key_problems, count)
    for i, (axes, problem) in enumerate(zip(panels, problems, strict=True)):
        draw_coin(axes, task, problem, jax.random.fold_in(key_tosses, i))
        axes.set_title(f"problem {i + 1}")
    _label(panels, "toss", "chance of heads")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def draw_coin(axes: Axes, task: PiecewiseCoin, problem: np.ndarray, key: Array) -> None:
    """The chance of heads over time, with the tosses: heads above, tails below."""

    def toss(chance: Array, key: Array) -> tuple[Array, tuple[Array, Array]]:
        after, step = task.step(jnp.asarray(problem), chance, jnp.array(HEADS), key)
        return after, (chance, step.observation[0] > 0)

    first, _ = task.reset(jnp.asarray(problem), key)
    _, given = jax.jit(lambda: jax.lax.scan(toss, first, jax.random.split(key, TOSSES)))()
    chances, heads = map(np.asarray, given)
    time = np.arange(TOSSES)
    axes.step(time, chances, where="mid", color=BLUE, linewidth=1.5, label="chance of heads")
    for shown, height, colour, label in ((heads, 1.08, VERMILION, "heads"), (~heads, -0.08, "0.4", "tails")):
        axes.plot(time[shown], np.full(shown.sum(), height), "|", color=colour, markersize=5, label=label)
    axes.set(xlim=(-1, TOSSES), ylim=(-0.16, 1.16))
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.spines[["top", "right"]].set_visible(False)
