"""Figure 14: what each method predicts for a function, and how sure it is of that."""

import dataclasses
import itertools
import textwrap
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import polars as pl
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from recurrent_laplace.evaluation.lengths import test_keys
from recurrent_laplace.evaluation.regression import PREDICTIVE_SAMPLES
from recurrent_laplace.experiments.models import load_state, per_seed
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.files import StorageError
from recurrent_laplace.learning.beliefs import draw
from recurrent_laplace.models import Regressor
from recurrent_laplace.report.frames import Frames
from recurrent_laplace.report.methods import COLOURS, NAMES, ORIGINS, Variant
from recurrent_laplace.report.panels import Drawing, finish_axes, remember, say_empty
from recurrent_laplace.report.selection import main_runs
from recurrent_laplace.report.tasks import STYLE
from recurrent_laplace.tasks import Regression
from recurrent_laplace.tasks.regression import STRIPS

OBSERVED = 15
"""Pairs that are seen before predicting."""

POINTS = 201
"""Points that are predicted, evenly over the interval."""

TEST_FUNCTION = 1
"""Which of the test functions is shown."""

INPUTS: dict[Literal["interval", "strips"], str] = {
    "interval": "observed everywhere",
    "strips": "observed in strips",
}
FALLBACKS = ("scratch", "posthoc", "finetuned")
"""Where a method is looked for, until it is found."""
TITLE_WIDTH = 24
"""Letters that fit above a panel."""


def figure_14(frames: Frames) -> Drawing:
    """Predictions after a few observations, a column for each method."""
    with matplotlib.rc_context(STYLE):
        figure = Drawing(figsize=(11, 4.9), layout="constrained")
        grid = figure.subplots(len(INPUTS), len(NAMES), sharey=True)
        for row, words in zip(grid, INPUTS.values(), strict=True):
            for axes in row:
                finish_axes(axes, words if axes is row[0] else "", "input x")
        for column, method in zip(grid.T, NAMES, strict=True):
            _draw_method(list(column), frames, method)
        figure.legend(
            handles=[
                Line2D([], [], color="0.2", linewidth=1, linestyle=":", label="the function"),
                Line2D(
                    [], [], color="0.2", marker="o", markerfacecolor="white", linestyle="", label="observed"
                ),
                Line2D([], [], color="0.3", linewidth=1.5, label="predicted mean"),
                Patch(color="0.3", alpha=0.45, linewidth=0, label="2 stddev of the belief's draws"),
                Patch(color="0.3", alpha=0.15, linewidth=0, label="2 stddev with the learned noise"),
            ],
            loc="outside lower center",
            ncols=5,
            frameon=False,
        )
    return figure


class Picture(eqx.Module):
    """What was seen of one function, and what is predicted."""

    x: Float[Array, " N"]
    y: Float[Array, " N"]
    truth: Float[Array, " G"]
    mean: Float[Array, " G"]
    belief_stddev: Float[Array, " G"]
    """Of the predicted means, over draws from the belief."""
    stddev: Float[Array, " G"]
    """The same with the noise of the likelihood."""


@eqx.filter_jit
def predict(model: Regressor, task: Regression) -> Picture:
    """Show a model the first pairs of a test function, and ask for all of it."""
    problem_keys, play_keys = test_keys(TEST_FUNCTION + 1)
    key_pairs, key_draws = jax.random.split(play_keys[TEST_FUNCTION])
    problem = task.sample(problem_keys[TEST_FUNCTION], test=True)
    x, y = task.pairs(problem, key_pairs, OBSERVED)
    belief = model.posterior.unroll(model.embed(x, y))[-1]
    z = draw(belief, PREDICTIVE_SAMPLES, key=key_draws)[:, None]
    grid = jnp.linspace(-1, 1, POINTS)
    means = model.prediction_head(z, model.input_embedder(grid[:, None]))[..., 0]
    belief_stddev = jnp.std(means, axis=0)
    noise = model.predict(z, grid[:, None]).variance[..., 0]
    return Picture(
        x[:, 0],
        y[:, 0],
        problem(grid),
        jnp.mean(means, axis=0),
        belief_stddev,
        jnp.sqrt(belief_stddev**2 + noise),
    )


def _draw_method(panels: list[Axes], frames: Frames, method: str) -> None:
    panels[0].set_title(textwrap.fill(NAMES[method], TITLE_WIDTH))
    found = _find(frames, method)
    if found is None or frames.folder is None:
        for axes in panels:
            say_empty(axes)
        return
    variant, origin, run = found
    panels[0].set_title(textwrap.fill(f"{variant.label}, {ORIGINS[origin]}", TITLE_WIDTH))
    directory = RunDirectory.open(frames.folder / run["path"])
    try:
        state = load_state(directory, directory.checkpoints.updates()[-1])
    except (StorageError, IndexError):
        for axes in panels:
            say_empty(axes, "no weights kept")
        return
    model, task = per_seed(state.model, directory.run)[0], directory.run.config.task
    assert isinstance(model, Regressor)
    assert isinstance(task, Regression)
    for axes, inputs in zip(panels, INPUTS, strict=True):
        _draw_picture(axes, predict(model, dataclasses.replace(task, inputs=inputs)), method)
        if inputs == "strips":
            for low, high in STRIPS:
                axes.axvspan(low, high, color="0.94", linewidth=0, zorder=0)
        remember(axes, frames.runs.filter(pl.col("run") == run["run"]))


def _find(frames: Frames, method: str) -> tuple[Variant, str, dict[str, Any]] | None:
    """The run that stands for a method: trained with it if there is one, dense if there is one."""
    covariances = (None,) if method == "rnn" else ("dense", "diagonal")
    for origin, covariance in itertools.product(FALLBACKS, covariances):
        variant = Variant(method, covariance)
        runs = main_runs(frames, "regression", origin, variant).sort("seed")
        if len(runs):
            return variant, origin, runs.row(0, named=True)
    return None


def _draw_picture(axes: Axes, picture: Picture, method: str) -> None:
    grid, colour, mean = np.linspace(-1, 1, POINTS), COLOURS[method], np.asarray(picture.mean)
    for stddev, alpha in ((picture.stddev, 0.15), (picture.belief_stddev, 0.3)):
        half = 2 * np.asarray(stddev)
        axes.fill_between(grid, mean - half, mean + half, color=colour, alpha=alpha, linewidth=0)
    axes.plot(grid, mean, color=colour, linewidth=1.5)
    axes.plot(grid, picture.truth, ":", color="0.2", linewidth=1.1)
    axes.plot(picture.x, picture.y, "o", color="0.2", markersize=3.5, markerfacecolor="white", zorder=4)
