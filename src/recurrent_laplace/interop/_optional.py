"""Imports of optional packages, with error messages that say what to install."""

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any


class MissingPackageError(ImportError):
    """An optional package is not installed or cannot be imported; the message is for the user."""


def require(module: str, *, extra: str) -> Any:
    """Import a module of an optional package; raise `MissingPackageError` if that fails."""
    with optional(module.partition(".")[0], extra=extra):
        return importlib.import_module(module)


@contextlib.contextmanager
def optional(package: str, *, extra: str) -> Iterator[None]:
    """Context manager around imports from an optional package, which raises `MissingPackageError`.

    ```python
    with optional("gymnax", extra="gymnax"):
        from gymnax.environments import spaces
    ```
    """
    install = f'pip install "recurrent-laplace[{extra}]"'
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if error.name == package:
            raise MissingPackageError(f"{package} is not installed: {install}.", name=package) from None
        if name != package:
            raise MissingPackageError(
                f"{package} is installed but needs {name}, which is not: pip install {name}.", name=name
            ) from error
        raise MissingPackageError(
            f"{package} is installed but has no module {error.name}: {install} --upgrade.", name=error.name
        ) from error
    except Exception as error:
        # A package that does not suit the others can raise anything when it is imported.
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise MissingPackageError(
            f"{package} is installed but cannot be imported ({reason}): {install} --upgrade.", name=package
        ) from error
