"""Deprecated name of `recurrent_laplace.oracles`."""

import warnings

from recurrent_laplace import oracles


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(oracles, name)
    message = f"recurrent_laplace.evaluation.oracles is deprecated: use recurrent_laplace.oracles.{name}."
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return value
