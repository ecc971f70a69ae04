"""Plots of bandits: reward probabilities of the arms, a panel per problem."""

import numpy as np
from jaxtyping import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from recurrent_laplace.report.style import GREY, VERMILION
from recurrent_laplace.report.tasks import PAGE_WIDTH, label_panels, make_panels, sample_problems
from recurrent_laplace.tasks import AbstractBandit, register_support


def draw_bandits(task: AbstractBandit, key: Array, count: int) -> Figure:
    """Draw bandits with the reward probability of each arm."""
    # Panels grow with the number of bars, but two still fit on a page.
    width = min(PAGE_WIDTH / 2, 1.2 + 0.15 * task.actions)
    figure, panels = make_panels(task, count, width=width, height=2.1)
    for i, (axes, probabilities) in enumerate(zip(panels, sample_problems(task, key, count), strict=True)):
        draw_bandit(axes, probabilities)
        axes.set_title(f"problem {i + 1}")
    label_panels(panels, "arm", "reward probability")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=2, frameon=False)
    return figure


def draw_bandit(axes: Axes, probabilities: np.ndarray) -> None:
    """Draw the reward probability of each arm."""
    best = int(np.argmax(probabilities))
    highest = probabilities[best]
    axes.bar(np.arange(len(probabilities)), probabilities, width=0.75, color=GREY, label="other arms")
    axes.bar(best, highest, width=0.75, color=VERMILION, label="best arm")
    axes.text(best, highest + 0.02, f"{highest:.2f}", ha="center", fontsize=8, color=VERMILION)
    axes.set(xlim=(-0.75, len(probabilities) - 0.25), ylim=(0, 1.12))
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    axes.spines[["top", "right"]].set_visible(False)


register_support(AbstractBandit, draw=draw_bandits)
