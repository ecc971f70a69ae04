"""Plots of gridworlds: start, goal and shortest path, a panel per problem."""

import numpy as np
from jaxtyping import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator

from recurrent_laplace.report.style import BLUE, VERMILION
from recurrent_laplace.report.tasks import label_panels, make_panels, sample_problems
from recurrent_laplace.tasks import Gridworld, register_support
from recurrent_laplace.tasks.gridworld import GridProblem


def draw_grids(task: Gridworld, key: Array, count: int) -> Figure:
    """Draw grids with the shortest path to the goal."""
    figure, panels = make_panels(task, count, width=1.8, height=2.4)
    # Square panels need the compressed layout.
    figure.set_layout_engine("compressed")
    for axes, problem in zip(panels, sample_problems(task, key, count), strict=True):
        draw_grid(axes, task, problem)
    label_panels(panels, "column", "row")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def draw_grid(axes: Axes, task: Gridworld, problem: GridProblem) -> None:
    """Draw start, goal, and the shortest path between them."""
    # In points: proportional to a tile, within limits for visibility and for the legend.
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
    """Tiles from the start to the goal, inclusive: first along the column, then along the row."""
    tile, goal = np.array(problem.start), np.asarray(problem.goal)
    path = [tile.copy()]
    for axis in range(2):
        while tile[axis] != goal[axis]:
            tile[axis] += np.sign(goal[axis] - tile[axis])
            path.append(tile.copy())
    return np.stack(path)


register_support(Gridworld, draw=draw_grids)
