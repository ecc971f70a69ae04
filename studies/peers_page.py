"""The page and the figure of the study `peers.py`."""

import datetime
import shlex
import statistics
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from peers_curve import STEPS
from peers_study import SYSTEMS, VALIDATION_SEED, Study, final_return, trials_of

from recurrent_laplace.machine.devices import cores
from recurrent_laplace.report.style import STYLE

THRESHOLDS = (30, 32, 34)

PAGE = """
# Peers

Measured on {date} on a CPU ({cores} in use). Each system learns the 5x5 gridworld with a hidden goal, for
at most {seconds:g} s per seed, with an LSTM of width 64: one training at a time, each in a process of its
own.

```bash
python {command}
```

![Return against seconds]({figure})

{table}

The return is the mean over {tasks:,} fresh test tasks of {steps} steps, under the policy that gathers the
experience of training, at the end of the time: mean, smallest and largest of {seeds}. Seconds count
from the start of the process, imports and compilation included; evaluation, about every {every:g} s, stops
the clock. Seconds to a return are those of the first evaluation that has it, as a median of the seeds that
reach it.

## Settings

The first settings of each system are its defaults (memorax has none: the example of its README), the second
the values of our preset `laptop` as far as they exist there. Each was tried for {trial_seconds:g} s on seed
{validation_seed}, which is not one of the comparison, and those with the highest return were used. What is
not listed has the library's default.

{trials}

## Differences that remain

- Memory: all systems keep the memory for the {steps} steps of a task, across the ends of episodes inside
  it, and reset it between tasks. All have the previous action and reward as inputs, zero at the start of a
  task.
- Discount: ours is 0 at the end of an episode inside a task. memorax and Stable-Baselines3 have one signal
  for the end of returns and for the reset of the memory, so their returns go on past the goal to the end of
  the task.
- End of a task: ours and Stable-Baselines3 bootstrap the value of the last input; memorax counts it as
  zero.
- Truncated sequences: settings with 128 steps per rollout cut tasks in two, and gradients stop there.
- Networks: ours shares one LSTM between policy and value; memorax and Stable-Baselines3 have one for each,
  as is usual there. Ours and memorax embed the inputs in 32 numbers, Stable-Baselines3 does not.
- Schedules: ours anneals the learning rate and the weight of the entropy to zero over its updates and ends
  there, so a preset with few updates does not use the whole time. The peers' are constant, as in their
  examples.

## Versions

{versions}.
"""


def seconds_to(result: dict[str, Any], threshold: float) -> float | None:
    """Seconds at the first evaluation with at least this return; None if there was none."""
    return next((seconds for seconds, _, value in result["points"] if value >= threshold), None)


def table(study: Study) -> Iterator[str]:
    """Comparison of the systems, a row each."""
    yield (
        "| system | return | "
        + " | ".join(f"seconds to {t}" for t in THRESHOLDS)
        + " | last update, s | steps |"
    )
    yield "|---|---:|" + "---:|" * (len(THRESHOLDS) + 2)
    for name in study.systems:
        results = study.results(name)
        returns = [final_return(result) for result in results]
        words = [SYSTEMS[name].label, f"{np.mean(returns):.2f} ({min(returns):.2f} to {max(returns):.2f})"]
        for threshold in THRESHOLDS:
            reached = [s for result in results if (s := seconds_to(result, threshold)) is not None]
            median = f"{statistics.median(reached):.0f}" if reached else "never"
            missed = f" ({len(reached)} of {len(results)} seeds)" if 0 < len(reached) < len(results) else ""
            words.append(median + missed)
        seconds, steps, _ = np.mean([result["points"][-1] for result in results], axis=0)
        yield "| " + " | ".join([*words, f"{seconds:.0f}", f"{steps:,.0f}"]) + " |"


def trials_table(study: Study) -> Iterator[str]:
    """Settings that were tried, and what they reached."""
    yield "| system | settings | return | used |"
    yield "|---|---|---:|---|"
    for name in study.systems:
        for trial in trials_of(name):
            settings = SYSTEMS[name].trials[trial]
            text = ", ".join(f"{key} {value}" for key, value in settings.items()) or "preset `laptop`"
            value = final_return(study.result(name, trial, VALIDATION_SEED))
            used = "yes" if trial == study.chosen(name) else ""
            yield f"| {SYSTEMS[name].label} | {text} | {value:.2f} | {used} |"


def draw(study: Study) -> Figure:
    """Return against seconds: a thin line per seed, and a thick one for their mean where all have values."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.5, 3.6), layout="constrained")
        axes = figure.subplots()
        for name in study.systems:
            system, curves = SYSTEMS[name], []
            grid = np.linspace(0, study.seconds, 200)
            for result in study.results(name):
                seconds, _, values = np.array(result["points"]).T
                axes.plot(seconds, values, color=system.colour, linewidth=0.6, alpha=0.5)
                # A training that is over keeps its return.
                curves.append(np.interp(grid, seconds, values))
            axes.plot(grid, np.mean(curves, axis=0), color=system.colour, linewidth=1.6, label=system.label)
        for threshold in THRESHOLDS:
            axes.axhline(threshold, color="0.8", linewidth=0.6, zorder=0)
        axes.set_xlabel("seconds since the start of the process, evaluation excluded")
        axes.set_ylabel(f"return per {STEPS} steps")
        axes.legend(frameon=False, loc="lower right")
    return figure


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("s" if number != 1 else "")


def write_page(study: Study, figure: str) -> str:
    """The page, in Markdown."""
    versions = {
        f"{package} {version} ({SYSTEMS[name].label})": None
        for name in study.systems
        for package, version in study.results(name)[0]["versions"].items()
    }
    return (
        textwrap.dedent(PAGE)
        .lstrip()
        .format(
            date=datetime.date.today(),
            cores=_count(len(cores()), "core"),
            seconds=study.seconds,
            command=shlex.join(["studies/peers.py", *sys.argv[1:]]),
            figure=figure,
            table="\n".join(table(study)),
            tasks=study.tasks,
            steps=STEPS,
            seeds=_count(study.seeds, "seed"),
            every=study.every,
            trial_seconds=study.trial_seconds,
            validation_seed=VALIDATION_SEED,
            trials="\n".join(trials_table(study)),
            versions=", ".join(versions),
        )
    )
