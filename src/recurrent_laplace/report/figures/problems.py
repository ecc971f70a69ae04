"""Figure 4: sampled problems of the three tasks."""

import jax
import matplotlib

from recurrent_laplace.report.frames import Frames, select
from recurrent_laplace.report.panels import Drawing
from recurrent_laplace.report.pictures.bandits import draw_bandit
from recurrent_laplace.report.pictures.gridworld import draw_grid
from recurrent_laplace.report.pictures.regression import draw_functions
from recurrent_laplace.report.selection import bandit_of
from recurrent_laplace.report.style import STYLE, TUPLES
from recurrent_laplace.report.tasks import sample_problems
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.tasks import AbstractTask, Gridworld, Regression, make_task

FUNCTIONS = 4
BELOW = (0.5, -0.18)
"""Position of legends, as fractions of the panel."""


def figure_04(frames: Frames) -> Drawing:
    """Draw functions to predict, a bandit, and a grid with a hidden goal."""
    regression, bandit, gridworld = (
        task_of(frames, name) for name in ("regression", bandit_of(frames), "gridworld")
    )
    assert isinstance(regression, Regression)
    assert isinstance(gridworld, Gridworld)
    key_functions, key_pairs, key_bandit, key_grid = jax.random.split(jax.random.key(4), 4)
    with matplotlib.rc_context(STYLE):
        figure = Drawing(figsize=(9.7, 3.6), layout="constrained")
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.25, 1, 0.9))
        functions = sample_problems(regression, key_functions, FUNCTIONS)
        legend = draw_functions(left, regression, functions, key_pairs)
        left.set_title("regression: predict a function")
        left.legend(
            list(legend.values()),
            list(legend),
            loc="upper center",
            bbox_to_anchor=BELOW,
            frameon=False,
            handler_map=TUPLES,
        )
        draw_bandit(middle, sample_problems(bandit, key_bandit, 1)[0])
        middle.set(xlabel="arm", ylabel="reward probability")
        middle.set_title("bandit: find the best arm")
        draw_grid(right, gridworld, sample_problems(gridworld, key_grid, 1)[0])
        right.set(xlabel="column", ylabel="row")
        right.set_title("gridworld: find the hidden goal")
        for axes in (middle, right):
            axes.legend(loc="upper center", bbox_to_anchor=BELOW, frameon=False)
    return figure


def task_of(frames: Frames, name: str) -> AbstractTask:
    """The task with the parameters of the runs, or its defaults if there are no runs."""
    runs = select(frames.runs, task=name)
    if frames.folder is None or runs.is_empty():
        return make_task(name)
    return RunDirectory.open(frames.folder / runs["path"][0]).run.config.task
