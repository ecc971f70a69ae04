"""Multiplications in the matrix products of a traced function."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend import core


def multiplications(function: Callable, *args: Any) -> int:
    """Count the multiplications of all matrix products in `function(*args)`, traced and not run.

    A product inside a scan counts once per step; of several branches, the largest counts. Operations other
    than matrix products are ignored, and a loop of unknown length counts as one iteration. (XLA's cost
    analysis counts every loop as one iteration.)
    """
    return _count(jax.make_jaxpr(function)(*args).jaxpr)


def _count(jaxpr: core.Jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "dot_general":
            total += _product(equation)
            continue
        counts = [_count(inner) for inner in _jaxprs(equation.params)]
        if counts:
            repeats = equation.params["length"] if name == "scan" else 1
            total += repeats * (max(counts) if name == "cond" else sum(counts))
    return total


def _product(equation: Any) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    return math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)


def _jaxprs(params: dict[str, Any]) -> Iterator[core.Jaxpr]:
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, core.Jaxpr):
                yield item
