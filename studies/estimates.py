"""Estimated times against measured ones.

python studies/estimates.py updates night    # each kind of run of a scale, from scratch, one seed
python studies/estimates.py replay DIR       # forecasts that a finished sweep would have had
"""

import dataclasses
import sys
import time
from pathlib import Path
from unittest import mock

import jax

from recurrent_laplace.learning import make_train
from recurrent_laplace.runs.estimate import estimate
from recurrent_laplace.runs.presets import load_sweep
from recurrent_laplace.runs.provenance import describe_machine
from recurrent_laplace.sweeps import forecast
from recurrent_laplace.sweeps.directory import SweepDirectory, describe
from recurrent_laplace.sweeps.looks import look_tables
from recurrent_laplace.sweeps.plan import Job, read_plan

UPDATES = 3
"""Measured updates, of which the fastest counts."""
ROWS = 12
"""Rows of a replay."""


def measured_seconds(job: Job) -> float:
    """Time of an update of one seed, without compilation."""
    train = make_train(job.run.config)
    state, _ = train.advance(train.init(jax.random.key(job.run.seed)), 1)
    times = []
    for until in range(2, UPDATES + 2):
        jax.block_until_ready(state.update)
        began = time.perf_counter()
        state, _ = train.advance(state, until)
        jax.block_until_ready(state.update)
        times.append(time.perf_counter() - began)
    return min(times)


def updates(scale: str) -> None:
    """Print a row for each kind of run from scratch of a scale."""
    tables, source = load_sweep(f"reproduce-{scale}")
    kinds: dict[str, Job] = {}
    for job in read_plan(look_tables(tables, 1), source).only(()).jobs:
        if job.parent is None:
            one = dataclasses.replace(job, run=dataclasses.replace(job.run, seeds=1))
            kinds.setdefault(forecast.kind_of(one), one)
    print(
        f"{describe_machine()}\n\n| stage | run | measured, s | estimate, s | ratio |\n|---|---|---|---|---|"
    )
    for job in kinds.values():
        measured, estimated = measured_seconds(job), estimate(job.run).update_seconds
        numbers = f"{measured:.3f} | {estimated:.3f} | {measured / estimated:.2f}"
        print(f"| {job.stage} | {describe(job)} | {numbers} |", flush=True)


def replay(folder: Path) -> None:
    """Print forecasts of the time of a finished sweep, after each part of its runs."""
    sweep = SweepDirectory.open(folder)
    jobs = sweep.plan.jobs
    took = {job.id: sweep.leases.entry(job.id).seconds for job in jobs}
    total, measured, done = sum(took.values()), forecast.update_seconds, set[str]()

    def known(sweep: SweepDirectory, job: Job) -> float | None:
        return measured(sweep, job) if job.id in done else None

    print("| runs done | worker-seconds | forecast of all | forecast / actual |\n|---|---|---|---|")
    with (
        mock.patch.object(SweepDirectory, "is_done", lambda self, job: job.id in done),
        mock.patch.object(forecast, "update_seconds", known),
    ):
        for count in range(0, len(jobs) + 1, -(-len(jobs) // ROWS)):
            done.update(job.id for job in jobs[:count])
            spent = sum(took[job] for job in done)
            whole = spent + sum(map(forecast.Forecast([sweep]).seconds, jobs[count:]))
            print(f"| {count} of {len(jobs)} | {spent:.0f} | {whole:.0f} | {whole / total:.2f} |")


def main() -> None:
    """Run the part that is asked for."""
    match sys.argv[1:]:
        case ["updates", scale]:
            updates(scale)
        case ["replay", folder]:
            replay(Path(folder))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
