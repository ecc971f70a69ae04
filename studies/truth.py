"""Beliefs compared with exact ones, and detection of distribution shifts: the tables of docs/truth.md.

    python studies/truth.py --out build/learning [--only gridworld bandit regression] [--seeds 5]

Executes `faithfulness` and `shiftbench` on agents of the preset laptop, those of studies/learning.py if they
are in the same folder. Prints Markdown, and draws a figure per task. Finished parts are kept.
"""

import argparse
from pathlib import Path

import numpy as np
import polars as pl
from learning import Bench
from matplotlib.figure import Figure

from recurrent_laplace.evaluation.shifts.study import COMBINED
from recurrent_laplace.report.shiftbench import details_of, worth_of

OWN_BELIEFS = ("Laplace diagonal", "VRNN diagonal")
"""Agents that were trained with a belief, beside the RNNs."""
OWN_SEEDS = 3
NO_RIVALS = ("exact surprise", "random")
"""The ceiling and chance: never the best score."""


def agents(bench: Bench, task: str) -> dict[str, list[Path]]:
    """Runs by method: those of studies/learning.py where it has them."""
    if task == "bandit":
        found = {"RNN": [bench.train(task, "RNN", 0, bench.seeds)[0]]}
    else:
        found = {"RNN": [bench.train(task, "RNN", seed)[0] for seed in range(bench.seeds)]}
    for method in OWN_BELIEFS:
        if task == "gridworld":
            found[method] = [bench.train(task, method, seed)[0] for seed in range(OWN_SEEDS)]
        else:
            found[method] = [bench.train(task, method, 0, OWN_SEEDS)[0]]
    return found


def shifts(bench: Bench, task: str) -> pl.DataFrame:
    """Every score on every shift of a task."""
    runs = agents(bench, task)
    beside = [str(path) for method in OWN_BELIEFS for path in runs[method]]
    page = bench.out / f"shifts-{task}.html"
    rnns = [str(path) for path in runs["RNN"]]
    bench.run("shiftbench", "--task", task, "--run", *rnns, "--beside", *beside, "--out", str(page))
    return pl.read_parquet(page.with_suffix(".parquet"))


class Separations:
    """AUROC of every score on every shift, mean over networks, the best scores first."""

    def __init__(self, frame: pl.DataFrame):
        self.shifts = frame["shift"].unique(maintain_order=True).to_list()
        groups = frame.group_by("score", "shift")
        self.of = {key: float(group["auroc"].to_numpy().mean()) for key, group in groups}
        self.scores = frame["score"].unique(maintain_order=True).to_list()
        self.scores.sort(
            key=lambda score: -np.mean([self.of[score, name] for name in self.shifts if name != "new_task"])
        )
        rivals = [score for score in self.scores if score not in NO_RIVALS]
        real = [name for name in self.shifts if name != "new_task"]
        self.best = {name: max(rivals, key=lambda score: self.of[score, name]) for name in real}


def print_shifts(frame: pl.DataFrame, task: str) -> None:
    """AUROC of all scores, the best of each shift in bold; then what the alarms do."""
    found = Separations(frame)
    names, has_return = found.shifts, "return_kept" in frame.columns
    print(f"\n### Shifts: {task}\n\n| score | {' | '.join(name.replace('_', ' ') for name in names)} |")
    print(f"|---|{'---|' * len(names)}")
    for score in found.scores:
        cells = [f"{found.of[score, name]:.2f}" for name in names]
        bold = [found.best.get(name) == score for name in names]
        print(f"| {score} | {' | '.join(f'**{c}**' if b else c for c, b in zip(cells, bold, strict=True))} |")

    print(
        "\n| shift | alarm | AUROC, 99% | AUPR | FPR at 95% | median delay | missed | false alarms |", end=""
    )
    print(f"{' return after it: kept, reset |' if has_return else ''}\n|{'---|' * (8 + has_return)}")
    worth = {(row["shift"], row["score"]): f"{row['kept']}, {row['reset']}" for row in worth_of(frame)}
    for name in names:
        for row in details_of(frame.filter(pl.col("shift") == name)):
            if row["score"] in COMBINED:
                parts = ("score", "auroc", "aupr", "fpr95", "delay", "missed", "false_alarms")
                cells = [name.replace("_", " "), *(row[part] for part in parts)]
                cells += [worth[name, row["score"]]] if has_return else []
                print(f"| {' | '.join(cells)} |")


def draw_shifts(frame: pl.DataFrame, task: str, path: Path) -> None:
    """All scores and shifts at a glance: blue notices, red is misled."""
    found = Separations(frame)
    values = np.array([[found.of[score, name] for name in found.shifts] for score in found.scores])
    figure = Figure(
        figsize=(3.4 + 0.75 * len(found.shifts), 1.4 + 0.2 * len(found.scores)), layout="constrained"
    )
    axes = figure.subplots()
    image = axes.imshow(values, cmap="RdBu", vmin=0, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        color = "white" if abs(value - 0.5) > 0.35 else "black"
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=color, fontsize=7)
    columns = [name.replace("_", " ") for name in found.shifts]
    axes.set_xticks(range(len(columns)), columns, rotation=35, ha="left", fontsize=8)
    axes.set_yticks(range(len(found.scores)), found.scores, fontsize=7)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    figure.colorbar(image, ax=axes, shrink=0.4, label="AUROC, mean over networks; 0.5 is chance")
    figure.suptitle(f"What notices a changed world: {task}", fontsize=10)
    figure.savefig(path, dpi=110)


def faithfulness(bench: Bench, task: str) -> str:
    """The tables and verdicts of beliefs against the exact one."""
    out = bench.out / f"faithfulness-{task}"
    paths = [str(path) for some in agents(bench, task).values() for path in some]
    bench.run("faithfulness", *paths, "--out", str(out))
    return (out / "faithfulness.txt").read_text()


def main() -> None:
    """Print the tables as Markdown."""
    tasks = ("gridworld", "bandit", "regression")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/learning"))
    parser.add_argument("--only", nargs="+", choices=tasks, default=list(tasks))
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    bench = Bench(options.out, options.seeds)
    for task in options.only:
        frame = shifts(bench, task)
        print_shifts(frame, task)
        draw_shifts(frame, task, bench.out / f"shifts-{task}.png")
        if task != "regression":
            print(f"\n### Faithfulness: {task}\n\n```\n{faithfulness(bench, task)}```", flush=True)


if __name__ == "__main__":
    main()
