"""Cost estimates of runs by counting operations, accurate to a factor of about three."""

import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax

from recurrent_laplace.cells import AbstractGatedCell
from recurrent_laplace.evaluation.evaluate import TEST_TASKS
from recurrent_laplace.evaluation.regression import QUERIES, predictive_samples
from recurrent_laplace.learning import Config
from recurrent_laplace.learning.train import tasks_per_chunk
from recurrent_laplace.models import AbstractPosteriorConfig, Agent, AgentConfig, Regressor
from recurrent_laplace.posterior.cost import Cost, unroll_cost
from recurrent_laplace.runs.config import Run
from recurrent_laplace.runs.models import snapshot_updates
from recurrent_laplace.tasks import AbstractControlTask, AbstractTask, Regression
from recurrent_laplace.tasks.held_out import LENGTHS

MULTIPLICATIONS_PER_SECOND = 5e10
"""Throughput of two cores in products of this size."""
SECONDS_PER_STEP = 1e-4
"""Overhead per step of a compiled loop."""
COMPILE_SECONDS = 25.0
"""Compilation of both programs of a run, training and evaluation, on one core, with process start."""
PROGRAM_BYTES = 600_000_000
"""Memory of Python, JAX and its compiler."""
NUMBER_BYTES = 4
"""Size of a float32."""
GRADIENT_BYTES = 2.5
"""Memory of a gradient relative to that of the unroll alone."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Cost of a run: seconds on two cores, peak memory in bytes, disk space in bytes."""

    seconds: float
    memory: int
    disk: int
    update_seconds: float
    """Part of `seconds` that each update takes."""


def estimate(run: Run, test_tasks: int = TEST_TASKS) -> Estimate:
    """Estimate the cost of a run and its evaluation, without computing or compiling anything."""
    learning = run.config.learning
    objective = run.config.objective
    passes = objective.passes
    weights = parameters(run)
    trained, untrained = _step_multiplications(run)
    work = trained * 3 * passes + untrained * passes + (trained + untrained) * objective.acts
    work *= learning.batch * learning.steps
    steps = learning.steps * (2 * passes + objective.acts)
    update = run.seeds * work / MULTIPLICATIONS_PER_SECOND + steps * SECONDS_PER_STEP
    evaluation = _unroll_cost(run, max(LENGTHS), TEST_TASKS)
    seconds = COMPILE_SECONDS + learning.updates * update
    seconds += run.seeds * test_tasks * _test_multiplications(run) / MULTIPLICATIONS_PER_SECOND
    # Dense beliefs are stored for all tasks, but their gradients only for one chunk of tasks.
    chunk = tasks_per_chunk(run.config, learning.batch, learning.steps)
    gradient = GRADIENT_BYTES * _unroll_cost(run, learning.steps, chunk).bytes
    matrix = NUMBER_BYTES * run.config.agent.features**2
    stored = learning.batch * learning.steps * matrix if chunk < learning.batch else 0
    snapshots = len(set(snapshot_updates(learning.updates)))
    rows = run.seeds * (12 * learning.updates + 10 * test_tasks * len(LENGTHS))
    return Estimate(
        seconds=seconds,
        memory=PROGRAM_BYTES + int(max((gradient + stored) * run.seeds, evaluation.bytes)),
        disk=snapshots * 3 * NUMBER_BYTES * weights * run.seeds + 6 * rows,
        update_seconds=update,
    )


def _step_multiplications(run: Run) -> tuple[float, float]:
    """Multiplications per step and task, with a gradient and without: curvatures have none."""
    learning, counts = run.config.learning, _counts(_structure(run))
    unroll = _unroll_cost(run, learning.steps, learning.batch).multiplications
    extra = unroll / (learning.batch * learning.steps) - counts.memory
    heads = counts.heads * max(learning.training_samples, 1)
    own = counts.memory - (counts.looked_up if learning.lookup else 0)
    if model_shapes(run).posterior.covariance_has_gradient:
        return own + heads + extra, 0.0
    return own + heads, extra


def _test_multiplications(run: Run) -> float:
    """Multiplications per test task and seed."""
    steps, heads = max(LENGTHS), _counts(_structure(run)).heads
    unroll = _unroll_cost(run, steps, TEST_TASKS).multiplications / TEST_TASKS
    if run.config.objective.acts:
        return unroll + steps * heads * max(run.config.learning.acting_samples, 1)
    samples = max(predictive_samples(run.config.learning.training_samples), 1)
    sets = 2 if isinstance(run.config.task, Regression) else 1
    return sets * (unroll + len(LENGTHS) * QUERIES * samples * heads)


def parameters(run: Run) -> int:
    """Number of parameters of one seed's model."""
    return _counts(_structure(run)).parameters


def model_shapes(run: Run) -> Agent | Regressor:
    """Model of one seed, with shapes and dtypes in place of arrays."""
    return _shapes(_structure(run))


Structure = tuple[AbstractTask, AgentConfig, AbstractPosteriorConfig, Any]
"""Everything that determines the shapes of a model, including the default float dtype."""


class Counts(NamedTuple):
    """Numbers of parameters of a model, and multiplications per step of its memory."""

    parameters: int
    heads: int
    """Parameters outside of the posterior."""
    memory: int
    """Multiplications per step of the memory."""
    looked_up: int
    """Those with inputs, where they can be looked up."""


def _structure(run: Run) -> Structure:
    """Cache key of the model's shapes: the runs of a large sweep have few different ones."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    return run.config.task, run.config.agent, run.config.posterior, dtype


def _unroll_cost(run: Run, steps: int, batch: int) -> Cost:
    return _cost(_structure(run), steps, batch)


@functools.cache
def _cost(structure: Structure, steps: int, batch: int) -> Cost:
    return _shapes(structure).posterior.cost(steps=steps, batch=batch)


@functools.cache
def _shapes(structure: Structure) -> Agent | Regressor:
    task, agent, posterior, _ = structure
    objective = Config(task=task, agent=agent, posterior=posterior).objective
    return jax.eval_shape(objective.make_model, jax.random.key(0))


@functools.cache
def _counts(structure: Structure) -> Counts:
    model, task = _shapes(structure), structure[0]
    sizes = [leaf.size for leaf in jax.tree.leaves(model)]
    others = [leaf.size for leaf in jax.tree.leaves(eqx.tree_at(lambda m: m.posterior, model, None))]
    memory = model.posterior.memory
    cell, looked_up = memory.cell, 0
    has_vocabulary = isinstance(task, AbstractControlTask) and task.vocabulary() is not None
    if has_vocabulary and isinstance(cell, AbstractGatedCell):
        looked_up = cell.weight_ih.size
    return Counts(
        parameters=sum(sizes),
        heads=sum(others),
        memory=unroll_cost(memory, 1, 1).multiplications,
        looked_up=looked_up,
    )
