"""Plots of tasks: one for each, and true to the problems."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pytest

from recurrent_laplace.report.pictures.coin import TOSSES
from recurrent_laplace.report.pictures.regression import OBSERVED
from recurrent_laplace.report.style import save_figure
from recurrent_laplace.report.tasks import draw_task
from recurrent_laplace.tasks import TASKS, AbstractTask, Gridworld, make_task
from recurrent_laplace.tasks.regression import STRIPS

COUNT = 3


@functools.cache
def drawn(name, **parameters):
    return draw_task(make_task(name, **parameters), key=jax.random.key(0), count=COUNT)


@pytest.mark.parametrize("name", tuple(TASKS))
def test_every_task_has_a_picture(name, tmp_path):
    settings, numbers = dict(matplotlib.rcParams), plt.get_fignums()
    figure = drawn(name)
    path = save_figure(figure, tmp_path / f"{name}.png")
    assert (dict(matplotlib.rcParams), plt.get_fignums()) == (settings, numbers)
    assert figure.get_suptitle().startswith(f"{name}: ")
    for field in dataclasses.fields(TASKS[name]):
        assert f"{field.name}={field.default}" in figure.get_suptitle()
    assert len(figure.axes) == (1 if name == "regression" else COUNT)
    assert all(axes.get_xlabel() for axes in figure.axes)
    assert figure.axes[0].get_ylabel()
    pixels = matplotlib.image.imread(path)[..., :3]
    assert pixels.shape[:2] == tuple((figure.get_size_inches()[::-1] * 200).round())
    # Each panel has content, with some colour.
    for axes in figure.axes:
        box = axes.get_position()
        rows = slice(*(int((1 - y) * len(pixels)) for y in (box.y1, box.y0)))
        columns = slice(*(int(x * pixels.shape[1]) for x in (box.x0, box.x1)))
        inside = pixels[rows, columns][8:-8, 8:-8]
        assert inside.std() > 0.02
        assert np.ptp(inside, axis=-1).max() > 0.5


def lines(axes, marker):
    return [line.get_xydata() for line in axes.lines if line.get_marker() == marker]


def test_regression_shows_functions_and_the_points_of_one():
    (axes,) = drawn("regression").axes
    functions, (points,) = lines(axes, "None"), lines(axes, "o")
    assert len(functions) == COUNT
    assert points.shape == (OBSERVED, 2)
    errors = [np.abs(np.interp(points[:, 0], *line.T) - points[:, 1]).max() for line in functions]
    # Linear interpolation with spacing 1/200 is off by up to h^2 |f''| / 8 = 3e-6 |f''|, and |f''| < 600.
    assert errors[0] < 2e-3
    assert min(errors[1:]) > 0.1
    assert not axes.patches


def test_strips_are_shaded_and_hold_the_points():
    figure = drawn("regression", inputs="strips", noise_stddev=0.1)
    (axes,) = figure.axes
    shaded = [patch.get_extents().transformed(axes.transData.inverted()) for patch in axes.patches]
    np.testing.assert_allclose([(box.x0, box.x1) for box in shaded], STRIPS)
    (points,) = lines(axes, "o")
    assert all(any(low <= x <= high for low, high in STRIPS) for x in points[:, 0])
    (legend,) = figure.legends
    assert "observed region" in [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize("name", ["bandit", "two_arm_bandit"])
def test_bandits_highlight_the_best_arm(name):
    for axes in drawn(name).axes:
        *bars, best = axes.patches
        heights = np.array([bar.get_height() for bar in bars])
        assert len(heights) == make_task(name).actions
        assert heights.sum() == pytest.approx(1)
        assert best.get_height() == heights.max()
        assert best.get_x() == bars[heights.argmax()].get_x()
        assert best.get_facecolor() != bars[0].get_facecolor()
        assert [text.get_text() for text in axes.texts] == [f"{heights.max():.2f}"]


def test_grids_join_start_and_goal_by_single_steps():
    for axes in drawn("gridworld").axes:
        (path,), ((start,), (goal,)) = lines(axes, "None"), (lines(axes, marker)[0] for marker in "o*")
        np.testing.assert_array_equal(path[0], start)
        np.testing.assert_array_equal(path[-1], goal)
        np.testing.assert_array_equal(np.abs(np.diff(path, axis=0)).sum(axis=1), 1)
        distance = int(np.abs(goal - start).sum())
        assert len(path) == distance + 1
        assert axes.get_title() == f"{distance} step{'s' if distance > 1 else ''} away"
        top, bottom = axes.transData.transform([(0, 0), (0, 4)])[:, 1]
        assert top > bottom


def test_coins_show_each_toss_once():
    for axes in drawn("coin").axes:
        (chances,), (heads, tails) = lines(axes, "None"), lines(axes, "|")
        assert len(chances) == TOSSES
        assert np.all((chances[:, 1] > 0) & (chances[:, 1] < 1))
        assert heads[:, 1].min() > 1 > 0 > tails[:, 1].max()
        np.testing.assert_array_equal(np.sort(np.concatenate([heads, tails])[:, 0]), np.arange(TOSSES))


def test_a_goal_out_of_reach_is_called_so():
    figure = draw_task(Gridworld(size=2, episode_length=1), key=jax.random.key(0), count=12)
    titles = {axes.get_title() for axes in figure.axes}
    assert titles == {"1 step away", "2 steps away, too far"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corridor(AbstractTask):
    name = "corridor"
    length: int = 3
    observation_size = 1

    def check(self):
        pass

    def sample(self, key, *, test=False):
        return jnp.zeros(())

    def reset(self, problem, key):
        return None, jnp.zeros(1)

    def step(self, problem, state, action, key):
        raise NotImplementedError


def test_a_task_without_a_picture_is_refused():
    message = (
        "tasks --draw needs a picture, and the task 'corridor' has none: "
        "add it by rl.register_task(..., draw=...) or rl.register_support."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        draw_task(Corridor(), key=jax.random.key(0))


def test_no_problems_are_refused():
    with pytest.raises(ValueError, match=r"^count must be a whole number of at least 1; got 0\.$"):
        draw_task(Gridworld(), key=jax.random.key(0), count=0)
