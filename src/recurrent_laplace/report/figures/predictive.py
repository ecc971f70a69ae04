"""Figure 14: predictions of each method for one function, with uncertainty."""

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

from recurrent_laplace.evaluation.regression import PREDICTIVE_SAMPLES
from recurrent_laplace.files import StorageError
from recurrent_laplace.learning.beliefs import sample_belief
from recurrent_laplace.models import Regressor
from recurrent_laplace.report.frames import Frames
from recurrent_laplace.report.methods import COLOURS, NAMES, ORIGINS, Variant
from recurrent_laplace.report.panels import Drawing, finish_axes, record_runs, show_empty
from recurrent_laplace.report.selection import main_runs
from recurrent_laplace.report.style import STYLE
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.models import load_weights, per_seed
from recurrent_laplace.tasks import Regression
from recurrent_laplace.tasks.held_out import test_keys
from recurrent_laplace.tasks.regression import STRIPS

OBSERVED = 15
"""Observations before the prediction."""

POINTS = 201
"""Predicted points, evenly spaced over the interval."""

TEST_FUNCTION = 1
"""Index of the test function."""

INPUTS: dict[Literal["interval", "strips"], str] = {
    "interval": "observed everywhere",
    "strips": "observed in strips",
}
FALLBACKS = ("scratch", "posthoc", "finetuned")
"""Origins of runs, in the order in which they are searched."""
TITLE_WIDTH = 24
"""Characters per line of a title."""


def figure_14(frames: Frames) -> Drawing:
    """Draw predictions after a few observations, a column per method."""
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
                Line2D([], [], color="0.2", linewidth=1, linestyle=":", label="ground truth"),
                Line2D(
                    [], [], color="0.2", marker="o", markerfacecolor="white", linestyle="", label="observed"
                ),
                Line2D([], [], color="0.3", linewidth=1.5, label="predicted mean"),
                Patch(color="0.3", alpha=0.45, linewidth=0, label="2 stddev over belief samples"),
                Patch(color="0.3", alpha=0.15, linewidth=0, label="2 stddev with learned noise"),
            ],
            loc="outside lower center",
            ncols=5,
            frameon=False,
        )
    return figure


class FunctionPrediction(eqx.Module):
    """Observations of one function, its ground truth, and its prediction."""

    x: Float[Array, " N"]
    y: Float[Array, " N"]
    truth: Float[Array, " G"]
    mean: Float[Array, " G"]
    belief_stddev: Float[Array, " G"]
    """Standard deviation of the predicted means over samples of the belief."""
    stddev: Float[Array, " G"]
    """Predictive standard deviation, including the noise of the likelihood."""


@eqx.filter_jit
def predict(model: Regressor, task: Regression) -> FunctionPrediction:
    """Predict a whole test function from its first observations."""
    problem_keys, play_keys = test_keys(TEST_FUNCTION + 1)
    key_pairs, key_draws = jax.random.split(play_keys[TEST_FUNCTION])
    problem = task.sample(problem_keys[TEST_FUNCTION], test=True)
    x, y = task.pairs(problem, key_pairs, OBSERVED)
    belief = model.posterior.unroll(model.embed(x, y))[-1]
    z = sample_belief(belief, PREDICTIVE_SAMPLES, key=key_draws)[:, None]
    grid = jnp.linspace(-1, 1, POINTS)
    means = model.prediction_head(z, model.input_embedder(grid[:, None]))[..., 0]
    belief_stddev = jnp.std(means, axis=0)
    noise = model.predict(z, grid[:, None]).variance[..., 0]
    return FunctionPrediction(
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
            show_empty(axes)
        return
    variant, origin, run = found
    panels[0].set_title(textwrap.fill(f"{variant.label}, {ORIGINS[origin]}", TITLE_WIDTH))
    directory = RunDirectory.open(frames.folder / run["path"])
    try:
        weights = load_weights(directory, directory.newest_update())
    except StorageError:
        for axes in panels:
            show_empty(axes, "no weights kept")
        return
    model, task = per_seed(weights, directory.run)[0], directory.run.config.task
    assert isinstance(model, Regressor)
    assert isinstance(task, Regression)
    for axes, inputs in zip(panels, INPUTS, strict=True):
        _draw_prediction(axes, predict(model, dataclasses.replace(task, inputs=inputs)), method)
        if inputs == "strips":
            for low, high in STRIPS:
                axes.axvspan(low, high, color="0.94", linewidth=0, zorder=0)
        record_runs(axes, frames.runs.filter(pl.col("run") == run["run"]))


def _find(frames: Frames, method: str) -> tuple[Variant, str, dict[str, Any]] | None:
    """The run that represents a method, preferably from scratch and dense."""
    covariances = (None,) if method == "rnn" else ("dense", "diagonal")
    for origin, covariance in itertools.product(FALLBACKS, covariances):
        variant = Variant(method, covariance)
        runs = main_runs(frames, "regression", origin, variant).sort("seed")
        if len(runs):
            return variant, origin, runs.row(0, named=True)
    return None


def _draw_prediction(axes: Axes, prediction: FunctionPrediction, method: str) -> None:
    grid, colour, mean = np.linspace(-1, 1, POINTS), COLOURS[method], np.asarray(prediction.mean)
    for stddev, alpha in ((prediction.stddev, 0.15), (prediction.belief_stddev, 0.3)):
        half = 2 * np.asarray(stddev)
        axes.fill_between(grid, mean - half, mean + half, color=colour, alpha=alpha, linewidth=0)
    axes.plot(grid, mean, color=colour, linewidth=1.5)
    axes.plot(grid, prediction.truth, ":", color="0.2", linewidth=1.1)
    axes.plot(prediction.x, prediction.y, "o", color="0.2", markersize=3.5, markerfacecolor="white", zorder=4)
