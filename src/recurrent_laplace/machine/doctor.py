"""Machine description for bug reports, printed by `doctor`."""

import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence

import jax
from rich.console import Console

import recurrent_laplace
from recurrent_laplace.machine.devices import cores
from recurrent_laplace.machine.memory import available_bytes
from recurrent_laplace.posterior.cost import format_bytes

EXTRAS = ("torch", "sb3_contrib", "flax", "gymnax", "gymnasium", "ray", "tensorboard", "wandb")
SECONDS = 60
"""Timeout for importing all extras."""

IMPORTS = """
import importlib, os, sys
report = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as problem:
        print(name, type(problem).__name__, *str(problem).split(), file=report)
    else:
        print(name, file=report)
"""
"""Program of the child process: one line of output per package, with the reason if its import fails."""


def report(console: Console | None = None) -> None:
    """Print versions, devices, memory, known problems and the extras that can be imported."""
    console = console or Console()

    def line(label: str, value: object) -> None:
        console.print(f"{label:<18}{value}", highlight=False, soft_wrap=True)

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
    installed = [name for name in EXTRAS if importlib.util.find_spec(name)]
    broken = broken_packages(installed)
    line("extras present", ", ".join(name for name in installed if name not in broken) or "none")
    line("extras absent", ", ".join(name for name in EXTRAS if name not in installed) or "none")
    for name, reason in broken.items():
        line(name, f"broken: {reason}")


def broken_packages(names: Sequence[str]) -> dict[str, str]:
    """Packages that cannot be imported, with the reason for each.

    One child process imports them all, since they share most of their dependencies. If an import ends the
    process, another one continues with the rest.
    """
    broken, waiting, deadline = {}, list(names), time.monotonic() + SECONDS
    while waiting:
        try:
            child = subprocess.run(
                # `-P`: a file of the current directory must not be imported in place of a package.
                [sys.executable, "-P", "-c", IMPORTS, *waiting],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=max(deadline - time.monotonic(), 0.1),
                check=False,
            )
            output, end = child.stdout, f"its import ends Python with exit code {child.returncode}"
        except subprocess.TimeoutExpired as problem:
            output, end = problem.output or b"", f"its import did not finish within {SECONDS} s"
        lines = [line.split(" ", 1) for line in output.decode(errors="replace").splitlines()]
        broken |= {line[0]: line[1] for line in lines if len(line) == 2}
        waiting = waiting[len(lines) :]
        if waiting:
            broken[waiting.pop(0)] = end
    return broken


def _hang_notice() -> str:
    major, minor = (int(part) for part in importlib.metadata.version("jaxlib").split(".")[:2])
    if (major, minor) != (0, 10) or jax.default_backend() != "cpu":
        return "none"
    return (
        "jaxlib 0.10 on a CPU can hang when two batched jnp.linalg calls run side by side. This package "
        "makes none; where your own code does, set "
        "XLA_FLAGS=--xla_cpu_enable_concurrency_optimized_scheduler=false"
    )
