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
from recurrent_laplace.errors import check_shape
from recurrent_laplace.learning.beliefs import noise_of
from recurrent_laplace.learning.config import Config
from recurrent_laplace.learning.elbo import draw_pairs, regression_loss
from recurrent_laplace.learning.optimizer import entropy_weight_at, learning_rate_at, make_optimizer
from recurrent_laplace.learning.ppo import control_loss, gather
from recurrent_laplace.learning.sharding import (
    COPIED,
    SHARED,
    SHARED_SECOND,
    Shared,
    check_shares,
    checked_mesh,
    compiled,
    joined_shares,
    on_shares,
)
from recurrent_laplace.models import Agent, Regressor
from recurrent_laplace.tasks import AbstractControlTask, AbstractRegressionTask

Model = Agent | Regressor

CHUNK = 20
"""Updates that a compiled call makes at most."""

STATES_TOGETHER = 2**18
"""Hidden states, counted in numbers, that a gradient with dense beliefs is taken of at a time: with more of
them, their matrices fill gigabytes that the system has to clear first. Other beliefs gain nothing by it."""

COMPILE_QUICKLY = {"xla_backend_optimization_level": 1}
"""For a program that runs once."""

WATCHED = ("loss", "gradient", "belief", "weights")
"""What must stay finite."""


class TrainState(eqx.Module):
    """All that training depends on: the same state gives the same future."""

    model: Any
    optimizer: Any
    key: Array
    update: Int[Array, "..."]


class Progress(eqx.Module):
    """What a call of `advance` did.

    `metrics` has entries for `count` updates, with room for more. `finite` tells of the update after
    those, which was not made if any of `WATCHED` is false in it.
    """

    metrics: dict[str, Float[Array, "..."]]
    count: Int[Array, ""]
    finite: Bool[Array, "... W"]


class Train:
    """What `make_train` returns: call it with a key for a whole training, or go step by step.

    - `train(key)`: the final `TrainState` and the metrics of every update, as one pure function;
    - `train.init(key)`, then `train.advance(state, until)`: at most `CHUNK` updates in a compiled
      call, for those who want to look, store and stop in between. The two agree.

    With `keys` of shape `(seeds,)` everything gets a leading axis of seeds, in one program.

    With a `mesh` each of its devices has its share of the tasks of a batch, and a copy of everything
    else; or, where seeds are `shared`, its share of the seeds. Random numbers do not depend on the mesh:
    results agree up to the order of sums.
    """

    def __init__(self, config: Config, *, mesh: Mesh | None = None, shared: Shared = "tasks"):
        config.check()
        self.config = config
        self.mesh = mesh = checked_mesh(mesh)
        self._shares_seeds = mesh is not None and shared == "seeds"
        self._mesh_of_tasks = None if self._shares_seeds else mesh
        if self._mesh_of_tasks is not None:
            minibatches = config.learning.minibatches if self._is_control else 1
            check_shares(config.learning.batch, minibatches, self._mesh_of_tasks.size)
        self.optimizer = make_optimizer(config.learning)
        self._init = jax.jit(self._init_one, compiler_options=COMPILE_QUICKLY)
        self._init_seeds = jax.jit(jax.vmap(self._init_one), compiler_options=COMPILE_QUICKLY)
        advance, given, result = self._advance_chunk, COPIED, COPIED
        if self._shares_seeds:
            progress = Progress(metrics=SHARED_SECOND, count=COPIED, finite=SHARED)  # pyright: ignore[reportArgumentType]
            given, result = (SHARED, COPIED, COPIED), (SHARED, progress)
            advance = on_shares(advance, mesh, given, result)
        self._advance = compiled(advance, mesh, given, result)
        place = SHARED if self._shares_seeds else COPIED
        self._spread = compiled(lambda state: state, mesh, (place,), place)

    def init(self, key: Array) -> TrainState:
        """The state before the first update."""
        if isinstance(key, Tracer):  # Only a program of its own can be compiled in its own way.
            return jax.vmap(self._init_one)(key) if key.ndim else self._init_one(key)
        return self._init_seeds(key) if key.ndim else self._init(key)

    def make_model(self, key: Array) -> Model:
        """A freshly initialised model."""
        config, task = self.config, self.config.task
        if isinstance(task, AbstractControlTask):
            return Agent.init(
                config.agent,
                config.posterior,
                observation_size=task.observation_size,
                actions=task.actions,
                policy_input=task.policy_input,
                key=key,
            )
        assert isinstance(task, AbstractRegressionTask)
        x, y = jax.eval_shape(lambda k: task.pairs(task.sample(k), k, 1), key)
        return Regressor.init(
            config.agent, config.posterior, input_size=x.shape[-1], output_size=y.shape[-1], key=key
        )

    def start_from(self, model: Model, key: Array) -> TrainState:
        """The state before the first update of a given model, with a fresh optimiser."""
        build = jax.vmap(self._state_of) if key.ndim else self._state_of
        return jax.jit(build)(model, key)

    def advance(self, state: TrainState, until: int) -> tuple[TrainState, Progress]:
        """Make updates until `until` of them are made, at most `CHUNK`, and none that is not finite.

        The state is given away: its memory is used for the new one.
        """
        # The length of the whole training is an argument of the compiled program: a fine-tune of half
        # the length is the same program.
        return self._advance(self.spread(state), until, self.config.learning.updates)

    def spread(self, state: TrainState) -> TrainState:
        """The state on the devices that `advance` wants it on; it is given away.

        One that is fresh or from a file is on one device: for it the program of `advance` would be compiled
        once, and once more for what it returns.
        """
        return state if self.mesh is None else self._spread(state)

    def lower(self, state: TrainState) -> jax.stages.Lowered:
        """The program of `advance`, traced and not yet compiled; of `state` only the shapes matter.

        Compiled, it takes a state, until how many updates, and how many the whole training has.
        """
        return self._advance.lower(state, 0, self.config.learning.updates)

    def __call__(self, key: Array) -> tuple[TrainState, dict[str, Float[Array, "U"]]]:
        """Train from beginning to end: pure, so that it can be put under `jit` and `vmap`."""
        check_shape("key", key, ())
        state = self._init_one(key)

        def update(state, _):
            state, metrics, _ = self.update(state)
            return state, metrics

        return jax.lax.scan(update, state, length=self.config.learning.updates)

    def update(
        self, state: TrainState, updates: Int[Array, ""] | int | None = None
    ) -> tuple[TrainState, dict[str, Array], Bool[Array, " W"]]:
        """One batch of experience, and what is learned from it; traced, for one seed.

        `updates`: of the whole training, for what changes in the course of it.
        """
        updates = self.config.learning.updates if updates is None else updates
        key_data, key_learn = jax.random.split(jax.random.fold_in(state.key, state.update))
        learn = self._learn_control if self._is_control else self._learn_regression
        model, optimizer, metrics, finite = learn(state, updates, key_data, key_learn)
        return TrainState(model, optimizer, state.key, state.update + 1), metrics, finite

    @property
    def _is_control(self) -> bool:
        return isinstance(self.config.task, AbstractControlTask)

    def _init_one(self, key: Array) -> TrainState:
        key_model, key_train = jax.random.split(key)
        return self._state_of(self.make_model(key_model), key_train)

    def _state_of(self, model: Model, key: Array) -> TrainState:
        optimizer = self.optimizer.init(model)  # pyright: ignore[reportArgumentType]
        return TrainState(model, optimizer, key, jnp.zeros((), jnp.int32))

    def _gradient(self, loss, model, batch, **given):
        """What the loss says of a batch, and its gradient: each device of a mesh works on its share."""
        config, mesh = self.config.learning, self._mesh_of_tasks
        gradient_of = jax.value_and_grad(loss, has_aux=True)
        tasks, steps = jax.tree.leaves(batch)[0].shape[:2]
        share = tasks if mesh is None else tasks // mesh.size
        together = tasks_together(self.config, share, steps)
        if mesh is None and together == tasks:
            return gradient_of(model, batch, config, **given)

        axes = (type(batch).of_each(0, 1), 1)

        def of_share(model, batch, noise, given):
            def of_part(index):
                few, few_noise = _part_of((batch, noise), axes, index, together)
                return gradient_of(model, few, config, noise=few_noise, **given)

            # A loss is a mean over tasks, so the mean of its gradients is the gradient of the whole.
            parts = jax.lax.map(of_part, jnp.arange(share // together))
            result = jax.tree.map(_mean_of_parts, parts)
            return result if mesh is None else joined_shares(result)

        # One key stands for the noise of all tasks, so it is made for all, and then shared out.
        noise = noise_of(model.posterior, config.training_samples, (tasks, steps), key=given["key"])
        places = (COPIED, type(batch).of_each(SHARED, SHARED_SECOND), SHARED_SECOND, COPIED)
        return on_shares(of_share, mesh, places, COPIED)(model, batch, noise, given)

    def _step(self, model, optimizer, rate, loss, batch, **given):
        """One gradient step, of size `rate`."""
        (value, (metrics, finite_belief)), gradient = self._gradient(loss, model, batch, **given)
        norm = optax.tree.norm(gradient)
        changes, optimizer = self.optimizer.update(gradient, optimizer, model)
        model = optax.apply_updates(model, optax.tree.scale(rate, changes))
        metrics = {"loss": value, **metrics, "gradient_norm": norm}
        weights = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(model)])
        finite = jnp.stack([jnp.isfinite(value), jnp.isfinite(norm), finite_belief, jnp.all(weights)])
        return model, optimizer, metrics, finite

    def _learn_regression(self, state: TrainState, updates: Array | int, key_data: Array, key_learn: Array):
        task, config = self.config.task, self.config.learning
        assert isinstance(task, AbstractRegressionTask)
        pairs = draw_pairs(
            task, batch=config.batch, steps=config.steps, mesh=self._mesh_of_tasks, key=key_data
        )
        rate = learning_rate_at(config, state.update, updates)
        return self._step(state.model, state.optimizer, rate, regression_loss, pairs, key=key_learn)

    def _learn_control(self, state: TrainState, updates: Array | int, key_data: Array, key_learn: Array):
        task, config = self.config.task, self.config.learning
        assert isinstance(task, AbstractControlTask)
        batch = gather(state.model, task, config, mesh=self._mesh_of_tasks, key=key_data)
        rate = learning_rate_at(config, state.update, updates)
        entropy_weight = entropy_weight_at(config, state.update, updates)
        loss = functools.partial(control_loss, alphabet=task.alphabet())

        def step(now, key):
            key_order, key = jax.random.split(key)
            orders = jnp.arange(config.batch)[None]
            if config.minibatches > 1:
                orders = jax.random.permutation(key_order, config.batch).reshape(config.minibatches, -1)

            def on_share(now, given):
                (model, optimizer), (order, key) = now, given
                share = jax.tree.map(lambda leaf: leaf[order], batch) if config.minibatches > 1 else batch
                model, optimizer, metrics, finite = self._step(
                    model, optimizer, rate, loss, share, entropy_weight=entropy_weight, key=key
                )
                return (model, optimizer), (metrics, finite)

            return jax.lax.scan(on_share, now, (orders, jax.random.split(key, len(orders))))

        (model, optimizer), (metrics, finite) = jax.lax.scan(
            step, (state.model, state.optimizer), jax.random.split(key_learn, config.epochs)
        )
        metrics = jax.tree.map(jnp.mean, metrics)
        metrics["return"] = jnp.mean(jnp.sum(batch.experience.reward, axis=-1))
        metrics["cumulative_regret"] = jnp.mean(jnp.sum(batch.experience.regret, axis=-1))
        return model, optimizer, metrics, jnp.all(finite, axis=(0, 1))

    def _advance_chunk(
        self, state: TrainState, until: Int[Array, ""], updates: Int[Array, ""]
    ) -> tuple[TrainState, Progress]:
        update = functools.partial(self.update, updates=updates)
        update = jax.vmap(update) if state.update.ndim else update
        _, shapes, _ = jax.eval_shape(update, state)
        rows = jax.tree.map(lambda s: jnp.zeros((CHUNK, *s.shape), s.dtype), shapes)
        good = jnp.ones((*state.update.shape, len(WATCHED)), bool)
        first = jnp.max(state.update)

        def wanted(now):
            _, _, count, _, keep = now
            return (count < CHUNK) & (first + count < until) & keep

        def body(now):
            state, rows, count, *_ = now
            then, metrics, finite = update(state)
            rows = jax.tree.map(lambda row, value: row.at[count].set(value), rows, metrics)
            # All seeds stop together, wherever they are.
            keep = joined_shares(jnp.all(finite)) if self._shares_seeds else jnp.all(finite)
            state = jax.tree.map(lambda new, old: _where(keep, new, old), then, state)
            return state, rows, count + keep, finite, keep

        state, rows, count, finite, _ = jax.lax.while_loop(
            wanted, body, (state, rows, jnp.zeros((), jnp.int32), good, jnp.array(True))
        )
        return state, Progress(rows, count, finite)


def tasks_together(config: Config, tasks: int, steps: int) -> int:
    """As many tasks as the gradient is to work on together: equal parts of all, where beliefs are dense."""
    most = max(STATES_TOGETHER // (steps * config.agent.hidden_size), 1)
    part = largest_divisor(tasks, most)
    is_dense = config.posterior.kind != "point" and config.posterior.covariance == "dense"
    # A number of tasks without a good divisor stays whole: crumbs would take longer.
    return part if is_dense and 4 * part >= most else tasks


def _part_of(tree: Any, axes: Any, index: Array, size: int) -> Any:
    """The part of that index, of `size` tasks; `axes` says where the tasks are in each leaf."""

    def part(axis: int, subtree: Any) -> Any:
        return jax.tree.map(
            lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, index * size, size, axis), subtree
        )

    return jax.tree.map(part, axes, tree)


def _mean_of_parts(leaf: Array) -> Array:
    return jnp.all(leaf, axis=0) if leaf.dtype == bool else jnp.mean(leaf, axis=0)


def _where(condition: Array, yes: Array, no: Array) -> Array:
    if jnp.issubdtype(yes.dtype, jax.dtypes.prng_key):
        return no  # The key of a run never changes.
    return jnp.where(condition, yes, no)


def make_train(config: Config, *, mesh: Mesh | None = None, shared: Shared = "tasks") -> Train:
    """From a configuration to its training: a pure function of a key.

    ```python
    learning = rl.LearningConfig(updates=3, batch=8, steps=10)
    train = rl.make_train(rl.Config(task=rl.TwoArmBandit(), learning=learning))
    state, metrics = jax.jit(train)(jax.random.key(0))
    metrics["return"]  # (3,)
    ```

    `mesh`: devices to share the tasks of a batch out among, with one axis, `"tasks"`; or the seeds, where
    these are what is `shared`. Seeds need nothing from each other, so they are the better thing to share.
    """
    return Train(config, mesh=mesh, shared=shared)
