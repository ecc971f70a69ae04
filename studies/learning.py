"""Results and training times of the preset laptop: the tables of docs/results.md.

    python studies/learning.py --out build/learning [--only gridworld bandit regression] [--seeds 3]

Every number comes from the command line: `train`, `evaluate`, `posthoc`. Timed trainings run alone, as a
process of their own, with compilation and without a cache: seed 0 of each method. The other seeds run side
by side, one on each core. Finished parts are kept.
"""

import argparse
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl

from recurrent_laplace.evaluation.references import EXACT
from recurrent_laplace.evaluation.statistics import mean_interval, slope_interval
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.oracles import oracle_table

PROGRAM = Path(sys.executable).parent / "recurrent-laplace"

LAPLACE = ["--posterior", "laplace", "--accumulate", "precision", "--window", "1"]
METHODS = {
    "RNN": ["--posterior", "point"],
    "Laplace diagonal": [*LAPLACE, "--covariance", "diagonal"],
    "Laplace dense": [*LAPLACE, "--covariance", "dense"],
    "VRNN diagonal": ["--posterior", "variational", "--covariance", "diagonal"],
    "VRNN dense": ["--posterior", "variational", "--covariance", "dense"],
}
TEST_TASKS = 1024
ALPHAS = (0.2, 0.3)
"""Concentrations of the bandit's test prior."""


MANY_SEEDS = 10
"""Regret is to be sub-linear in 9 of these; they are of the preset `small`, in one program."""


SLOPE_LENGTHS = [10, 15, 20, 25, 30, 40, 50]
"""Where the growth of regret is looked at."""


class Bench:
    """Runs commands once, and remembers how long they took."""

    def __init__(self, out: Path, seeds: int):
        self.out = out
        self.seeds = seeds
        out.mkdir(parents=True, exist_ok=True)
        self.book = out / "commands.json"
        self.done = json.loads(self.book.read_text()) if self.book.exists() else {}
        self.lock = threading.Lock()
        self.mine = threading.local()

    def run(self, *args: str) -> dict:
        """A command line; returns what it printed, and its seconds."""
        name = " ".join(args)
        if name not in self.done:
            print(f"$ recurrent-laplace {name}", file=sys.stderr, flush=True)
            began = time.monotonic()
            cores = getattr(self.mine, "cores", None)
            # What runs beside others is not timed, and may use what is compiled already.
            environment = os.environ | ({} if cores else {"JAX_ENABLE_COMPILATION_CACHE": "false"})
            prefix = ["taskset", "-c", cores] if cores else []
            result = subprocess.run(
                [*prefix, PROGRAM, *args], stdout=subprocess.PIPE, text=True, check=True, env=environment
            )
            with self.lock:
                seconds = None if cores else time.monotonic() - began
                self.done[name] = {"seconds": seconds, "printed": result.stdout}
                self.book.write_text(json.dumps(self.done, indent=1))
        return self.done[name]

    @contextmanager
    def side_by_side(self) -> Iterator[ThreadPoolExecutor]:
        """Chains of commands, one on each core."""
        free = sorted(os.sched_getaffinity(0))

        def take_core() -> None:
            with self.lock:
                self.mine.cores = str(free.pop())

        with ThreadPoolExecutor(len(free), initializer=take_core) as pool:
            yield pool

    def train(
        self, task: str, method: str, seed: int, seeds: int = 1, preset: str = "laptop"
    ) -> tuple[Path, float | None]:
        """A run: its directory, and its seconds from command to prompt if timed."""
        options = ["--task", task, *METHODS[method], "--preset", preset, "--seed", str(seed)]
        options += ["--seeds", str(seeds)] if seeds > 1 else []
        # What is timed starts from nothing: a run that was stopped half-way is refused, not continued.
        options += [] if is_timed(task, method, seed, seeds) else ["--resume"]
        done = self.run("train", *options, "--out", str(self.out / task))
        (line,) = [line for line in done["printed"].splitlines() if line.startswith("finished: ")]
        return Path(line.removeprefix("finished: ")), done["seconds"]

    def evaluate(self, path: Path, *options: str) -> pl.DataFrame:
        """The test of a run on many tasks."""
        return self.table("evaluate", str(path), "--tasks", str(TEST_TASKS), *options)

    def posthoc(self, path: Path, method: str) -> pl.DataFrame:
        """The test of a run under another posterior."""
        return self.table("posthoc", str(path), *METHODS[method], "--tasks", str(TEST_TASKS), "--resume")

    def table(self, *args: str) -> pl.DataFrame:
        """The table of an `evaluate` or `posthoc` command."""
        printed = self.run(*args)["printed"]
        (line,) = [line for line in printed.splitlines() if line.startswith("written: ")]
        return pl.read_parquet(line.removeprefix("written: "))

    def references(self, path: Path, **changes: float) -> dict[str, pl.DataFrame]:
        """What exact Bayes reaches on the test tasks of a run, and other references; exact Bayes first."""
        task = dataclasses.replace(RunDirectory.open(path).run.config.task, **changes)
        frame = oracle_table(path.parent, task, tasks=TEST_TASKS)
        names = [EXACT, *(name for name in frame["run"].unique().sort() if name != EXACT)]
        return {name: frame.filter(pl.col("run") == name) for name in names}


def values(frame: pl.DataFrame, metric: str, t: int) -> np.ndarray:
    """A metric of every test task after t steps, in the order of the tasks."""
    chosen = frame.filter((pl.col("metric") == metric) & (pl.col("t") == t)).sort("task")
    return chosen["value"].cast(pl.Float64).fill_null(np.nan).to_numpy()


def show(numbers: list[float] | np.ndarray, digits: int = 2) -> str:
    """The mean, and each seed's number."""
    each = ", ".join(f"{number:.{digits}f}" for number in numbers)
    return f"{np.mean(numbers):.{digits}f} ({each})"


def is_timed(task: str, method: str, seed: int, seeds: int) -> bool:
    """Whether a run has a limit of time."""
    return seed == 0 and seeds == 1 and (task == "gridworld" or (task, method) == ("regression", "RNN"))


def timed_alone(bench: Bench, parts: list[str]) -> None:
    """What has a limit of time, on an otherwise idle machine."""
    for task, method in itertools.product(parts, METHODS):
        if is_timed(task, method, 0, 1):
            bench.train(task, method, 0)


def everything_else(bench: Bench, parts: list[str]) -> None:
    """The rest, as chains of commands that do not wait for each other."""

    def gridworld_chain(method: str, seed: int) -> None:
        path, _ = bench.train("gridworld", method, seed)
        bench.evaluate(path)
        for other in list(METHODS)[1:] if method == "RNN" else []:
            bench.posthoc(path, other)

    def bandit_chain(method: str, seeds: int, preset: str) -> None:
        path, _ = bench.train("bandit", method, 0, seeds, preset)
        for alpha in ALPHAS:
            bench.evaluate(path, "--task.test-alpha", str(alpha))

    def regression_chain(method: str) -> None:
        for path in _regression_runs(bench, method):
            bench.evaluate(path)

    with bench.side_by_side() as pool:
        waiting = []
        for method in METHODS:
            if "gridworld" in parts:
                waiting += [pool.submit(gridworld_chain, method, seed) for seed in range(bench.seeds)]
            if "bandit" in parts:
                for seeds, preset in ((bench.seeds, "laptop"), (MANY_SEEDS, "small")):
                    waiting.append(pool.submit(bandit_chain, method, seeds, preset))
            if "regression" in parts:
                waiting.append(pool.submit(regression_chain, method))
        for one in waiting:
            one.result()


def gridworld(bench: Bench) -> None:
    """Return on test tasks; then the RNN under post-hoc posteriors."""
    print("\n### Gridworld\n\n| agent | return of 100 steps | share of exact Bayes | least, 99% |", end="")
    print(" regret at 100 | seconds, seed 0 |\n|---|---|---|---|---|---|")
    paths = {}
    references = bench.references(bench.train("gridworld", "RNN", 0)[0])
    best = values(references[EXACT], "return", 100).mean()
    for method in METHODS:
        returns, lows, regrets, seconds = [], [], [], []
        for seed in range(bench.seeds):
            path, took = bench.train("gridworld", method, seed)
            paths[method, seed] = path
            frame = bench.evaluate(path)
            interval = mean_interval(values(frame, "return", 100))
            returns.append(interval.mean)
            lows.append(interval.low)
            regrets.append(values(frame, "cumulative_regret", 100).mean())
            seconds.append(took)
        row = [show(returns, 1), f"{np.mean(returns) / best:.0%}", f"{min(lows):.1f}", show(regrets, 1)]
        print(f"| {method} | {' | '.join(row)} | {seconds[0]:.0f} |", flush=True)
    for name, frame in references.items():
        interval = mean_interval(values(frame, "return", 100))
        row = [f"{interval.mean:.1f}", f"{interval.mean / best:.0%}", f"{interval.low:.1f}"]
        print(f"| {name} | {' | '.join(row)} | {values(frame, 'cumulative_regret', 100).mean():.1f} | |")

    print("\nThe RNNs of the first row under a posterior that they were not trained with:\n")
    print(
        "| posterior, post hoc | entropy at t = 1, 10, 50, 100, 200 | KL at t = 3, 10, 50, 100, 200 |", end=""
    )
    print(" change of return of 100 steps, 99% |\n|---|---|---|---|")
    for method in list(METHODS)[1:]:
        entropies, kls, changes = [], [], []
        for seed in range(bench.seeds):
            own = bench.evaluate(paths["RNN", seed])
            frame = bench.posthoc(paths["RNN", seed], method)
            entropies.append([values(frame, "entropy", t).mean() for t in (1, 10, 50, 100, 200)])
            kls.append([values(frame, "kl", t).mean() for t in (3, 10, 50, 100, 200)])
            # The same tasks: differences are paired.
            changes.append(values(frame, "return", 100) - values(own, "return", 100))
        change = mean_interval(np.mean(changes, axis=0))
        cells = [", ".join(f"{x:.2f}" for x in np.mean(rows, axis=0)) for rows in (entropies, kls)]
        print(f"| {method} | {cells[0]} | {cells[1]} |", end="")
        print(f" {change.mean:+.2f} ({change.low:+.2f} to {change.high:+.2f}) |", flush=True)


def bandit(bench: Bench) -> None:
    """Cumulative regret for both test priors, and how it grows."""
    print("\n### Bandit\n\n| agent | regret at 50 pulls, alpha 0.2 | alpha 0.3 | times exact Bayes |", end="")
    print(" sub-linear for both | largest upper end of a slope |", end="")
    print(f" preset small, {MANY_SEEDS} seeds: regret | sub-linear for both | largest upper end |")
    print(f"|{'---|' * 9}")
    some, _ = bench.train("bandit", "RNN", 0, bench.seeds)
    known = [bench.references(some, test_alpha=alpha) for alpha in ALPHAS]
    best = [values(references[EXACT], "cumulative_regret", 50).mean() for references in known]
    for method in METHODS:
        row = []
        for seeds, preset in ((bench.seeds, "laptop"), (MANY_SEEDS, "small")):
            path, _ = bench.train("bandit", method, 0, seeds, preset)
            ends, highs = [], []
            for alpha in ALPHAS:
                curves = _regret_curves(bench.evaluate(path, "--task.test-alpha", str(alpha)), seeds)
                ends.append([curve[-1] for curve in curves])
                highs.append([slope_interval(np.log(SLOPE_LENGTHS), np.log(curve)).high for curve in curves])
            worst = np.max(highs, axis=0)
            growth = f"{np.sum(worst < 1)} of {seeds}"
            if preset == "laptop":
                times = ", ".join(
                    f"{np.mean(end) / least:.2f}" for end, least in zip(ends, best, strict=True)
                )
                row += [*(show(end) for end in ends), times, growth, f"{np.max(worst):.2f}"]
            else:
                row += [", ".join(f"{np.mean(end):.2f}" for end in ends), growth, f"{np.max(worst):.2f}"]
        print(f"| {method} | {' | '.join(row)} |", flush=True)
    for name in known[0]:
        ends = [values(references[name], "cumulative_regret", 50).mean() for references in known]
        times = ", ".join(f"{end / least:.2f}" for end, least in zip(ends, best, strict=True))
        print(f"| {name} | {ends[0]:.2f} | {ends[1]:.2f} | {times} | | | | | |")
    print("\nThe first columns less those of the reference, paired over tasks, with 99% intervals:\n")
    names = list(known[0])
    print("| agent |", " | ".join(f"{name}, alpha {alpha}" for name in names for alpha in ALPHAS), "|")
    print(f"|---|{'---|' * len(names) * len(ALPHAS)}")
    for method in METHODS:
        path, _ = bench.train("bandit", method, 0, bench.seeds)
        cells = [
            _difference(bench, path, alpha, known[i][name])
            for name in names
            for i, alpha in enumerate(ALPHAS)
        ]
        print(f"| {method} | {' | '.join(cells)} |")


def _difference(bench: Bench, path: Path, alpha: float, reference: pl.DataFrame) -> str:
    """Regret of a run, averaged over its seeds, less that of a reference on the same tasks."""
    frame = bench.evaluate(path, "--task.test-alpha", str(alpha))
    seeds = [frame.filter(pl.col("seed") == seed) for seed in range(bench.seeds)]
    regret = np.mean([values(one, "cumulative_regret", 50) for one in seeds], axis=0)
    change = mean_interval(regret - values(reference, "cumulative_regret", 50))
    return f"{change.mean:+.2f} ({change.low:+.2f} to {change.high:+.2f})"


def _regret_curves(frame: pl.DataFrame, seeds: int) -> list[list[float]]:
    """For each seed, the mean regret over tasks after each of `SLOPE_LENGTHS`."""
    by_seed = [frame.filter(pl.col("seed") == seed) for seed in range(seeds)]
    return [[values(one, "cumulative_regret", t).mean() for t in SLOPE_LENGTHS] for one in by_seed]


def regression(bench: Bench) -> None:
    """Errors and cross-entropies against the number of observations."""
    lengths = [1, 5, 10, 20, 50, 100]
    print(f"\n### Regression\n\n| agent | RMSE at t = {', '.join(map(str, lengths))} |", end="")
    print(" cross-entropy at the same t | in the gaps, t = 50 | RMSE at 50 by seed | seconds, seed 0 |")
    print("|---|---|---|---|---|---|")
    for method in METHODS:
        errors, entropies, gaps = [], [], []
        for path in _regression_runs(bench, method):
            frame = bench.evaluate(path)
            for seed in frame["seed"].unique().sort():
                one = frame.filter(pl.col("seed") == seed)
                errors.append([np.sqrt(values(one, "squared_error", t).mean()) for t in lengths])
                entropies.append([values(one, "cross_entropy", t).mean() for t in lengths])
                gaps.append(values(one, "cross_entropy_gaps", 50).mean())
        cells = [", ".join(f"{x:.2f}" for x in np.mean(rows, axis=0)) for rows in (errors, entropies)]
        by_seed = ", ".join(f"{row[lengths.index(50)]:.2f}" for row in errors)
        took = f"{bench.train('regression', 'RNN', 0)[1]:.0f}" if method == "RNN" else ""
        row = [*cells, f"{np.mean(gaps):.2f}", by_seed, took]
        print(f"| {method} | {' | '.join(row)} |", flush=True)
    exact = bench.references(_regression_runs(bench, "RNN")[0])[EXACT]
    errors = ", ".join(f"{np.sqrt(values(exact, 'squared_error', t).mean()):.2f}" for t in lengths)
    entropies = ", ".join(f"{values(exact, 'cross_entropy', t).mean():.2f}" for t in lengths)
    gap = values(exact, "cross_entropy_gaps", 50).mean()
    print(f"| {EXACT}, linear | {errors} | {entropies} | {gap:.2f} | | |")


def _regression_runs(bench: Bench, method: str) -> list[Path]:
    """The RNN has a limit of time and is run seed by seed; the others in one program."""
    if method == "RNN":
        return [bench.train("regression", method, seed)[0] for seed in range(bench.seeds)]
    return [bench.train("regression", method, 0, bench.seeds)[0]]


def main() -> None:
    """Print the tables as Markdown."""
    parts = {"gridworld": gridworld, "bandit": bandit, "regression": regression}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/learning"))
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    bench = Bench(options.out, options.seeds)
    timed_alone(bench, options.only)
    everything_else(bench, options.only)
    for name in options.only:
        parts[name](bench)


if __name__ == "__main__":
    main()
