"""What a computation will cost, before it runs."""

import dataclasses

import jax

from recurrent_laplace.cells import AbstractCell, AbstractGatedCell, Memory
from recurrent_laplace.errors import check_size


@dataclasses.dataclass(frozen=True)
class Cost:
    """Multiplications, and bytes at the peak: arguments, results and everything between."""

    multiplications: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.multiplications:.2e} multiplications, {format_bytes(self.bytes)}"


def format_bytes(count: int | float) -> str:
    """`1234567` as `1.23 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def unroll_cost(
    memory: Memory,
    steps: int,
    batch: int,
    extra_multiplications: int = 0,
    extra_numbers: int = 0,
    working_numbers: int = 0,
) -> Cost:
    """Cost of unrolling a memory, with so much more a step, and a working set that is reused.

    `extra_multiplications` and `extra_numbers` are per step and example, `working_numbers` per example.
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
    """Multiplications of one step, and the numbers that it leaves behind."""
    if cell.input_size is None:
        raise ValueError("input_size must be given to Autodiff before its cost can be asked; got None.")
    carry = sum(leaf.size for leaf in jax.tree.leaves(cell.init()))
    if isinstance(cell, AbstractGatedCell):
        projected = cell.weight_ih.shape[0]
        step = projected * (cell.input_size + cell.hidden_size)
    else:
        # What a step does is not known: counted as one product with the whole carry.
        projected = cell.input_size
        step = carry * (cell.input_size + carry)
    return step, cell.input_size + projected + carry + cell.hidden_size
