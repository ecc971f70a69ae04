"""The examples that people will paste run."""

import re
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import recurrent_laplace as rl

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
    assert bare == {"Affine", "Cost", "Info", "Linearized", "Mixture", "PointBelief", "cayley_basis"}


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
    }
    for block in code_blocks(textwrap.dedent(getattr(rl, name).__doc__)):
        exec(block, names)
