"""Command line, one module per verb, imported on use."""

import argparse
import contextlib
import importlib
import os
import sys
from typing import NoReturn

from recurrent_laplace.cli.announcement import announce_training
from recurrent_laplace.cli.streams import INTERRUPTED, guarded_streams, quick_interrupts

VERBS = {
    "train": "Train an agent on a task, in a run directory.",
    "evaluate": "Evaluate a run on fixed test tasks.",
    "finetune": "Fine-tune a snapshot of a run with another posterior.",
    "posthoc": "Apply another posterior to a run's weights, without training, and evaluate it.",
    "sweep": "Execute many runs from one file.",
    "reproduce": "Reproduce the paper's experiments: figures, and a verdict on each claim.",
    "report": "Write a page with the figures of finished runs and a verdict on each claim.",
    "monitor": "Monitor the belief of an agent while it acts, and write a page.",
    "export": "Export a run's agent, with its posterior, to one file.",
    "faithfulness": "Compare the belief of trained agents with the exact posterior.",
    "shiftbench": "Benchmark the detection of distribution shifts by trained agents.",
    "tasks": "List the tasks, or plot problems of one.",
    "bench": "Measure time and memory against a reference.",
    "doctor": "Check this machine: versions, devices, threads, known problems, optional packages.",
}


def main(argv: list[str] | None = None) -> None:
    """Run one verb; invalid input ends with a one-sentence message and exit code 2."""
    argv = sys.argv[1:] if argv is None else argv
    with guarded_streams():
        try:
            _dispatch(argv)
        except KeyboardInterrupt:
            fail("stopped.", code=INTERRUPTED)


def _dispatch(argv: list[str]) -> None:
    width = max(map(len, VERBS))
    parser = argparse.ArgumentParser(
        prog="recurrent-laplace",
        description="Turn a recurrent agent into a Bayesian one.",
        usage="recurrent-laplace [-h] VERB ...",
        epilog="verbs:\n"
        + "\n".join(f"  {verb:{width}}  {text}" for verb, text in VERBS.items())
        + "\n\n`recurrent-laplace VERB --help` lists the options of a verb.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("verb", choices=VERBS, metavar="VERB", help="verb to run")
    verb = parser.parse_args(argv[:1]).verb
    if verb == "train":
        announce_training(argv[1:])
    with quick_interrupts("stopped before anything was started."):
        module = importlib.import_module(f"{__name__}.{verb}")
    module.main(argv[1:])


def fail(problem: object, code: int = 2) -> NoReturn:
    """Print a one-sentence message to standard error and exit."""
    with contextlib.suppress(OSError):  # Standard error may be full or closed.
        print(f"recurrent-laplace: {problem}", file=sys.stderr)
    raise SystemExit(code)


def fail_at_once(problem: object, code: int) -> NoReturn:
    """Print a one-sentence message and exit without the interpreter's shutdown."""
    with contextlib.suppress(OSError):
        print(f"recurrent-laplace: {problem}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
