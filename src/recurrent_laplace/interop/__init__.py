"""Conversions from and to other libraries, imported on first use: `rl.interop.torch` and so on."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recurrent_laplace.interop import equinox as equinox
    from recurrent_laplace.interop import flax as flax
    from recurrent_laplace.interop import gymnasium as gymnasium
    from recurrent_laplace.interop import gymnax as gymnax
    from recurrent_laplace.interop import play as play
    from recurrent_laplace.interop import sb3 as sb3
    from recurrent_laplace.interop import torch as torch

_MODULES = ("equinox", "flax", "gymnasium", "gymnax", "play", "sb3", "torch")


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
