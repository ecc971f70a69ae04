"""Encoding of objects as JSON and arrays; only registered classes are decoded, and all are validated."""

import collections.abc
import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from recurrent_laplace.cells import Autodiff
from recurrent_laplace.errors import shown

DEEPEST = 32
"""Largest nesting depth; an agent has eight levels."""

Class = TypeVar("Class", bound=type)


class Serializable(NamedTuple):
    """A registered class and the validation that replaces its constructor's."""

    cls: type
    check: Callable[[Any], Any] | None


REGISTERED: dict[str, Serializable] = {}
"""Registered classes by their names in files."""


class UnregisteredClassError(ValueError):
    """A file needs a class that is not registered in this process."""


def register_serializable(
    name: str, *, check: Callable[[Any], Any] | None = None
) -> Callable[[Class], Class]:
    """Register a class, such as your own cell, head or posterior, for `rl.save` and `rl.load`.

    Files contain names and fields of classes, never code, and loading imports nothing: the process that
    loads an object must have registered its class under the same name, usually by importing the module that
    defines it. Loading sets the fields without calling `__init__` or `__post_init__`, compares them with
    their annotations, and calls Equinox's `__check_init__` and then `check`.

    The class must be an `eqx.Module` or a dataclass. Its fields must be arrays, numbers, strings, None,
    objects of registered classes, or lists and tuples of these.

    **Arguments:**

    - `name`: name of the class in files, unique, with the name of your project as its prefix. Keep it when
      the class is moved or renamed.
    - `check`: called with each loaded object; raises a `ValueError` for impossible options or shapes.

    ```python
    import equinox as eqx

    @rl.register_serializable("my_project.ScaledHead")
    class ScaledHead(eqx.Module):
        weight: jax.Array
        scale: float = eqx.field(static=True)

        def __call__(self, z, context=None):
            return self.scale * (self.weight @ z)

    rl.save("head.safetensors", ScaledHead(jnp.ones((2, 4)), scale=0.5))
    head = rl.load("head.safetensors")
    ```
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"name must be a string such as 'my_project.MyCell'; got {shown(name)}.")

    def register(cls: Class) -> Class:
        # A subclass of a dataclass inherits its attributes without being a dataclass itself.
        if not isinstance(cls, type) or "__dataclass_fields__" not in vars(cls):
            raise ValueError(f"class must be an eqx.Module or a dataclass to be saved; got {shown(cls)}.")
        taken, known = REGISTERED.get(name), _name_of(cls)
        if taken is not None and _identity(taken.cls) != _identity(cls):
            raise ValueError(f"name {name!r} is taken by {taken.cls.__qualname__}: choose another.")
        if known not in (None, name):
            raise ValueError(f"class {cls.__qualname__} is registered as {known!r} already; got {name!r}.")
        REGISTERED[name] = Serializable(cls, check)
        return cls

    return register


def _identity(cls: type) -> tuple[str, str]:
    """Module and name, which stay the same when a notebook redefines a class."""
    return cls.__module__, cls.__qualname__


def _name_of(cls: type) -> str | None:
    return next((name for name, entry in REGISTERED.items() if entry.cls is cls), None)


def encode(value: Any, place: str, tensors: dict[str, np.ndarray]) -> Any:
    """Encode a value as JSON; its arrays are stored in `tensors` under their path."""
    if isinstance(value, jax.Array | np.ndarray):
        tensors[place] = np.array(value, order="C")
        return {"tensor": place}
    if type(value) in (list, tuple):
        items = [encode(item, f"{place}.{i}".strip("."), tensors) for i, item in enumerate(value)]
        return {type(value).__name__: items}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    name = _name_of(type(value))
    if name is None:
        kind = type(value).__name__
        if isinstance(value, Autodiff) or (callable(value) and not isinstance(value, eqx.Module)):
            raise ValueError(
                f"{place or kind} holds a Python function, which cannot be saved safely; "
                "save a module that consists of weights alone."
            )
        raise ValueError(
            f"{place or 'thing'} must be one of our modules, or of a class that is registered with "
            f"rl.register_serializable(NAME), to be saved; got {kind}."
        )
    fields = {
        field.name: encode(getattr(value, field.name), f"{place}.{field.name}".strip("."), tensors)
        for field in dataclasses.fields(value)
        if not (_is_optional(field) and getattr(value, field.name) is None)
    }
    return {"class": name, "fields": fields}


def _is_optional(field: dataclasses.Field) -> bool:
    """Whether a field that is None is left out of files, since earlier versions do not know it."""
    return bool(field.metadata.get("optional_in_files"))


def decode(spec: Any, tensors: dict[str, np.ndarray], depth: int = 0) -> Any:
    """Decode a value from JSON and arrays."""
    if depth > DEEPEST:
        raise ValueError(f"it is nested more than {DEEPEST} levels deep")
    match spec:
        case {"tensor": str(name)} if name in tensors:
            return _as_jax(name, tensors[name])
        case {"tensor": str(name)}:
            raise ValueError(f"it has no array named {shown(name)}")
        case {"list": list(items)}:
            return [decode(item, tensors, depth + 1) for item in items]
        case {"tuple": list(items)}:
            return tuple(decode(item, tensors, depth + 1) for item in items)
        case {"value": None | bool() | int() | float() | str() as value}:
            return value
        case {"class": str(name), "fields": dict(specs)}:
            if name not in REGISTERED:
                raise UnregisteredClassError(
                    f"needs the class {shown(name)}, which is not registered in this process: before "
                    f"rl.load, import the module that calls rl.register_serializable({shown(name)}) on it."
                )
            fields = dataclasses.fields(REGISTERED[name].cls)
            names = {field.name for field in fields}
            # Files from before a field was added lack it.
            defaults = {field.name: None for field in fields if _is_optional(field)}
            defaults |= _defaults(REGISTERED[name].cls)
            if not names - defaults.keys() <= set(specs) <= names:
                found = ", ".join(sorted(specs))
                raise ValueError(f"a {name} has {', '.join(sorted(names))}, not {shown(found)}")
            values = {key: decode(value, tensors, depth + 1) for key, value in specs.items()}
            return _make(name, defaults | values)
    raise ValueError(f"no such class or value: {shown(spec)}")


def _make(name: str, fields: dict[str, Any]) -> Any:
    """Build and validate an object of a registered class."""
    cls, check = REGISTERED[name]
    for field in dataclasses.fields(cls):
        if not _is_instance(fields[field.name], _annotation(cls, field)):
            raise ValueError(f"a {name} cannot have {field.name}={_described(fields[field.name])}")
    instance = object.__new__(cls)
    for key, value in fields.items():
        object.__setattr__(instance, key, value)
    for parent in cls.__mro__:
        if "__check_init__" in vars(parent):
            vars(parent)["__check_init__"](instance)
    if check is not None:
        check(instance)
    return instance


def _defaults(cls: type) -> dict[str, Any]:
    """Default values of the fields of a class that have one."""
    fields = dataclasses.fields(cls)
    return {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}


def _annotation(cls: type, field: dataclasses.Field) -> Any:
    """Type of a field; `Any` if its annotation is a string that cannot be resolved."""
    if not isinstance(field.type, str):
        return field.type
    try:
        return typing.get_type_hints(cls)[field.name]
    except (AttributeError, LookupError, NameError, SyntaxError, TypeError):
        return Any


def _is_instance(value: Any, hint: Any) -> bool:
    """`isinstance` for annotations; arrays are compared by dtype."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_is_instance(value, argument) for argument in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is tuple and Ellipsis not in arguments:
        return (
            isinstance(value, tuple)
            and len(value) == len(arguments)
            and all(map(_is_instance, value, arguments))
        )
    if origin in (list, tuple):
        return isinstance(value, origin) and all(_is_instance(item, arguments[0]) for item in value)
    if origin is collections.abc.Callable:
        return callable(value)
    if hasattr(hint, "dtypes"):
        any_dtype = not isinstance(hint.dtypes, tuple)
        return isinstance(value, jax.Array) and (any_dtype or value.dtype.name in hint.dtypes)
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    # Other annotations, such as type variables, are left to the check of the class.
    return not isinstance(hint, type) or hint is Any or isinstance(value, hint)


def _described(value: Any) -> str:
    if isinstance(value, jax.Array):
        return f"an array of {value.dtype.name} of shape {value.shape}"
    return f"a {type(value).__name__}" if isinstance(value, eqx.Module) else shown(value)


def _as_jax(name: str, array: np.ndarray) -> jax.Array:
    if array.dtype == np.float64 and not jax.config.read("jax_enable_x64"):
        raise ValueError(
            f"{name} is float64 and would be rounded: call jax.config.update('jax_enable_x64', True) first"
        )
    return jnp.asarray(array)
