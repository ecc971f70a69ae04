"""Argument checks: each message names the argument, the value received and the values allowed."""

import difflib
import math
import numbers
from collections.abc import Sequence
from typing import Any

LARGEST_SIZE = 2**31 - 1
"""Largest size or counter: they are int32 in compiled programs."""

SEEDS = 2**32
"""Number of distinct seeds: JAX reduces a seed modulo 2^32."""

SIMILAR = 0.7
"""Similarity ratio from which an allowed word is suggested."""

SMALLEST_NUMBER, LARGEST_NUMBER = 1e-18, 1e18
"""Range of magnitudes whose squares and inverse squares are finite and nonzero in float32."""


def check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Raise `ValueError` unless `value` is one of `allowed`."""
    if value not in allowed:
        words = ", ".join(repr(word) for word in allowed)
        close = (
            difflib.get_close_matches(value, allowed, n=1, cutoff=SIMILAR) if isinstance(value, str) else []
        )
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"{name} must be one of {words}{hint}; got {shown(value)}.")


def shown(value: Any) -> str:
    """Shortened `repr(value)` for a message; works for values of any length and nesting depth."""
    if isinstance(value, int) and abs(value) > 10**40:
        return f"an integer of about {int(value.bit_length() * math.log10(2)) + 1} digits"
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # Nested too deeply, or an integer with too many digits.
        return f"a {type(value).__name__} that is too large to print"
    return text if len(text) <= 200 else f"{text[:200]}..."


def check_size(name: str, value: Any, *, least: int = 1) -> None:
    """Raise `ValueError` unless `value` is an integer from `least` to the largest int32."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or int(value) < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {shown(value)}.")
    if int(value) > LARGEST_SIZE:
        raise ValueError(f"{name} must be at most {LARGEST_SIZE}, the largest int32; got {shown(value)}.")


def check_seed(seed: Any, seeds: int = 1) -> None:
    """Raise `ValueError` unless the seeds from `seed` on lie in [0, 2^32): larger ones repeat others."""
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or int(seed) < 0:
        raise ValueError(f"seed must be a whole number of at least 0; got {shown(seed)}.")
    last = int(seed) + seeds - 1
    if last >= SEEDS:
        which = "" if seeds == 1 else f", the last of {seeds} seeds from {shown(seed)}"
        raise ValueError(f"seed must be at most 2^32 - 1; got {shown(last)}{which}.")


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float = float("inf"),
) -> None:
    """Raise `ValueError` unless `value` is a finite number in the interval.

    The interval is `(above, most]` or `[least, most]`. The square and the inverse square of the number must
    also be finite and nonzero in float32.
    """
    low, bracket = (above, "(") if above is not None else (least, "[")
    assert low is not None
    high = "inf)" if most == float("inf") else f"{most:g}]"
    number = _to_float(value)
    if not (math.isfinite(number) and number <= most and (number > low or (number == low and above is None))):
        raise ValueError(f"{name} must be a number in {bracket}{low:g}, {high}; got {shown(value)}.")
    if number != 0 and not SMALLEST_NUMBER <= abs(number) <= LARGEST_NUMBER:
        zero = "0 or " if least == 0 else ""
        allowed = f"{zero}in [{SMALLEST_NUMBER:g}, {min(most, LARGEST_NUMBER):g}]"
        raise ValueError(
            f"{name} must be {allowed}, so that float32 can hold its square; got {shown(value)}."
        )


def _to_float(value: Any) -> float:
    """Conversion to float; NaN if `value` is not a real number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf  # Outside of every interval, whatever its sign.


def check_shape(name: str, array: Any, expected: tuple[int | str, ...]) -> None:
    """Raise `ValueError` unless the array has the expected shape; a string in `expected` matches any size."""
    shape = tuple(getattr(array, "shape", ()))
    if len(shape) == len(expected) and all(
        isinstance(size, str) or size == got for size, got in zip(expected, shape, strict=True)
    ):
        return
    sizes = ", ".join(map(str, expected)) + ("," if len(expected) == 1 else "")
    hint = ""
    if len(shape) > len(expected):
        hint = " Modules act on one example: put jax.vmap around the call for a batch."
    raise ValueError(f"{name} must have shape ({sizes}); got {shape}.{hint}")
