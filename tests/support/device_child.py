"""Child process of test_devices.py, with eight devices made of one CPU.

`agree CASE COUNT ...`: gradients of the first update, losses of the first five, and the number of compiled
    programs, on each number of devices.
`seeds`: the same of four seeds, sharded over 1, 2 and 4 devices; then with one that is not finite.
`memory CASE COUNT ...`: bytes per device for the same batch, and the collectives of the program.
`mean`: `mean_over_shards` of numbers and booleans that differ between eight devices.
`resume OUT`: a run that is started on 2 devices, resumed on 4, and finished on 1.
"""

import dataclasses
import json
import os
import re
import signal
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from recurrent_laplace.learning import Config, LearningConfig, make_train
from recurrent_laplace.learning import train as train_module
from recurrent_laplace.learning.sharding import REPLICATED, SHARDED, mean_over_shards, shard_over_mesh
from recurrent_laplace.machine.devices import choose_mesh, make_mesh
from recurrent_laplace.models import AgentConfig, LaplaceConfig, VariationalConfig
from recurrent_laplace.runs.config import Run
from recurrent_laplace.runs.display import Display
from recurrent_laplace.runs.runner import InterruptedRunError, RunOptions, train_run
from recurrent_laplace.tasks import Gridworld, make_task

COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
AGENT = AgentConfig(
    cell="elman", hidden_size=6, features=4, embedding_sizes=(8,), head_sizes=(8,), layer_norm=False
)
# Without clipping, the optimiser's first moment is the gradient up to a factor.
LEARNING = LearningConfig(
    updates=5, batch=16, steps=6, acting_samples=2, gradient_norm=1e9, gradient_element=1e9
)
CASES = {
    "point": Config(task=Gridworld(size=3)),
    "dense": Config(task=Gridworld(size=3), posterior=LaplaceConfig(covariance="dense")),
    "history": Config(task=Gridworld(size=3), posterior=LaplaceConfig(window="all", accumulate="none")),
    "variational": Config(task=Gridworld(size=3), posterior=VariationalConfig(covariance="dense")),
    "regression": Config(task=make_task("regression"), posterior=LaplaceConfig()),
}


def config_of(case: str, **changes) -> Config:
    learning = dataclasses.replace(LEARNING, **changes)
    return dataclasses.replace(CASES[case], agent=AGENT, learning=learning)


def gradient_after_one(state) -> list[float]:
    adam = next(
        part
        for part in jax.tree.leaves(state.optimizer, is_leaf=lambda x: isinstance(x, optax.ScaleByAdamState))
        if isinstance(part, optax.ScaleByAdamState)
    )
    leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(adam.mu)]
    return (np.concatenate(leaves) / (1 - 0.9)).tolist()


def agree(case: str, *counts: str) -> dict:
    # Minibatches move tasks between devices; one key stands for the samples of all tasks; seeds are vmapped.
    changes = {"point": {"minibatches": 2}, "dense": {"training_samples": 2}}.get(case, {})
    key = jax.random.key(0)
    key = jax.random.split(key, 2) if case == "regression" else key
    found = {}
    for count in map(int, counts):
        train = make_train(config_of(case, **changes), mesh=make_mesh(count))
        state, first = train.advance(train.init(key), 1)
        gradient = gradient_after_one(state)
        _, rest = train.advance(state, LEARNING.updates)
        losses = np.concatenate([first.metrics["loss"][:1], rest.metrics["loss"][:4]])
        programs = train._advance._cache_size()
        found[count] = {"gradient": gradient, "losses": np.ravel(losses).tolist(), "programs": programs}
    return found


def seeds() -> dict:
    found = {}
    for count in (1, 2, 4):
        mesh, sharded = choose_mesh(count, seeds=4)
        train = make_train(config_of("regression"), mesh=mesh, sharded=sharded)
        state, progress = train.advance(train.init(jax.random.split(jax.random.key(0), 4)), 3)
        bias = state.model.raw_stddev
        devices = len(bias.sharding.device_set)
        # Only the third seed is not finite, and all must stop.
        broken = eqx.tree_at(lambda s: s.model.raw_stddev, state, bias.at[2].set(jnp.nan))
        _, stopped = train.advance(broken, 5)
        found[count] = {
            "sharded": sharded,
            "devices": devices,
            "losses": progress.metrics["loss"][:3].tolist(),
            "programs": train._advance._cache_size(),
            "made": stopped.count.item(),
            "finite": jnp.all(stopped.finite, axis=-1).tolist(),
        }
    return found


def memory(case: str, *counts: str) -> dict:
    found = {}
    # A chunk needs as much memory on one device as on many, so gradients are not chunked.
    train_module.STATES_PER_CHUNK = 2**62
    for count in map(int, counts):
        # A batch so large that other arrays are negligible; it is compiled and never run.
        train = make_train(config_of(case, batch=2**16), mesh=make_mesh(count))
        state = jax.eval_shape(train.init, jax.random.key(0))
        compiled = train._advance.lower(state, 1, 5).compile()
        collectives = set(re.findall(rf" ({'|'.join(COLLECTIVES)})\(", compiled.as_text()))
        found[count] = {
            "bytes": compiled.memory_analysis().temp_size_in_bytes,
            "collectives": sorted(collectives),
        }
    return found


def mean() -> dict:
    values = {"numbers": jnp.arange(8.0), "some": jnp.arange(8) != 3, "all": jnp.ones(8, bool)}

    def shard_mean(tree):
        return mean_over_shards(jax.tree.map(lambda leaf: leaf[0], tree))

    means = jax.jit(shard_over_mesh(shard_mean, make_mesh(8), (SHARDED,), REPLICATED))(values)
    return jax.tree.map(lambda leaf: leaf.item(), means)


def resume(folder: str) -> dict:
    out = Path(folder)
    run = Run(config=config_of("regression"))
    messages = []
    for devices, last in ((2, False), (4, False), (1, True)):
        options = RunOptions(out=out, resume=True, checkpoint_seconds=0, devices=devices)
        if last:
            messages.append(train_run(run, options).path.name)
            continue
        with interrupted_after_the_first_call():
            try:
                train_run(run, options)
            except InterruptedRunError as stopped:
                messages.append(str(stopped))
    whole = train_run(run, RunOptions(out=out / "whole"))
    return {"messages": messages, "run": str(out / run.id), "whole": str(whole.path)}


class interrupted_after_the_first_call:  # noqa: N801
    def __enter__(self):
        self.update = Display.update

        def update(display, done, rows):
            os.kill(os.getpid(), signal.SIGINT)
            self.update(display, done, rows)

        Display.update = update

    def __exit__(self, *_):
        Display.update = self.update


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    commands = {command.__name__: command for command in (agree, seeds, memory, mean, resume)}
    print(json.dumps(commands[command](*arguments)))
