"""Training as a pure function of a key."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.core import Tracer
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from recurrent_laplace.chunks import largest_divisor
from recurrent_laplace.deprecations import renamed_argument
from recurrent_laplace.errors import check_shape, check_size
from recurrent_laplace.learning.beliefs import sampling_noise, with_standard_error
from recurrent_laplace.learning.config import Config
from recurrent_laplace.learning.objectives.base import Batch, Learned, Model, Schedule
from recurrent_laplace.learning.optimizer import learning_rate, make_optimizer
from recurrent_laplace.learning.sharding import (
    REPLICATED,
    SHARDED,
    SHARDED_SECOND,
    ShardedAxis,
    check_shards,
    checked_mesh,
    jit_on_mesh,
    mean_over_shards,
    shard_over_mesh,
)

CHUNK = 20
"""Maximum number of updates per compiled call."""

STATES_PER_CHUNK = 2**18
"""Elements of hidden states per chunk of a gradient with dense beliefs.

With more of them, their matrices fill gigabytes that the system has to clear first. Other beliefs gain
nothing from chunks."""

FAST_COMPILATION = {"xla_backend_optimization_level": 1}
"""Compiler options of a program that runs once."""

WATCHED = ("loss", "gradient", "belief", "weights")
"""Quantities that must stay finite."""


class TrainState(eqx.Module):
    """State of training: weights, state of the optimiser, key, number of updates made.

    From equal states, training continues with equal numbers. With several seeds, all fields have a leading
    axis of seeds.

    **Arguments:**

    - `model`: the weights, an `rl.Agent` or `rl.Regressor`.
    - `optimizer`: state of AdamW.
    - `key`: key of the run.
    - `update`: number of updates made.
    - `variables`: variables that the objective trains beside the weights, such as the dual variables of
      V-MPO; None for other objectives.

    ```python
    state = rl.make_train(rl.Config(task=rl.TwoArmBandit())).init(jax.random.key(0))
    state.update  # 0
    ```
    """

    model: Any
    optimizer: Any
    key: Array
    update: Int[Array, "..."]
    variables: Any = None


class Progress(eqx.Module):
    """Result of a call of `advance`.

    The first `count` rows of `metrics` are those of the updates made. `finite` has a boolean for each
    quantity in `WATCHED`: if any is false, the update after those was discarded.
    """

    metrics: dict[str, Float[Array, "..."]]
    count: Int[Array, ""]
    finite: Bool[Array, "... W"]


class Train:
    """Training of a configuration, in one pure function of a key or in chunks of updates.

    - `train(key)` is a pure function: the final `TrainState`, and the metrics of every update.
    - `train.init(key)`, then `train.advance(state, until)`, makes at most `CHUNK` updates per compiled call,
      to inspect, store and stop in between. The two agree.

    Given keys of shape `(seeds,)`, `init` and `advance` train all seeds in one program, with a leading axis
    of seeds.

    **Arguments:**

    - `config`: the configuration.
    - `mesh`: devices, with one axis named `"tasks"`. Each holds a shard of the tasks of a batch and a copy of
      everything else. Random numbers do not depend on the mesh: results agree up to the order of sums.
    - `sharded`: `"tasks"`, or `"seeds"` for a shard of the seeds on each device. Seeds need no communication,
      so prefer them where there are enough.
    - `start`: updates made before this training, whose schedules and stream of tasks it continues.

    ```python
    learning = rl.LearningConfig(updates=3, batch=8, steps=10)
    train = rl.Train(rl.Config(task=rl.TwoArmBandit(), learning=learning))
    state, progress = train.advance(train.init(jax.random.key(0)), until=2)
    ```
    """

    @renamed_argument("shared", "sharded")
    def __init__(
        self, config: Config, *, mesh: Mesh | None = None, sharded: ShardedAxis = "tasks", start: int = 0
    ):
        config.check()
        check_size("start", start, least=0)
        self.config = config
        self.start = start
        self.end = start + config.learning.updates
        self.objective = config.objective
        self.mesh = mesh = checked_mesh(mesh)
        self._shards_seeds = mesh is not None and sharded == "seeds"
        self._task_mesh = None if self._shards_seeds else mesh
        if self._task_mesh is not None:
            check_shards(config.learning.batch, self.objective.minibatches, self._task_mesh.size)
        self.optimizer = make_optimizer(config.learning)
        self._init_compiled = jax.jit(self._init, compiler_options=FAST_COMPILATION)
        advance, state_spec, in_specs, out_specs = self._advance_chunk, REPLICATED, REPLICATED, REPLICATED
        if self._shards_seeds:
            progress = (SHARDED_SECOND, REPLICATED, SHARDED)
            state_spec, in_specs, out_specs = SHARDED, (SHARDED, REPLICATED, REPLICATED), (SHARDED, progress)
            advance = shard_over_mesh(advance, mesh, in_specs, out_specs)
        self._advance = jit_on_mesh(advance, mesh, in_specs, out_specs)
        self._place = jit_on_mesh(lambda state: state, mesh, (state_spec,), state_spec)

    def init(self, key: Array) -> TrainState:
        """State before the first update."""
        # Under a trace, compiler options of its own would be refused.
        return self._init(key) if isinstance(key, Tracer) else self._init_compiled(key)

    def make_model(self, key: Array) -> Model:
        """Initialise a model."""
        return self.objective.make_model(key)

    def start_from(self, model: Model, key: Array) -> TrainState:
        """State before the first update of a given model, with a new optimiser."""
        build = jax.vmap(self._state_of) if key.ndim else self._state_of
        return jax.jit(build)(model, key)

    def continue_from(self, state: TrainState, model: Model) -> TrainState:
        """State that continues the training of `state` with another model.

        Moments of parameters that the model of `state` lacks are zero.
        """
        # Compiled, so that the arguments are copied: `advance` would give away their memory.
        build = jax.vmap(self._continue) if state.key.ndim else self._continue
        return jax.jit(build)(state, model)

    def advance(self, state: TrainState, until: int) -> tuple[TrainState, Progress]:
        """Make updates until there are `until`, at most `CHUNK`; stop before one that is not finite.

        `until` includes the `start` updates made before. The state is donated: its memory is reused.
        """
        # The length of the whole training is an argument of the compiled program: a fine-tune of half
        # the length is the same program.
        state, progress = self._advance(self.place(state), until, self.end)
        return state, Progress(*progress)

    def place(self, state: TrainState) -> TrainState:
        """State on the devices that `advance` expects; the argument is donated.

        A new state, or one from a file, is on one device. Without this, `advance` would be compiled once for
        it, and once more for the state that it returns.
        """
        return state if self.mesh is None else self._place(state)

    def lower(self, state: TrainState) -> jax.stages.Lowered:
        """Lower the program of `advance` for a state of these shapes.

        Compiled, it takes a state, the number of updates to stop at, and the number of all updates.
        """
        return self._advance.lower(state, 0, self.end)

    def __call__(self, key: Array) -> tuple[TrainState, dict[str, Float[Array, "U"]]]:
        """Train from the first update to the last; pure, for use under `jit` and `vmap`."""
        check_shape("key", key, ())
        state = self._init(key)

        def update(state, _):
            state, metrics, _ = self.update(state)
            return state, metrics

        return jax.lax.scan(update, state, length=self.config.learning.updates)

    def update(
        self, state: TrainState, updates: Int[Array, ""] | int | None = None
    ) -> tuple[TrainState, dict[str, Array], Bool[Array, " W"]]:
        """Make one update of one seed: gather a batch, learn from it. To be traced.

        `updates` is the number of all updates, for schedules.
        """
        updates = self.end if updates is None else updates
        key_data, key_learn = jax.random.split(jax.random.fold_in(state.key, state.update))
        schedule = Schedule(state.update, updates)
        batch = self.objective.gather(state.model, mesh=self._task_mesh, key=key_data)
        step = functools.partial(self._step, schedule)
        model, optimizer, metrics, finite, variables = self.objective.learn(
            step, state.model, state.optimizer, batch, variables=state.variables, key=key_learn
        )
        state = TrainState(model, optimizer, state.key, state.update + 1, variables)
        return state, with_standard_error(metrics), finite

    def _init(self, key: Array) -> TrainState:
        if key.ndim:
            return jax.vmap(self._init)(key)
        key_model, key_train = jax.random.split(key)
        return self._state_of(self.make_model(key_model), key_train)

    def _state_of(self, model: Model, key: Array) -> TrainState:
        optimizer = self.optimizer.init(model)  # pyright: ignore[reportArgumentType]
        update = jnp.full((), self.start, jnp.int32)
        return TrainState(model, optimizer, key, update, self.objective.init_variables())

    def _continue(self, state: TrainState, model: Model) -> TrainState:
        moments = dict(jax.tree.leaves_with_path(state.optimizer))

        def inherited(path: Any, fresh: Array) -> Array:
            moment = moments.get(path, fresh)
            return moment if moment.shape == fresh.shape else fresh

        fresh = self._state_of(model, state.key)
        optimizer = jax.tree.map_with_path(inherited, fresh.optimizer)
        same = jax.tree.structure(state.variables) == jax.tree.structure(fresh.variables)
        variables = state.variables if same else fresh.variables
        return TrainState(model, optimizer, state.key, state.update, variables)

    def _gradient(self, model: Model, batch: Batch, schedule: Schedule, *, key: Array) -> Any:
        """Loss and gradient of a batch, in chunks of tasks; each device of a mesh works on its shard."""
        mesh = self._task_mesh
        value_and_grad = jax.value_and_grad(self.objective.loss, has_aux=True)
        tasks, steps = jax.tree.leaves(batch)[0].shape[:2]
        shard_size = tasks if mesh is None else tasks // mesh.size
        chunk_size = tasks_per_chunk(self.config, shard_size, steps)
        if mesh is None and chunk_size == tasks:
            return value_and_grad(model, batch, schedule, key=key)

        axes = (type(batch).by_axis(0, 1), 1)

        def shard_gradient(model, batch, noise, schedule, key):
            def chunk_gradient(index):
                chunk, chunk_noise = _chunk_of((batch, noise), axes, index, chunk_size)
                return value_and_grad(model, chunk, schedule, key=key, noise=chunk_noise)

            # A loss is a mean over tasks, so the mean of its gradients is the gradient of the whole.
            chunks = jax.lax.map(chunk_gradient, jnp.arange(shard_size // chunk_size))
            mean = jax.tree.map(_mean_of_chunks, chunks)
            return mean if mesh is None else mean_over_shards(mean)

        # One key stands for the noise of all tasks, so it is sampled for all of them before it is sharded.
        samples = self.config.learning.training_samples
        noise = sampling_noise(model.posterior, samples, (tasks, steps), key=key)
        batch_specs = type(batch).by_axis(SHARDED, SHARDED_SECOND)
        in_specs = (REPLICATED, batch_specs, SHARDED_SECOND, REPLICATED, REPLICATED)
        gradient = shard_over_mesh(shard_gradient, mesh, in_specs, REPLICATED)
        return gradient(model, batch, noise, schedule, key)

    def _step(self, schedule: Schedule, model: Model, optimizer: Any, batch: Batch, *, key: Array) -> Learned:
        """Make one gradient step."""
        (value, (metrics, finite_belief)), gradient = self._gradient(model, batch, schedule, key=key)
        norm = optax.tree.norm(gradient)
        changes, optimizer = self.optimizer.update(gradient, optimizer, model)
        rate = learning_rate(self.config.learning, schedule)
        model = optax.apply_updates(model, optax.tree.scale(rate, changes))
        metrics = {"loss": value, **metrics, "gradient_norm": norm}
        weights = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(model)])
        finite = jnp.stack([jnp.isfinite(value), jnp.isfinite(norm), finite_belief, jnp.all(weights)])
        return Learned(model, optimizer, metrics, finite)

    def _advance_chunk(
        self, state: TrainState, until: Int[Array, ""], updates: Int[Array, ""]
    ) -> tuple[TrainState, tuple[dict[str, Array], Array, Array]]:
        """Traced part of `advance`: the next state, and the fields of `Progress`."""
        update = functools.partial(self.update, updates=updates)
        update = jax.vmap(update) if state.update.ndim else update
        _, shapes, _ = jax.eval_shape(update, state)
        rows = jax.tree.map(lambda s: jnp.zeros((CHUNK, *s.shape), s.dtype), shapes)
        all_finite = jnp.ones((*state.update.shape, len(WATCHED)), bool)
        first = jnp.max(state.update)

        def goes_on(carry):
            _, _, count, _, keep = carry
            return (count < CHUNK) & (first + count < until) & keep

        def body(carry):
            state, rows, count, *_ = carry
            next_state, metrics, finite = update(state)
            rows = jax.tree.map(lambda row, value: row.at[count].set(value), rows, metrics)
            # All seeds stop together, on whatever device they are.
            keep = mean_over_shards(jnp.all(finite)) if self._shards_seeds else jnp.all(finite)
            state = jax.tree.map(lambda new, old: jnp.where(keep, new, old), next_state, state)
            return state, rows, count + keep, finite, keep

        state, rows, count, finite, _ = jax.lax.while_loop(
            goes_on, body, (state, rows, jnp.zeros((), jnp.int32), all_finite, jnp.array(True))
        )
        return state, (rows, count, finite)


def tasks_per_chunk(config: Config, tasks: int, steps: int) -> int:
    """Tasks per chunk of the gradient: a divisor of `tasks`, or all of them unless beliefs are dense."""
    most = max(STATES_PER_CHUNK // (steps * config.agent.hidden_size), 1)
    size = largest_divisor(tasks, most)
    # Without a divisor near the maximum, all tasks stay together: small chunks would take longer.
    return size if config.posterior.family == "dense" and 4 * size >= most else tasks


def _chunk_of(tree: Any, axes: Any, index: Array, size: int) -> Any:
    """Chunk `index` of `size` tasks; `axes` are the batch axes of the leaves."""

    def chunk(axis: int, subtree: Any) -> Any:
        return jax.tree.map(
            lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, index * size, size, axis), subtree
        )

    return jax.tree.map(chunk, axes, tree)


def _mean_of_chunks(leaf: Array) -> Array:
    return jnp.all(leaf, axis=0) if leaf.dtype == bool else jnp.mean(leaf, axis=0)


@renamed_argument("shared", "sharded")
def make_train(
    config: Config, *, mesh: Mesh | None = None, sharded: ShardedAxis = "tasks", start: int = 0
) -> Train:
    """Make the training of a configuration: a pure function of a key.

    **Arguments:**

    - `config`: the configuration.
    - `mesh`, `sharded`: devices, and what is sharded over them, as for `rl.Train`.
    - `start`: updates made before this training, if it continues another.

    ```python
    learning = rl.LearningConfig(updates=3, batch=8, steps=10)
    train = rl.make_train(rl.Config(task=rl.TwoArmBandit(), learning=learning))
    state, metrics = jax.jit(train)(jax.random.key(0))
    metrics["return"]  # (3,)
    ```
    """
    return Train(config, mesh=mesh, sharded=sharded, start=start)
