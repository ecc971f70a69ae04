"""Hyper-parameters of the preset `reproduction`, chosen on validation seeds: docs/lab/tuning.md.

    python studies/tuning.py --out build/tuning [--workers 2]

Executes the sweep `studies/tuning.toml`, which continues where it stopped, and compares its runs by the last
tenth of their training: the return in control, the cross-entropy in regression. The setting of a task is the
one with the best mean over all methods and both arms.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import polars as pl

from recurrent_laplace.report.frames import load_frames
from recurrent_laplace.report.methods import NAMES
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.presets import load_preset
from recurrent_laplace.runs.toml import Tables

ROOT = Path(__file__).parent.parent
SWEEP = Path(__file__).with_name("tuning.toml")
PROGRAM = Path(sys.executable).parent / "recurrent-laplace"
METRICS = {"gridworld": ("return", True), "bandit": ("return", True), "regression": ("cross_entropy", False)}
"""Metric by which the settings of each task are compared, and whether it is to be high."""
TRIED = {
    "agent": ("features",),
    "learning": ("learning_rate", "entropy_weight", "epochs", "batch", "updates"),
}
"""Options that differ between settings."""
INTRODUCTION = """\
# Hyper-parameters of the reproduction

Made by `python studies/tuning.py --out build/tuning`. The same settings are tried for every method, on
validation seeds from 100 on, which are not reported. A number is the mean over seeds and over the last
tenth of training; *mean* stands for heads at the mean of the belief (as released). The setting of a task
is the one with the best mean over all columns; this rule was fixed before the runs. Settings are
differences from the preset `reproduction`."""


def main() -> None:
    """Execute the sweep, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "lab", help="folder of the page")
    options = parser.parse_args()
    command = [PROGRAM, "sweep", SWEEP, "--out", options.out, "--workers", str(options.workers)]
    subprocess.run(command, check=True)
    target = options.docs / "tuning.md"
    target.write_text(page(results(options.out)))
    print(f"written: {target}")


def results(folder: Path) -> pl.DataFrame:
    """Result of each run: a row per seed, with its task, setting and method."""
    frames = load_frames(folder)
    if frames.left_out:
        raise SystemExit(f"some runs have no result: {frames.left_out}")
    rows = []
    for run in frames.runs.iter_rows(named=True):
        tables = RunDirectory.open(folder / run["path"]).run.tables()
        metric, _ = METRICS[run["task"]]
        last = frames.metrics.filter(
            (pl.col("run") == run["run"])
            & (pl.col("metric") == metric)
            & (pl.col("update") > 0.9 * run["updates"])
        )
        name = NAMES[run["method"]]
        column = f"{name}, mean" if run["arm"] == "released" else name
        for (seed,), values in last.group_by("seed", maintain_order=True):
            rows.append(
                {
                    "task": run["task"],
                    "setting": setting_of(tables, run["task"]),
                    "method": column,
                    "seed": seed,
                    "value": values["value"].mean(),
                }
            )
    return pl.DataFrame(rows)


def setting_of(tables: Tables, task: str) -> str:
    """The options of a run that differ from the preset's."""
    preset = load_preset("reproduction", task, "point")
    changed = [
        f"{name} {tables[section][name]:g}"
        for section, names in TRIED.items()
        for name in names
        if tables[section].get(name) != preset[section].get(name, tables[section].get(name))
    ]
    return ", ".join(changed) or "preset"


def page(table: pl.DataFrame) -> str:
    """The page: a table per task, the best setting first."""
    lines = INTRODUCTION.splitlines()
    for task, (metric, is_high) in METRICS.items():
        chosen = table.filter(pl.col("task") == task)
        if chosen.is_empty():
            continue
        wide = chosen.pivot("method", index="setting", values="value", aggregate_function="mean")
        methods = [name for name in wide.columns if name != "setting"]
        wide = wide.with_columns(pl.mean_horizontal(methods).alias("all")).sort("all", descending=is_high)
        seeds = chosen["seed"].unique().sort().to_list()
        unit = metric.replace("_", "-")
        lines += ["", f"## {task.capitalize()}", ""]
        lines += [
            f"{unit.capitalize()} in training, {'higher' if is_high else 'lower'} is better; seeds {seeds}.",
            "",
        ]
        lines += [f"| setting | {' | '.join(methods)} | all |", f"|{'---|' * (len(methods) + 2)}"]
        digits = 1 if task == "gridworld" else 3
        for row in wide.iter_rows(named=True):
            values = " | ".join(f"{row[name]:.{digits}f}" for name in [*methods, "all"])
            lines.append(f"| {row['setting']} | {values} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
