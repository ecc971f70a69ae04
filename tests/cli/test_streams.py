"""Closed and full standard streams, broken pipes, and Ctrl-C, in subprocesses."""

import shlex
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

PROGRAM = str(Path(sys.executable).parent / "recurrent-laplace")
TRAIN = "train --task regression --preset smoke --cell elman --updates 2000"


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def shell(command: str) -> subprocess.CompletedProcess:
    return run("bash", "-c", f"set -o pipefail; {command}")


@pytest.mark.parametrize("verb", ["--help", "tasks", "doctor", "train --help"])
def test_closed_pipe_is_no_error(verb):
    done = shell(f"{PROGRAM} {verb} | head -n 1")
    assert done.returncode in (0, 1)  # Rich exits with 1.
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("verb", ["tasks", "doctor"])
def test_full_standard_output_is_reported(verb):
    done = shell(f"{PROGRAM} {verb} > /dev/full")
    assert done.returncode == 1
    assert done.stderr == "recurrent-laplace: cannot write to standard output: No space left on device.\n"


@pytest.mark.parametrize(
    ("closing", "verb", "code"),
    [
        (">&-", "tasks", 0),
        ("<&- >&- 2>&-", "tasks", 0),
        (">&-", "evaluate nowhere", 2),
        ("2>&-", "evaluate nowhere", 2),
        (">&- 2>&-", "evaluate nowhere", 2),
        ("2>/dev/full", "evaluate nowhere", 2),
    ],
)
def test_closed_streams_change_nothing_else(closing, verb, code):
    done = shell(f"{PROGRAM} {verb} {closing}")
    assert done.returncode == code
    assert "Traceback" not in done.stderr + done.stdout
    if closing == ">&-" and code:
        assert done.stderr.startswith("recurrent-laplace: there is no run at nowhere")


@pytest.mark.slow
def test_run_with_closed_streams_is_complete(tmp_path):
    """A file that reuses the descriptor of a closed stream would be overwritten."""
    command = f"{PROGRAM} {TRAIN} --updates 4 --out {shlex.quote(str(tmp_path))}"
    assert shell(f"{command} <&- >&- 2>&-").returncode == 0
    (run,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert (run / "status").read_text() == "finished\n"
    assert shell(f"{PROGRAM} evaluate {run} --tasks 4 2>&-").returncode == 0


@pytest.mark.parametrize("delay", [0.01, 0.5, 2.0, pytest.param(4.0, marks=pytest.mark.slow)])
def test_ctrl_c_ends_in_one_sentence(delay, tmp_path):
    """From the import of the command line on; before, the interruption is the interpreter's own."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "recurrent_laplace", *TRAIN.split(), "--out", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.split("|")[-1].strip() == "recurrent_laplace.cli":
            break
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, (out, err)
    assert "Traceback" not in out + err
    lines = [line for line in err.splitlines() if line.startswith("recurrent-laplace: ")]
    assert len(lines) == 1


INTERRUPT_IN_A_CALLBACK = """
import gc, os, signal
gc.callbacks.append(lambda phase, _: phase == "stop" or os.kill(os.getpid(), signal.SIGINT))
gc.collect()
gc.callbacks.clear()
"""
"""An exception raised in such a callback is printed and dropped; JAX registers one."""


@pytest.mark.parametrize(
    ("module", "context", "last", "expected"),
    [
        (
            "cli.streams",
            "quick_interrupts('stopped.')",
            "print('lost')",
            (130, "", "recurrent-laplace: stopped.\n"),
        ),
        ("machine.interrupts", "graceful() as stop", "print(stop.requested)", (0, "True\n", "")),
    ],
)
def test_ctrl_c_in_a_callback_is_not_lost(module, context, last, expected):
    body = textwrap.indent(INTERRUPT_IN_A_CALLBACK + last, "    ")
    program = f"from recurrent_laplace.{module} import *\nwith {context}:\n{body}"
    done = run(sys.executable, "-c", program)
    assert (done.returncode, done.stdout, done.stderr) == expected
