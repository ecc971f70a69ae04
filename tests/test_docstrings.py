"""Docstrings of exported names: a first line, every argument, and an example that runs as it stands."""

import inspect
import re
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.markdown import code_blocks

import recurrent_laplace as rl
from recurrent_laplace.cli.tasks import field_docstrings
from recurrent_laplace.learning.objectives.registry import OBJECTIVES
from recurrent_laplace.models.posterior_config import POSTERIORS
from recurrent_laplace.monitoring.encoding import REGISTERED
from recurrent_laplace.tasks import TASKS

DOCSTRINGS = {name: inspect.getdoc(getattr(rl, name)) or "" for name in rl.__all__}
DEPRECATED = [name for name, text in DOCSTRINGS.items() if text.startswith("Deprecated")]


def unexplained(function, text: str, known=()) -> list[str]:
    """Parameters that a docstring does not name, as `x` or as `x(...)`, among its arguments."""
    prose, *_ = text.partition("```")
    arguments = prose.partition("**Arguments:**")[2] or prose
    names = set(inspect.signature(function).parameters) - set(known)
    return sorted(name for name in names if not re.search(rf"`{name}[`(]", arguments))


def package_bases(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if base.__module__.startswith("recurrent_laplace.")]


def alternative_constructors(kind: type) -> list[str]:
    return [
        name
        for base in package_bases(kind)
        for name, member in vars(base).items()
        if isinstance(member, classmethod) and not name.startswith("_")
    ]


@pytest.mark.parametrize("name", rl.__all__)
def test_first_line_stands_alone(name):
    first, _, rest = DOCSTRINGS[name].partition("\n")
    assert first.endswith(".")
    assert not rest.partition("\n")[0]


@pytest.mark.parametrize("name", rl.__all__)
def test_arguments_are_explained(name):
    exported = getattr(rl, name)
    if not isinstance(exported, type):
        assert not unexplained(exported, DOCSTRINGS[name])
        return
    below_fields = {field for base in package_bases(exported) for field in field_docstrings(base)}
    assert not unexplained(exported, DOCSTRINGS[name], below_fields)
    for method in alternative_constructors(exported):
        function = getattr(exported, method)
        assert not unexplained(function, inspect.getdoc(function) or "")


@pytest.mark.parametrize("name", DEPRECATED)
def test_deprecated_name_has_a_replacement(name):
    replacements = re.findall(r"`rl\.(\w+)`", DOCSTRINGS[name].partition("\n")[0])
    assert replacements
    assert set(replacements) <= set(rl.__all__) - set(DEPRECATED)


@pytest.mark.parametrize("name", [name for name in rl.__all__ if name not in DEPRECATED])
def test_example_runs_as_it_stands(name, monkeypatch, tmp_path):
    blocks = code_blocks(DOCSTRINGS[name])
    assert blocks
    monkeypatch.chdir(tmp_path)
    names = {"jax": jax, "jnp": jnp, "np": np, "rl": rl}
    with (
        mock.patch.dict(TASKS),
        mock.patch.dict(POSTERIORS),
        mock.patch.dict(OBJECTIVES),
        mock.patch.dict(REGISTERED),
    ):
        for block in blocks:
            exec(block, names)
