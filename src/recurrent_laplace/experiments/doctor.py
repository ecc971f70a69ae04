"""`doctor`: what a report of a problem should say about the machine."""

import importlib.metadata
import importlib.util
import os
import platform

import jax
from rich.console import Console

import recurrent_laplace
from recurrent_laplace.experiments.devices import cores
from recurrent_laplace.experiments.memory import available_bytes
from recurrent_laplace.posterior.cost import format_bytes

EXTRAS = ("torch", "sb3_contrib", "flax", "gymnax", "gymnasium", "ray", "tensorboard", "wandb")


def report(console: Console | None = None) -> None:
    """Print versions, devices, threads, known problems and which extras import."""
    console = console or Console()

    def line(what: str, value: object) -> None:
        console.print(f"{what:<18}{value}", highlight=False, soft_wrap=True)

    line("recurrent-laplace", recurrent_laplace.__version__)
    line("Python", f"{platform.python_version()} on {platform.platform()}")
    for package in ("jax", "jaxlib", "equinox", "numpy"):
        line(package, importlib.metadata.version(package))
    line("devices", ", ".join(str(device) for device in jax.devices()))
    available = available_bytes()
    line("memory", "unknown" if available is None else f"{format_bytes(available)} available")
    line("cores", len(cores()))
    line("XLA_FLAGS", os.environ.get("XLA_FLAGS", "not set"))
    line("known problem", _hang_notice())
    present = [name for name in EXTRAS if importlib.util.find_spec(name)]
    line("extras present", ", ".join(present) or "none")
    line("extras absent", ", ".join(name for name in EXTRAS if name not in present) or "none")


def _hang_notice() -> str:
    major, minor = (int(part) for part in importlib.metadata.version("jaxlib").split(".")[:2])
    if (major, minor) != (0, 10) or jax.default_backend() != "cpu":
        return "none"
    return (
        "jaxlib 0.10 on a CPU can hang when two batched jnp.linalg calls run side by side. This package "
        "makes none; where your own code does, set "
        "XLA_FLAGS=--xla_cpu_enable_concurrency_optimized_scheduler=false"
    )
