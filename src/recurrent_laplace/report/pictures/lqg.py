"""Plots of LQG problems: the state over time, without control and with it, a panel per problem."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recurrent_laplace.oracles import make_references
from recurrent_laplace.report.style import BLUE, VERMILION
from recurrent_laplace.report.tasks import PAGE_WIDTH, label_panels, make_panels, sample_problems
from recurrent_laplace.tasks import LQG, register_support
from recurrent_laplace.tasks.lqg import LQGProblem

STEPS = 40
"""Number of steps per problem."""


def draw_systems(task: LQG, key: Array, count: int) -> Figure:
    """Draw states of problems, with the observations under control."""
    key_problems, key_steps = jax.random.split(key)
    figure, panels = make_panels(task, count, width=PAGE_WIDTH / 2, height=1.6)
    problems = sample_problems(task, key_problems, count)
    for i, (axes, problem) in enumerate(zip(panels, problems, strict=True)):
        draw_system(axes, task, problem, jax.random.fold_in(key_steps, i))
        axes.set_title(f"problem {i + 1}")
    label_panels(panels, "step", "state")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def draw_system(axes: Axes, task: LQG, problem: LQGProblem, key: Array) -> None:
    """Draw the state without control and under the LQG controller."""
    free, _ = _states(task, problem, key, False)
    controlled, observations = _states(task, problem, key, True)
    axes.plot(free, color="0.6", linewidth=1, label="without control")
    axes.plot(controlled, color=BLUE, linewidth=1.5, label="LQG controller")
    axes.plot(observations, ".", color=VERMILION, markersize=3, label="observation")
    axes.axhline(0, color="0.8", linewidth=0.5, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)


@eqx.filter_jit
def _states(task: LQG, problem: LQGProblem, key: Array, control: bool) -> tuple[np.ndarray, np.ndarray]:
    problem = jax.tree.map(jnp.asarray, problem)
    controller = make_references(task)["greedy"](problem)
    key_reset, key_steps = jax.random.split(key)
    state, observation = task.reset(problem, key_reset)

    def step(carry, key):
        state, belief, observation = carry
        action = control * controller.act(belief, observation, key)
        after, outcome = task.step(problem, state, action, key)
        belief = controller.oracle.update(belief, observation, action, outcome)
        return (after, belief, outcome.observation), (state, observation[0])

    start = (state, controller.oracle.init(observation), observation)
    return jax.lax.scan(step, start, jax.random.split(key_steps, STEPS))[1]


register_support(LQG, draw=draw_systems)
