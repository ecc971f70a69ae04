"""What beliefs are worth against exact ones, and which alarm notices a changed world: docs/truth.md's tables.

    python benchmarks/truth.py --out build/learning [--only gridworld bandit regression] [--seeds 5]

Agents of the laptop preset, those of benchmarks/learning.py where they are in the same folder, then
`faithfulness` and `shiftbench` on them, all through the command line that users have. Prints Markdown.
What is done already is not done again, so it can be stopped and started.
"""

import argparse
from pathlib import Path

import numpy as np
import polars as pl
from learning import Bench

from recurrent_laplace.deploy.shiftbench import COMBINED
from recurrent_laplace.report.shiftbench import details_of, worth_of

OWN_BELIEFS = ("Laplace diagonal", "VRNN diagonal")
"""Agents that were trained with a belief, beside the RNNs."""
OWN_SEEDS = 3
CEILING = "exact surprise"


def agents(bench: Bench, task: str) -> dict[str, list[Path]]:
    """Runs by method: those of benchmarks/learning.py where it has them."""
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


def print_shifts(frame: pl.DataFrame, task: str) -> None:
    """AUROC of all scores, the best of each shift in bold; then what the alarms do."""
    names = frame["shift"].unique(maintain_order=True).to_list()
    means = {key: float(group["auroc"].to_numpy().mean()) for key, group in frame.group_by("score", "shift")}
    scores = frame["score"].unique(maintain_order=True).to_list()
    best = {name: max(means[score, name] for score in scores if score != CEILING) for name in names}
    scores.sort(key=lambda score: -np.mean([means[score, name] for name in names if name != "new_task"]))
    print(f"\n### Shifts: {task}\n\n| score | {' | '.join(name.replace('_', ' ') for name in names)} |")
    print(f"|---|{'---|' * len(names)}")
    for score in scores:
        cells = [f"{means[score, name]:.2f}" for name in names]
        bold = [
            score != CEILING and name != "new_task" and means[score, name] == best[name] for name in names
        ]
        print(f"| {score} | {' | '.join(f'**{c}**' if b else c for c, b in zip(cells, bold, strict=True))} |")

    print("\n| shift | alarm | AUROC, 99% | AUPR | FPR at 95% | median delay |", end="")
    print(" missed | false alarms | return after it: kept, reset |\n|---|---|---|---|---|---|---|---|---|")
    worth = {(row["shift"], row["score"]): f"{row['kept']}, {row['reset']}" for row in worth_of(frame)}
    for name in names:
        for row in details_of(frame.filter(pl.col("shift") == name)):
            if row["score"] in COMBINED:
                parts = ("score", "auroc", "aupr", "fpr95", "delay", "missed", "false_alarms")
                cells = [name.replace("_", " "), *(row[part] for part in parts)]
                print(f"| {' | '.join(cells)} | {worth.get((name, row['score']), '')} |")


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
        print_shifts(shifts(bench, task), task)
        if task != "regression":
            print(f"\n### Faithfulness: {task}\n\n```\n{faithfulness(bench, task)}```", flush=True)


if __name__ == "__main__":
    main()
