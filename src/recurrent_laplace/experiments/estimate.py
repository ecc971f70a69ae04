"""What a run will take, before it starts: by counting, good to a factor of about three."""

import dataclasses
import functools

import equinox as eqx
import jax

from recurrent_laplace.evaluation.evaluate import TEST_TASKS
from recurrent_laplace.evaluation.lengths import LENGTHS
from recurrent_laplace.experiments.config import Run
from recurrent_laplace.experiments.models import snapshot_updates
from recurrent_laplace.learning import Config, make_train
from recurrent_laplace.learning.train import tasks_together
from recurrent_laplace.models import Agent, AgentConfig, PosteriorConfig, Regressor
from recurrent_laplace.posterior.cost import Cost
from recurrent_laplace.tasks import AbstractControlTask, AbstractTask

MULTIPLICATIONS_PER_SECOND = 2e10
"""What two cores do in products of this size."""
SECONDS_PER_STEP = 1.5e-4
"""Overhead of a step of a compiled loop."""
COMPILE_SECONDS = 25.0
"""Both programs of a run, training and evaluation, on one core, and the start of the process's share."""
PROGRAM_BYTES = 600_000_000
"""Python, JAX and its compiler."""
NUMBER_BYTES = 4
"""Of a float32."""
GRADIENT_BYTES = 2.5
"""Memory of a gradient in units of what the unroll alone takes."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Seconds of work on two cores, bytes of memory at the peak, bytes left on disk."""

    seconds: float
    memory: int
    disk: int


def estimate(run: Run) -> Estimate:
    """What a run will take, its evaluation included; nothing is computed or compiled."""
    learning = run.config.learning
    is_control = isinstance(run.config.task, AbstractControlTask)
    cost = _unroll_cost(run, learning.steps, learning.batch)
    weights = parameters(run)
    passes = learning.epochs if is_control else 1
    heads = learning.batch * learning.steps * weights * learning.training_samples // 2
    work = (cost.multiplications + heads) * (3 * passes + is_control)
    steps = learning.steps * (2 * passes + is_control)
    update = run.seeds * work / MULTIPLICATIONS_PER_SECOND + steps * SECONDS_PER_STEP
    tested = _unroll_cost(run, max(LENGTHS), TEST_TASKS)
    seconds = COMPILE_SECONDS + learning.updates * update
    seconds += run.seeds * 3 * tested.multiplications / MULTIPLICATIONS_PER_SECOND
    # Dense beliefs: those that act are kept for all tasks, what the gradient makes of them for a part.
    part = tasks_together(run.config, learning.batch, learning.steps)
    gradient = GRADIENT_BYTES * _unroll_cost(run, learning.steps, part).bytes
    matrix = NUMBER_BYTES * run.config.agent.features**2
    kept = learning.batch * learning.steps * matrix if part < learning.batch else 0
    snapshots = len(set(snapshot_updates(learning.updates)))
    rows = run.seeds * (12 * learning.updates + 10 * TEST_TASKS * len(LENGTHS))
    return Estimate(
        seconds=seconds,
        memory=PROGRAM_BYTES + int(max((gradient + kept) * run.seeds, tested.bytes)),
        disk=snapshots * 3 * NUMBER_BYTES * weights * run.seeds + 6 * rows,
    )


def parameters(run: Run) -> int:
    """Numbers in the weights of one seed's model."""
    return sum(leaf.size for leaf in jax.tree.leaves(_shapes(*_structure(run))))


def _structure(run: Run) -> tuple[AbstractTask, AgentConfig, PosteriorConfig]:
    """What the shapes of a model depend on: the runs of a large sweep have few that differ in it."""
    return run.config.task, run.config.agent, run.config.posterior


def _unroll_cost(run: Run, steps: int, batch: int) -> Cost:
    return _cost(*_structure(run), steps, batch)


@functools.cache
def _cost(task: AbstractTask, agent: AgentConfig, posterior: PosteriorConfig, steps: int, batch: int) -> Cost:
    return _shapes(task, agent, posterior).posterior.cost(steps=steps, batch=batch)


@functools.cache
def _shapes(task: AbstractTask, agent: AgentConfig, posterior: PosteriorConfig) -> Agent | Regressor:
    train = make_train(Config(task=task, agent=agent, posterior=posterior))
    return eqx.filter_eval_shape(train.make_model, jax.random.key(0))
