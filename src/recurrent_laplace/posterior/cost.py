"""Estimates of computation and memory before a program runs."""

import dataclasses

import jax

from recurrent_laplace.cells import AbstractCell, AbstractGatedCell, Memory
from recurrent_laplace.errors import check_size


@dataclasses.dataclass(frozen=True)
class Cost:
    """Estimated cost of a computation: multiplications and peak memory.

    **Arguments:** `multiplications`, their number; `bytes` at the peak, of arguments, results and
    intermediate values.

    ```python
    memory = rl.Memory(rl.LSTM(3, 128, key=jax.random.key(0)))
    print(rl.LaplacePosterior(memory).cost(steps=100, batch=32))
    ```
    """

    multiplications: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.multiplications:.2e} multiplications, {format_bytes(self.bytes)}"


def format_bytes(count: int | float) -> str:
    """Format a number of bytes: `1234567` as `1.23 MB`."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} EB"


def unroll_cost(
    memory: Memory,
    steps: int,
    batch: int,
    extra_multiplications: int = 0,
    extra_numbers: int = 0,
    working_numbers: int = 0,
) -> Cost:
    """Cost of unrolling a memory, plus that of a posterior on it.

    `extra_multiplications` and `extra_numbers` are per step and example; `working_numbers`, a working set
    that is reused by all steps, are per example.
    """
    check_size("steps", steps)
    check_size("batch", batch)
    step, per_step = 0, extra_numbers + memory.feature_size
    for cell in (*memory.below, memory.cell):
        multiplications, numbers = _step_cost(cell)
        step, per_step = step + multiplications, per_step + numbers
    if memory.readout is not None:
        step += memory.feature_size * memory.cell.hidden_size
    weights = sum(leaf.size for leaf in jax.tree.leaves(memory))
    numbers = weights + batch * (steps * per_step + working_numbers)
    return Cost(
        multiplications=batch * steps * (step + extra_multiplications),
        bytes=memory.dtype.itemsize * numbers,
    )


def _step_cost(cell: AbstractCell) -> tuple[int, int]:
    """Multiplications of one step, and the numbers that it stores."""
    if cell.input_size is None:
        raise ValueError("input_size must be given to Autodiff to estimate a cost; got None.")
    carry = sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(cell.init)))
    if isinstance(cell, AbstractGatedCell):
        projected = cell.weight_ih.shape[0]
        step = projected * (cell.input_size + cell.hidden_size)
    else:
        # The step function is unknown: counted as one product with the whole carry.
        projected = cell.input_size
        step = carry * (cell.input_size + carry)
    return step, cell.input_size + projected + carry + cell.hidden_size
