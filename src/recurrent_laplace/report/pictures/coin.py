"""Plots of coins: probability of heads over time with the tosses, a panel per problem."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recurrent_laplace.report.style import BLUE, VERMILION
from recurrent_laplace.report.tasks import PAGE_WIDTH, label_panels, make_panels, sample_problems
from recurrent_laplace.tasks import PiecewiseCoin, register_support
from recurrent_laplace.tasks.coin import HEADS

TOSSES = 100
"""Number of tosses per coin."""


def draw_coins(task: PiecewiseCoin, key: Array, count: int) -> Figure:
    """Draw coins with their first tosses."""
    key_problems, key_tosses = jax.random.split(key)
    figure, panels = make_panels(task, count, width=PAGE_WIDTH / 2, height=1.6)
    problems = sample_problems(task, key_problems, count)
    for i, (axes, problem) in enumerate(zip(panels, problems, strict=True)):
        draw_coin(axes, task, problem, jax.random.fold_in(key_tosses, i))
        axes.set_title(f"problem {i + 1}")
    label_panels(panels, "toss", "probability of heads")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def draw_coin(axes: Axes, task: PiecewiseCoin, problem: np.ndarray, key: Array) -> None:
    """Draw the probability of heads over time, with heads above and tails below."""

    def toss(probability: Array, key: Array) -> tuple[Array, tuple[Array, Array]]:
        next_state, step = task.step(jnp.asarray(problem), probability, jnp.array(HEADS), key)
        return next_state, (probability, step.observation[0] > 0)

    first, _ = task.reset(jnp.asarray(problem), key)
    _, tosses = jax.jit(lambda: jax.lax.scan(toss, first, jax.random.split(key, TOSSES)))()
    probabilities, heads = map(np.asarray, tosses)
    time = np.arange(TOSSES)
    axes.step(time, probabilities, where="mid", color=BLUE, linewidth=1.5, label="probability of heads")
    for shown, height, colour, label in ((heads, 1.08, VERMILION, "heads"), (~heads, -0.08, "0.4", "tails")):
        axes.plot(time[shown], np.full(shown.sum(), height), "|", color=colour, markersize=5, label=label)
    axes.set(xlim=(-1, TOSSES), ylim=(-0.16, 1.16))
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.spines[["top", "right"]].set_visible(False)


register_support(PiecewiseCoin, draw=draw_coins)
