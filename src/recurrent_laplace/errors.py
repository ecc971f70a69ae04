"""Argument checks whose messages name the argument, what came, and what is allowed."""

import math
import numbers
from collections.abc import Sequence
from typing import Any


def check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Refuse a word that is not one of `allowed`."""
    if value not in allowed:
        words = ", ".join(repr(word) for word in allowed)
        raise ValueError(f"{name} must be one of {words}; got {value!r}.")


def check_size(name: str, value: Any) -> None:
    """Refuse anything but a whole number of at least 1."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}.")


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float = float("inf"),
) -> None:
    """Refuse anything but a finite number with `above < value` or `least <= value`, and `value <= most`."""
    low, bracket = (above, "(") if above is not None else (least, "[")
    assert low is not None
    high = "inf)" if most == float("inf") else f"{most:g}]"
    allowed = f"{bracket}{low:g}, {high}"
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        ok = math.isfinite(number) and number <= most and (number > low or (number == low and above is None))
    else:
        ok = False
    if not ok:
        raise ValueError(f"{name} must be a number in {allowed}; got {value!r}.")


def check_shape(name: str, array: Any, expected: tuple[int | str, ...]) -> None:
    """Refuse an array of another shape; a word in `expected` stands for any size."""
    shape = tuple(getattr(array, "shape", ()))
    fits = len(shape) == len(expected) and all(
        isinstance(want, str) or want == got for want, got in zip(expected, shape, strict=True)
    )
    if fits:
        return
    wanted = "(" + ", ".join(map(str, expected)) + ("," if len(expected) == 1 else "") + ")"
    hint = ""
    if len(shape) > len(expected):
        hint = " Modules act on one example: put jax.vmap around the call for a batch."
    raise ValueError(f"{name} must have shape {wanted}; got {shape}.{hint}")
