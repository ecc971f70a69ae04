"""Effect of calibrating the scales of post-hoc Laplace beliefs: the tables of docs/lab/calibration.md.

    python studies/calibration.py RUN... --out build/calibration [--tasks 128]

For each run, a trained RNN, and each posterior below, it executes `posthoc --calibrate` by likelihood, and
for some also by coverage, one on each core. Scores are of other tasks than those of the fit. Prints
Markdown. Finished parts are kept.
"""

import argparse
from pathlib import Path

import numpy as np
import polars as pl
from learning import Bench

from recurrent_laplace.evaluation.statistics import mean_interval
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.scoring.calibration import is_at_bound

POSTERIORS = {
    "sum, diagonal": ["--accumulate", "precision", "--covariance", "diagonal"],
    "sum, dense": ["--accumulate", "precision", "--covariance", "dense"],
    "stationary, diagonal": ["--accumulate", "none", "--covariance", "diagonal"],
    "stationary, dense": ["--accumulate", "none", "--covariance", "dense"],
    "window 10, dense": ["--accumulate", "none", "--window", "10", "--covariance", "dense"],
    # One scale alone: each look at it factors matrices of the whole state.
    "sum, over the state": [
        *("--accumulate", "precision", "--covariance", "dense", "--space", "state"),
        *("--calibrate-scales", "temperature"),
    ],
}
FITS = [(name, "likelihood") for name in POSTERIORS] + [(name, "coverage") for name in list(POSTERIORS)[:2]]
SHOWN = ("coverage_50", "coverage_90", "nll")
SIGNS = {"prior_stddev": "prior", "damping_precision": "damping", "temperature": "T", "forgetting": "keep"}


def calibrated(bench: Bench, run: Path, posterior: str, by: str, tasks: int) -> Path:
    """The post-hoc run with fitted scales."""
    done = bench.run(
        "posthoc",
        str(run),
        *("--posterior", "laplace", *POSTERIORS[posterior]),
        *("--calibrate", "--calibrate-tasks", str(tasks), "--calibrate-by", by),
        *("--out", str(bench.out), "--resume"),
    )
    (line,) = [line for line in done["printed"].splitlines() if line.startswith("written: ")]
    return Path(line.removeprefix("written: ")).parent


def judged(path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Before and after, task by task: the seeds of a run share their tasks."""
    frame = pl.read_parquet(path / "calibration.parquet")
    frame = frame.group_by("metric", "task").agg(pl.col("before", "after").mean())
    return {
        metric: tuple(
            frame.filter(metric=metric).sort("task")[name].to_numpy() for name in ("before", "after")
        )
        for metric in SHOWN
    }


def scales(path: Path) -> str:
    """What was found; an asterisk where the search could go no further."""
    run = RunDirectory.open(path).run
    found = {name: getattr(run.config.posterior, name) for name in run.calibration.before}
    return ", ".join(
        f"{SIGNS[name]} {value:.2g}{'*' if is_at_bound(name, value) else ''}" for name, value in found.items()
    )


def main() -> None:
    """Print a table for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, default=Path("build/calibration"))
    parser.add_argument("--tasks", type=int, default=128)
    options = parser.parse_args()
    bench = Bench(options.out, 1)
    with bench.side_by_side() as pool:
        made = {
            (run, *fit): pool.submit(calibrated, bench, run, *fit, options.tasks)
            for run in options.runs
            for fit in FITS
        }
    for run in options.runs:
        print(f"\n### {RunDirectory.open(run).run.config.task.name}\n")
        sides = [f"{name}: before, after" for name in ("50%", "90%", "NLL")]
        print(f"| posterior | fitted by | {' | '.join(sides)} | change | scales |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for posterior, by in FITS:
            path = made[run, posterior, by].result()
            values = judged(path)
            cells = [", ".join(f"{side.mean():.2f}" for side in values[name]) for name in SHOWN]
            before, after = values["nll"]
            change = mean_interval(after - before)
            cells.append(f"{change.mean:+.2f} ± {change.high - change.mean:.2f}")
            print(f"| {posterior} | {by} | {' | '.join(cells)} | {scales(path)} |")


if __name__ == "__main__":
    main()
