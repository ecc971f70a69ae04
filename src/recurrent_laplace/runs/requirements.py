"""Lower bounds of the memory of a command, checked against the available memory before anything is allocated.

Since they are lower bounds, no computation is refused that would have fitted; `estimate` has the expected
values.
"""

import jax
import jax.numpy as jnp

from recurrent_laplace.learning.train import tasks_per_chunk
from recurrent_laplace.machine.memory import require_memory
from recurrent_laplace.oracles import make_oracle
from recurrent_laplace.runs.config import Run
from recurrent_laplace.runs.estimate import NUMBER_BYTES, model_shapes
from recurrent_laplace.tasks import AbstractTask, support_of
from recurrent_laplace.tasks.held_out import LENGTHS, TASKS_AT_ONCE

COPIES = 4
"""Copies of the weights: themselves, their gradient, and its two moments."""
UNROLL_DIVISOR = 4
"""Largest factor by which look-up of inputs reduces the memory that `posterior.cost` counts for an unroll."""
ROW_BYTES = 60
"""Size of a row of an evaluation table."""
METRICS = 5
"""Minimum number of metrics per test task and length."""


def require_training_memory(run: Run, processes: int = 1) -> None:
    """Raise `TooLargeError` for a run that would not fit; `processes` shard its experience and beliefs."""
    learning, task = run.config.learning, run.config.task
    model = model_shapes(run)
    weights = sum(leaf.size for leaf in jax.tree.leaves(model))
    batch = -(-learning.batch // processes)
    steps = learning.steps * (task.observation_size + 4)
    together = tasks_per_chunk(run.config, batch, learning.steps)
    samples = learning.steps * max(learning.training_samples, 1) * run.config.agent.features
    unroll = model.posterior.cost(steps=learning.steps, batch=together).bytes // UNROLL_DIVISOR
    needed = {
        "weights": run.seeds * COPIES * NUMBER_BYTES * weights,
        "experience": run.seeds * NUMBER_BYTES * batch * (steps + learning.acting_samples),
        "beliefs": run.seeds * max(unroll, NUMBER_BYTES * together * samples),
    }
    remedies = {
        "weights": "--hidden-size, --features, --embedding-sizes, --head-sizes, --seeds or task",
        "experience": "--batch, --steps, --seeds or task",
        "beliefs": "--batch, --steps, --hidden-size, --features, --training-samples or --seeds",
    }
    largest = max(needed, key=lambda name: needed[name])
    require_memory(sum(needed.values()), "training this run", f"Take smaller {remedies[largest]}.")
    _require_oracle_memory(task)


def require_evaluation_memory(run: Run, task: AbstractTask, tasks: int) -> None:
    """Raise `TooLargeError` for an evaluation table that would not fit."""
    rows = run.seeds * tasks * len(LENGTHS) * METRICS
    require_memory(ROW_BYTES * rows, f"the evaluation on {tasks} tasks", "Take fewer --tasks.")
    _require_oracle_memory(task)


def require_episodes_memory(run: Run, episodes: int, steps: int, remedy: str) -> None:
    """Raise `TooLargeError` for episodes whose observations, features and hidden states would not fit."""
    memory = model_shapes(run).posterior.memory
    numbers = run.config.task.observation_size + memory.cell.hidden_size + memory.feature_size
    needed = NUMBER_BYTES * episodes * steps * numbers
    require_memory(needed, f"{episodes} episodes of {steps} steps", f"Take fewer {remedy}.")


def _require_oracle_memory(task: AbstractTask) -> None:
    """Raise `TooLargeError` for a task whose exact beliefs would not fit."""
    if support_of(task).oracle is None:
        return
    beliefs = jax.eval_shape(lambda: make_oracle(task).init(jnp.zeros(task.observation_size)))
    numbers = sum(leaf.size for leaf in jax.tree.leaves(beliefs))
    # The belief before and after an update.
    needed = 2 * NUMBER_BYTES * TASKS_AT_ONCE * numbers
    require_memory(needed, f"exact Bayes on test tasks of this {task.name}", "Take a smaller task.")
