"""Plot of regression functions in one panel, with observations of one of them."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from recurrent_laplace.report.style import BLUE, OTHERS, TUPLES
from recurrent_laplace.report.tasks import label_panels, make_panels, sample_problems
from recurrent_laplace.tasks import Regression, register_support
from recurrent_laplace.tasks.regression import STRIPS

OBSERVED = 20
"""Number of observations."""


def draw_regression(task: Regression, key: Array, count: int) -> Figure:
    """Draw functions, with observations of the first."""
    key_problems, key_pairs = jax.random.split(key)
    figure, (axes,) = make_panels(task, 1, width=5.5, height=3.2)
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
    """Draw functions, the first with its first observations; returns the legend entries by label."""
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
            legend["observed region"] = axes.axvspan(low, high, color="0.92", linewidth=0, zorder=0)
    axes.set_xlim(-1.02, 1.02)
    axes.xaxis.set_major_locator(MultipleLocator(0.5))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.spines[["top", "right"]].set_visible(False)
    label_panels([axes], "input x", "output y")
    return legend


register_support(Regression, draw=draw_regression)
