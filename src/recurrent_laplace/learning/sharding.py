"""Sharding of the tasks of a batch, or of the seeds of a run, over a mesh of devices."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

Tree = TypeVar("Tree")
Result = TypeVar("Result")

TASKS = "tasks"
"""Name of the only axis of a mesh."""
REPLICATED = PartitionSpec()
"""A full copy on every device."""
SHARDED = PartitionSpec(TASKS)
"""The leading axis, that of tasks or of seeds, sharded."""
SHARDED_SECOND = PartitionSpec(None, TASKS)
"""The second axis sharded, after an axis of samples or of updates."""

ShardedAxis = Literal["tasks", "seeds"]
"""Axis that is sharded: the tasks of a batch, or the seeds of a run."""


def checked_mesh(mesh: Mesh | None) -> Mesh | None:
    """The same devices with an automatic axis, which `jax.make_mesh` may have made explicit."""
    if mesh is not None and mesh.axis_names != (TASKS,):
        raise ValueError(f"mesh must have one axis, named {TASKS!r}; got {mesh.axis_names}.")
    return None if mesh is None else Mesh(mesh.devices, (TASKS,), axis_types=(AxisType.Auto,))


def shard_over_mesh(
    function: Callable[..., Result],
    mesh: Mesh | None,
    in_specs: tuple[PartitionSpec, ...],
    out_specs: Any = SHARDED,
) -> Callable[..., Result]:
    """`jax.shard_map` of a function; the function itself without a mesh."""
    if mesh is None:
        return function
    # The check would need an annotation in every loop whose carry starts replicated and ends sharded.
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def mean_over_shards(tree: Tree) -> Tree:
    """Means over all tasks from those over equal shards; booleans are true if true on every shard."""

    def reduce(leaf: Array) -> Array:
        if leaf.dtype == bool:
            return jax.lax.pmin(leaf.astype(jnp.int32), TASKS).astype(bool)
        return jax.lax.pmean(leaf, TASKS)

    return jax.tree.map(reduce, tree)


def jit_on_mesh(
    function: Callable[..., Result], mesh: Mesh | None, in_specs: Any, out_specs: Any
) -> jax.stages.Wrapped:
    """`jax.jit` with the first argument donated; the partition specs apply where there is a mesh."""
    if mesh is None:
        return jax.jit(function, donate_argnums=0)

    def shardings(specs: Any) -> Any:
        is_spec = lambda leaf: isinstance(leaf, PartitionSpec)  # noqa: E731
        return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs, is_leaf=is_spec)

    return jax.jit(
        function, donate_argnums=0, in_shardings=shardings(in_specs), out_shardings=shardings(out_specs)
    )


def replicated(mesh: Mesh) -> NamedSharding:
    """The sharding that puts a full copy on every device of a mesh."""
    return NamedSharding(mesh, REPLICATED)


def check_shards(batch: int, minibatches: int, devices: int) -> None:
    """Refuse minibatches that cannot be divided into equal shards."""
    tasks = batch // minibatches
    if tasks % devices:
        which = f"each of the {minibatches} minibatches" if minibatches > 1 else "a batch"
        raise ValueError(f"devices must divide the {tasks} tasks of {which}; got {devices} in all.")
