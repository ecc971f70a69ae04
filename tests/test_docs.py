"""The examples that people will paste run."""

import dataclasses
import re
import textwrap
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import pytest

import recurrent_laplace as rl
from recurrent_laplace.tasks import TASKS

README = Path(__file__).parent.parent / "README.md"


def code_blocks(text: str) -> list[str]:
    return [textwrap.dedent(block) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]


def test_readme_example(capsys):
    (block,) = code_blocks(README.read_text())
    assert len(block.strip().splitlines()) <= 12
    exec(block, {})
    assert "(5, 64)" in capsys.readouterr().out


DOCUMENTED = [name for name in rl.__all__ if code_blocks(textwrap.dedent(getattr(rl, name).__doc__))]


def test_what_people_construct_has_an_example():
    bare = {name for name in rl.__all__ if name not in DOCUMENTED and not name.startswith("Abstract")}
    assert bare == {
        *("Affine", "Cost", "Info", "Linearized", "Mixture", "PointBelief", "cayley_basis"),
        # What functions return, or parts of a `Config`.
        *("Behaviour", "Prediction", "Step", "Train", "TrainState"),
        *("AgentConfig", "EvaluationConfig", "LearningConfig", "PosteriorConfig"),
    }


@pytest.mark.parametrize("name", DOCUMENTED)
def test_docstring_example(name):
    keys = jax.random.split(jax.random.key(0), 3)
    memory = rl.Memory(rl.LSTM(3, 8, key=keys[0]), features=4, key=keys[1])
    names = {
        "jax": jax,
        "jnp": jnp,
        "rl": rl,
        "key": keys[2],
        "memory": memory,
        "inputs": jnp.ones((5, 3)),
        "belief": rl.DiagonalGaussian(jnp.zeros(4), jnp.ones(4)),
        "policy": lambda z: z[:2],
        "critic": lambda z: jnp.sum(z),
        "action": 0,
        "dataclasses": dataclasses,
        "observation": jnp.ones(10),
        "previous_action": jnp.array(-1),
        "previous_reward": jnp.zeros(()),
        "x": jnp.ones((5, 1)),
        "y": jnp.ones((5, 1)),
        "x_next": jnp.ones((5, 1)),
    }
    if name in ("with_posterior", "evaluate"):
        small = rl.AgentConfig(hidden_size=4, features=2, embedding_sizes=(4,), head_sizes=(4,))
        names["config"] = rl.Config(task=rl.TwoArmBandit(), agent=small)
        names["state"] = rl.make_train(names["config"]).init(keys[0])
        names["agent"] = names["state"].model
    with mock.patch.dict(TASKS):
        for block in code_blocks(textwrap.dedent(getattr(rl, name).__doc__)):
            exec(block, names)
