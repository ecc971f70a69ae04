"""Deprecated names that keep working, with a warning that names the replacement."""

import functools
import warnings
from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable)


def renamed_argument(old: str, new: str) -> Callable[[Function], Function]:
    """Accept `old` as a deprecated alias of the keyword argument `new`, with a `DeprecationWarning`."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def accept_both(*args, **kwargs):
            if old in kwargs:
                message = f"{function.__qualname__}({old}=...) is deprecated: use {new}=."
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return accept_both  # pyright: ignore[reportReturnType]

    return decorate
