"""What test_devices.py does in a process of its own, with eight devices made of one CPU.

`agree CASE COUNT ...`: gradients of the first update and losses of the first five, on so many devices, and
    how many programs were compiled for it.
`seeds`: the same of four seeds, shared out among 1, 2 and 4 devices; then with one that is not finite.
`share CASE COUNT ...`: bytes that a device needs for one and the same batch, and how devices talk.
`join`: what eight devices make of numbers and truths that only some of them have.
`move OUT`: a run that is begun on 2 devices, continued on 4, and finished on 1.
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

from recurrent_laplace.experiments.config import Run
from recurrent_laplace.experiments.devices import make_mesh, share_out
from recurrent_laplace.experiments.display import Display
from recurrent_laplace.experiments.runner import InterruptedRunError, RunOptions, train_run
from recurrent_laplace.learning import Config, LearningConfig, make_train
from recurrent_laplace.learning import train as train_module
from recurrent_laplace.learning.sharding import COPIED, SHARED, joined_shares, on_shares
from recurrent_laplace.models import AgentConfig, PosteriorConfig
from recurrent_laplace.tasks import Gridworld, make_task

COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
AGENT = AgentConfig(
    cell="elman", hidden_size=6, features=4, embedding_sizes=(8,), head_sizes=(8,), layer_norm=False
)
# Nothing is clipped, so that the optimiser's first moment is the gradient, but for its factor.
LEARNING = LearningConfig(
    updates=5, batch=16, steps=6, acting_samples=2, gradient_norm=1e9, gradient_element=1e9
)
CASES = {
    "point": Config(task=Gridworld(size=3)),
    "dense": Config(task=Gridworld(size=3), posterior=PosteriorConfig(kind="laplace", covariance="dense")),
    "history": Config(
        task=Gridworld(size=3), posterior=PosteriorConfig(kind="laplace", window="all", accumulate="none")
    ),
    "variational": Config(
        task=Gridworld(size=3), posterior=PosteriorConfig(kind="variational", covariance="dense")
    ),
    "regression": Config(task=make_task("regression"), posterior=PosteriorConfig(kind="laplace")),
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
    # With minibatches, so that tasks change places between devices; with draws, since one key stands for
    # those of all tasks; with seeds, as they are vmapped.
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
        mesh, shared = share_out(count, seeds=4)
        train = make_train(config_of("regression"), mesh=mesh, shared=shared)
        state, progress = train.advance(train.init(jax.random.split(jax.random.key(0), 4)), 3)
        bias = state.model.raw_stddev
        places = len(bias.sharding.device_set)
        # Only the third seed's, and all must stop.
        broken = eqx.tree_at(lambda s: s.model.raw_stddev, state, bias.at[2].set(jnp.nan))
        _, stopped = train.advance(broken, 5)
        found[count] = {
            "shared": shared,
            "places": places,
            "losses": progress.metrics["loss"][:3].tolist(),
            "programs": train._advance._cache_size(),
            "made": stopped.count.item(),
            "finite": jnp.all(stopped.finite, axis=-1).tolist(),
        }
    return found


def share(case: str, *counts: str) -> dict:
    found = {}
    # A part of the tasks needs as much room on one device as on many: whole gradients are compared.
    train_module.STATES_TOGETHER = 2**62
    for count in map(int, counts):
        # So large that what does not depend on the batch does not count; nothing of it is ever made.
        train = make_train(config_of(case, batch=2**16), mesh=make_mesh(count))
        state = jax.eval_shape(train.init, jax.random.key(0))
        compiled = train._advance.lower(state, 1, 5).compile()
        talk = set(re.findall(rf" ({'|'.join(COLLECTIVES)})\(", compiled.as_text()))
        found[count] = {"bytes": compiled.memory_analysis().temp_size_in_bytes, "talk": sorted(talk)}
    return found


def join() -> dict:
    given = {"numbers": jnp.arange(8.0), "some": jnp.arange(8) != 3, "all": jnp.ones(8, bool)}

    def of_share(tree):
        return joined_shares(jax.tree.map(lambda leaf: leaf[0], tree))

    joined = jax.jit(on_shares(of_share, make_mesh(8), (SHARED,), COPIED))(given)
    return jax.tree.map(lambda leaf: leaf.item(), joined)


def move(out: Path) -> dict:
    run = Run(config=config_of("regression"))
    ids = []
    for devices, last in ((2, False), (4, False), (1, True)):
        options = RunOptions(out=out, resume=True, checkpoint_seconds=0, devices=devices)
        if last:
            ids.append(train_run(run, options).path.name)
            continue
        with interrupted_after_the_first_call():
            try:
                train_run(run, options)
            except InterruptedRunError as stopped:
                ids.append(str(stopped))
    whole = train_run(run, RunOptions(out=out / "whole"))
    return {"said": ids, "run": str(out / run.id), "whole": str(whole.path)}


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
    what, *rest = sys.argv[1:]
    known = {
        "agree": agree,
        "seeds": seeds,
        "share": share,
        "join": join,
        "move": lambda out: move(Path(out)),
    }
    print(json.dumps(known[what](*rest)))
