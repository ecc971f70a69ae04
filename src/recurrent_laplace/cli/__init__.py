"""The command line: one verb each. What a verb needs is imported when it is used."""

import argparse
import importlib
import os
import sys
from typing import NoReturn

VERBS = {
    "train": "Train an agent on a task, in a run directory.",
    "evaluate": "Test a run on fixed test tasks.",
    "finetune": "Continue a snapshot of a run under another posterior.",
    "posthoc": "Put another posterior on a run's weights, without training, and test it.",
    "sweep": "Work through many runs from one file.",
    "reproduce": "Repeat the paper's experiments: figures, and a verdict on each claim.",
    "report": "Figures of finished runs, and a page with a verdict on each claim.",
    "monitor": "Watch the belief of an agent while it acts, and write a page of it.",
    "export": "Write a run's agent, with its posterior, to one file that can be loaded anywhere.",
    "faithfulness": "Compare the belief of a trained agent with the exact one.",
    "shiftbench": "Change the world of trained agents, and see which score notices.",
    "tasks": "List the tasks, or draw one.",
    "bench": "Measure: ours and a reference, side by side in one process.",
    "doctor": "Check this machine: versions, devices, threads, known problems, optional packages.",
}


def main(argv: list[str] | None = None) -> None:
    """Run one verb; a mistake in what was asked ends with one sentence and exit code 2."""
    argv = sys.argv[1:] if argv is None else argv
    width = max(map(len, VERBS))
    parser = argparse.ArgumentParser(
        prog="recurrent-laplace",
        description="Turn a recurrent agent into a Bayesian one.",
        usage="recurrent-laplace [-h] VERB ...",
        epilog="verbs:\n"
        + "\n".join(f"  {verb:{width}}  {text}" for verb, text in VERBS.items())
        + "\n\n`recurrent-laplace VERB --help` has the options of a verb.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("verb", choices=VERBS, metavar="VERB", help="what to do")
    verb = parser.parse_args(argv[:1]).verb
    try:
        importlib.import_module(f"{__name__}.{verb}").main(argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader had enough (`| head`): nothing more to say, not even when Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(problem: object, code: int = 2) -> NoReturn:
    """One sentence, and out."""
    print(f"recurrent-laplace: {problem}", file=sys.stderr)
    raise SystemExit(code)


def fail_at_once(problem: object, code: int) -> NoReturn:
    """One sentence, and out without the clean-up at the end of Python."""
    print(f"recurrent-laplace: {problem}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
