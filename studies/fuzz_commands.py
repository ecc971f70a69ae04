"""Random command lines, in this process up to where work begins, and in processes of their own."""

import contextlib
import io
import random
import re
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

from fuzz_material import TINY, Material
from fuzz_outcomes import Case, attempt

from recurrent_laplace import cli
from recurrent_laplace.machine.processes import ALONE

COMMAND_SECONDS = 40
"""Time after which a command in a process of its own is asked to stop, as by Ctrl-C."""
STOP_SECONDS = 60
"""Time that it then has to stop in."""
MEMORY = 10 * 1024**3
"""Bytes that a process may allocate: what wants more ends in a traceback here, not on the machine."""


class BeganError(BaseException):
    """A command would have begun to compute: its arguments were accepted."""


WORDS = (
    *("0", "1", "2", "-1", "3.5", "1e308", "-1e308", "1e-320", "nan", "inf", "-inf"),
    *("9" * 25, "-" + "9" * 25, "", " ", "\t", "None", "True", "all", "auto", "laplace"),
    *("bandit", "point", "paper", "[]", "1,2", "0x10", "1000000", "2147483647"),
    *("ä", "日本", "\udcff", "a" * 300, "a/" * 200, "--", "-", "=", "%s", "{}", "[bold]", "$HOME", "*"),
    *("/dev/null", "/dev/null/x", "/proc/nowhere/x", "missing", "missing/x.toml", ".", "file", "own.toml"),
    *("model.zip", "vecnormalize.pkl", "runs", "sweep", "sweep/sweep.toml", "posterior.safetensors"),
)
"""Values of flags and arguments; names of files are those of the material."""


def commands(material: Material) -> dict[str, list[str]]:
    """Arguments of each verb that are right, for a run of seconds at most."""
    run = str(material.run.path.relative_to(material.root))
    return {
        "train": ["--task", "bandit", *TINY],
        "evaluate": [run, "--tasks", "2"],
        "finetune": [run, "--snapshot", "0.5", "--updates", "1"],
        "posthoc": [run, "--tasks", "2"],
        "sweep": ["small.toml", "--dry-run"],
        "reproduce": ["--only", "nothing"],
        "report": ["runs"],
        "monitor": ["--run", run, "--episodes", "1", "--steps", "2"],
        "export": [run],
        "faithfulness": [run],
        "shiftbench": ["--run", run],
        "tasks": [],
        "bench": ["solve"],
        "doctor": [],
    }


def _began(*_: object, **__: object) -> None:
    raise BeganError


WORK = {
    "recurrent_laplace.runs.runner._load": _began,
    "recurrent_laplace.runs.evaluation._evaluate": _began,
    "recurrent_laplace.runs.evaluation.oracle_table": lambda *_, **__: None,
    "recurrent_laplace.runs.calibration.make_validation": _began,
    "recurrent_laplace.cli.sweep.run_sweep": _began,
    "recurrent_laplace.cli.reproduce.run_sweep": _began,
    "recurrent_laplace.report.page.with_oracles": _began,
    "recurrent_laplace.cli.monitor.play_task": _began,
    "recurrent_laplace.cli.faithfulness.measure": _began,
    "recurrent_laplace.cli.shiftbench.shiftbench": _began,
    "recurrent_laplace.cli.bench._measure": _began,
    "recurrent_laplace.cli.train.joined": lambda hosts: (hosts.check(), contextlib.nullcontext(ALONE))[1],
}
"""Where long work begins, after all checks of the arguments, and what stands there in this process."""


def flags_of(verb: str, base: list[str]) -> list[str]:
    """The flags in a verb's help."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        cli.main([verb, *(base[:1] if verb == "bench" else base), "--help"])
    return sorted(set(re.findall(r"--[a-z][a-z0-9.-]*[a-z0-9]", out.getvalue())) - {"--help"})


def random_command(
    generator: random.Random, right: dict[str, list[str]], flags: dict[str, list[str]]
) -> list[str]:
    """A right command with something wrong in it, most of the time."""
    if generator.random() < 0.03:
        return generator.choices(WORDS, k=generator.randrange(3))
    verb = generator.choice(sorted(right))
    argv = list(right[verb])
    for _ in range(generator.choice((1, 1, 1, 2, 3))):
        choice = generator.random()
        if choice < 0.75 and flags[verb]:
            flag, word = generator.choice(flags[verb]), generator.choice(WORDS)
            argv += [f"{flag}={word}"] if generator.random() < 0.5 else [flag, word]
        elif choice < 0.85 and argv:
            argv[generator.randrange(len(argv))] = generator.choice(WORDS)
        elif choice < 0.9 and argv:
            del argv[generator.randrange(len(argv))]
        else:
            argv.insert(generator.randrange(len(argv) + 1), generator.choice((*WORDS, "--nothing")))
    return [verb, *argv]


def judge_command(code: int, err: str) -> tuple[str, str]:
    """The outcome of a command that has ended, from its exit code and standard error."""
    if "Traceback (most recent call last)" in err:
        return "traceback", err
    if code == 2:
        own = [line for line in err.splitlines() if line.startswith("recurrent-laplace: ")]
        by_parser = "full helptext" in err or "usage:" in err or "error" in err.lower()
        last = err.strip().splitlines()[-1:] == own[-1:]
        return ("refused" if by_parser or (len(own) == 1 and last) else "unclear message"), err
    # 1: training failed, in a sentence; 130: stopped.
    said = code == 0 or "recurrent-laplace: " in err
    return ("accepted" if said and code in (0, 1, 130) else "unclear message"), f"exit code {code}: {err}"


def fuzz_command(argv: list[str], index: int) -> Case:
    """A command in this process, up to where its work would begin."""
    out, err, code = io.StringIO(), io.StringIO(), 0

    def run() -> None:
        nonlocal code
        with contextlib.ExitStack() as stack:
            for name, stand_in in WORK.items():
                stack.enter_context(mock.patch(name, stand_in))
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(err))
            try:
                cli.main(argv)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            except BeganError:
                pass

    outcome, detail = attempt(run, lambda _: "ended")
    if outcome == "ended":
        outcome, detail = judge_command(code, err.getvalue())
    elif outcome in ("refused", "unclear message"):
        # An error of ours that no verb has caught.
        outcome = "traceback"
    return Case("command", index, shlex.join(argv), outcome, detail)


def fuzz_process(argv: list[str], index: int, folder: Path) -> Case:
    """A command in a process of its own, as users run it; stopped after a while, as by Ctrl-C."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))  # noqa: E731
    command = [sys.executable, "-m", "recurrent_laplace", *argv]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=limit
    )
    try:
        _, err = process.communicate(timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            _, err = process.communicate()
            return Case("process", index, shlex.join(argv), "too long", "it did not stop.")
    return Case(
        "process", index, shlex.join(argv), *judge_command(process.returncode, err.decode(errors="replace"))
    )
