"""The tasks of a batch, or the seeds of a run, shared out among devices."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

Tree = TypeVar("Tree")
Result = TypeVar("Result")

TASKS = "tasks"
"""Name of a mesh's only axis."""
COPIED = PartitionSpec()
"""All of it on every device."""
SHARED = PartitionSpec(TASKS)
"""A share of the leading axis, that of tasks, on each device."""
SHARED_SECOND = PartitionSpec(None, TASKS)
"""The same where another axis comes first, that of draws or of updates."""

Shared = Literal["tasks", "seeds"]
"""What devices have their shares of: the tasks of a batch, or the seeds of a run."""


def checked_mesh(mesh: Mesh | None) -> Mesh | None:
    """The same devices as a mesh that can be used here, whatever `jax.make_mesh` took for its axis."""
    if mesh is not None and mesh.axis_names != (TASKS,):
        raise ValueError(f"mesh must have one axis, named {TASKS!r}; got {mesh.axis_names}.")
    return None if mesh is None else Mesh(mesh.devices, (TASKS,), axis_types=(AxisType.Auto,))


def on_shares(
    function: Callable[..., Result],
    mesh: Mesh | None,
    given: tuple[PartitionSpec, ...],
    result: Any = SHARED,
) -> Callable[..., Result]:
    """`function` on every device, for its share; without a mesh, on one for all.

    `given` says of each argument how the devices have it, `result` of what is returned.
    """
    if mesh is None:
        return function
    # The check wants to be told in every loop which carries begin as constants and end as shares.
    return jax.shard_map(function, mesh=mesh, in_specs=given, out_specs=result, check_vma=False)


def joined_shares(tree: Tree) -> Tree:
    """Means over all tasks from those over equal shares; what must be true must be true of each."""

    def join(leaf: Array) -> Array:
        if leaf.dtype == bool:
            return jax.lax.pmin(leaf.astype(jnp.int32), TASKS).astype(bool)
        return jax.lax.pmean(leaf, TASKS)

    return jax.tree.map(join, tree)


def compiled(
    function: Callable[..., Result], mesh: Mesh | None, given: Any, result: Any
) -> jax.stages.Wrapped:
    """`jit`, with the first argument given away; `given` and `result` say where things are on a mesh."""
    if mesh is None:
        return jax.jit(function, donate_argnums=0)

    def places(specs: Any) -> Any:
        return jax.tree.map(
            lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda one: isinstance(one, PartitionSpec)
        )

    return jax.jit(function, donate_argnums=0, in_shardings=places(given), out_shardings=places(result))


def copied(mesh: Mesh) -> NamedSharding:
    """All of it on every device of a mesh."""
    return NamedSharding(mesh, COPIED)


def check_shares(batch: int, minibatches: int, devices: int) -> None:
    """Refuse a batch that cannot be shared out evenly."""
    share = batch // minibatches
    if share % devices:
        each = f"each of the {minibatches} minibatches" if minibatches > 1 else "a batch"
        raise ValueError(f"devices must divide the {share} tasks of {each}; got {devices} in all.")
