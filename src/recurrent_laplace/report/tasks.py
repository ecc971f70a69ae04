"""Plots of sampled problems of a task."""

import dataclasses
import importlib
import math
from typing import Any

import jax
import matplotlib
import numpy as np
from jaxtyping import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recurrent_laplace.errors import check_size
from recurrent_laplace.report.style import STYLE
from recurrent_laplace.tasks import AbstractTask, require_support

PAGE_WIDTH = 8.0
"""Maximum width of a row of panels, in inches."""


def draw_task(task: AbstractTask, *, key: Array, count: int = 4) -> Figure:
    """Plot problems from the training distribution of a task.

    **Arguments:** `task`, whose registered plot is used; `key` for the sampling; `count`, the number of
    problems.

    ```python
    figure = draw_task(rl.Gridworld(size=5), key=jax.random.key(0))
    save_figure(figure, "build/gridworld.png")
    ```
    """
    check_size("count", count)
    # Imported late, since the plots import this module.
    importlib.import_module("recurrent_laplace.report.pictures")
    draw = require_support(task, "draw", verb="tasks --draw")
    with matplotlib.rc_context(STYLE):
        return draw(task, key, count)


def sample_problems(task: AbstractTask, key: Array, count: int) -> list[Any]:
    """Sample problems from the training distribution of a task."""
    problems = jax.jit(jax.vmap(task.sample))(jax.random.split(key, count))
    return [jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), problems) for i in range(count)]


def describe_task(task: AbstractTask) -> str:
    """Name and parameters of a task."""
    parameters = [f"{field.name}={getattr(task, field.name)}" for field in dataclasses.fields(task)]
    return f"{task.name}: {', '.join(parameters)}"


def make_panels(task: AbstractTask, count: int, *, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Figure with `count` panels in rows of the page's width; sizes in inches."""
    columns = min(count, max(1, int(PAGE_WIDTH / width)))
    rows = math.ceil(count / columns)
    # A single panel must still be wide enough for the title.
    size = (max(4.2, 0.4 + width * columns), 0.5 + height * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for unused in grid.flat[count:]:
        unused.remove()
    figure.suptitle(describe_task(task))
    return figure, list(grid.flat[:count])


def label_panels(panels: list[Axes], x: str, y: str) -> None:
    """Label the shared axes: x below each panel, y and its ticks at the left of each row."""
    for axes in panels:
        axes.set_xlabel(x)
        spec = axes.get_subplotspec()
        if spec is None or spec.is_first_col():
            axes.set_ylabel(y)
        else:
            axes.tick_params(axis="y", labelleft=False)
