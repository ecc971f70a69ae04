"""Posteriors compared by performance, faithfulness, predictions and alarms: tables for docs/lab/beliefs.md.

    python studies/beliefs.py --out build/beliefs [--only gridworld bandit regression]
        [--methods RNN conjugate] [--heads without with] [--seeds 5] [--validation] [--parts performance rule]

Trains every method with and without a predictive head, with the preset laptop, through the commands
`train`, `evaluate`, `faithfulness` and `shiftbench`. Finished commands are kept, so that the study can be run
in parts and continued. `--validation` uses the seeds from 100 on, which are for choosing; the reported seeds
are those from 0. Prints Markdown.
"""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import polars as pl
from jaxtyping import Array, Float
from learning import Bench, values

import recurrent_laplace as rl
from recurrent_laplace.evaluation.faithfulness.rule import CRITERIA, judge
from recurrent_laplace.evaluation.faithfulness.study import infer_beliefs
from recurrent_laplace.evaluation.play import play_episodes
from recurrent_laplace.evaluation.shifts.study import COMBINED
from recurrent_laplace.evaluation.statistics import mean_interval
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.models import load_model
from recurrent_laplace.tasks.experience import Experience

TRAINED = ["--beta", "0.001", "--training-samples", "1"]
"""Options of methods that are trained with a belief: the widths of means alone would not be learned."""
METHODS = {
    "RNN": ["--posterior", "point"],
    "Laplace-VRNN": ["--posterior", "laplace", "--covariance", "diagonal", *TRAINED],
    "VRNN": ["--posterior", "variational", "--covariance", "diagonal", *TRAINED],
    "conjugate": ["--posterior", "conjugate", *TRAINED],
}
HEADS = {"without": [], "with": ["--predict", "reward", "observation"]}
"""Options without and with a predictive head; a regressor always has one."""
PARTS = ("performance", "rule", "predictions", "alarm")
TASKS = ("gridworld", "bandit", "regression")

LENGTH = {"gridworld": 100, "bandit": 50, "regression": 50}
"""Steps after which performance is reported."""
EPISODES = 256
"""Episodes on which predicted rewards are scored."""
SAMPLES = 30
"""Samples of a belief for a predicted reward."""
FIRST_VALIDATION_SEED = 100


@dataclasses.dataclass(frozen=True)
class Arm:
    """One method with or without a predictive head."""

    task: str
    method: str
    head: str

    @property
    def name(self) -> str:
        """Name in the tables."""
        return self.method if self.task == "regression" else f"{self.method}, {self.head} head"


class Study:
    """Commands of the study, each executed once."""

    def __init__(self, out: Path, seeds: Sequence[int]):
        self.bench = Bench(out, len(seeds))
        self.seeds = seeds
        self.out = out

    def train(self, arm: Arm) -> list[tuple[Path, float | None]]:
        """Directories of the runs of an arm, and their seconds."""
        found = []
        for seed in self.seeds:
            options = ["--task", arm.task, *METHODS[arm.method], *HEADS[arm.head], "--preset", "laptop"]
            done = self.bench.run(
                "train", *options, "--seed", str(seed), "--resume", "--out", str(self.out / arm.task)
            )
            (line,) = [line for line in done["printed"].splitlines() if line.startswith("finished: ")]
            found.append((Path(line.removeprefix("finished: ")), done["seconds"]))
        return found

    def paths(self, arm: Arm) -> list[str]:
        """Directories of the runs of an arm, as text."""
        return [str(path) for path, _ in self.train(arm)]

    def file_name(self, arm: Arm, part: str) -> Path:
        """File of a result of all seeds of an arm."""
        name = f"{part}-{arm.task}-{arm.name.replace(', ', '-').replace(' ', '-')}"
        return self.out / f"{name}-{self.seeds[0]}-{len(self.seeds)}"

    def performance(self, arm: Arm, metric: str) -> np.ndarray:
        """A metric of each seed, averaged over the test tasks."""
        frames = [self.bench.evaluate(path) for path, _ in self.train(arm)]
        return np.array([values(frame, metric, LENGTH[arm.task]).mean() for frame in frames])

    def rule(self, arm: Arm) -> pl.DataFrame:
        """Measures of `faithfulness`."""
        out = self.file_name(arm, "faithfulness")
        self.bench.run("faithfulness", *self.paths(arm), "--out", str(out))
        return pl.read_parquet(out / "faithfulness.parquet")

    def alarm(self, arm: Arm) -> pl.DataFrame:
        """Scores of a changed problem: alarms, and the KL of the belief's own posterior."""
        page, paths = self.file_name(arm, "alarm").with_suffix(".html"), self.paths(arm)
        beside = [] if arm.method == "RNN" else ["--beside", *paths]
        self.bench.run("shiftbench", "--run", *paths, *beside, "--shifts", "moved", "--out", str(page))
        return pl.read_parquet(page.with_suffix(".parquet"))

    def predictions(self, arm: Arm) -> list[list[float]]:
        """Scores of predicted rewards of each seed: `reward_scores`."""
        path = self.file_name(arm, "predictions").with_suffix(".json")
        if not path.exists():
            scores = [reward_scores(Path(run)) for run in self.paths(arm)]
            path.write_text(json.dumps(scores))
        return json.loads(path.read_text())


def reward_scores(path: Path) -> list[float]:
    """Negative log-likelihood of the next reward in new episodes, and that of its rate at each step."""
    directory = RunDirectory.open(path)
    config, agent = directory.run.config, load_model(directory)
    key_play, key_samples = jax.random.split(jax.random.key(10**6 + directory.run.seed))
    steps = {"episodes": EPISODES, "steps": config.learning.steps}
    experience = play_episodes(agent, config.task, config.learning, **steps, key=key_play).experience
    log_prob = np.asarray(_reward_log_prob(agent, experience, jax.random.split(key_samples, EPISODES)))
    reward = np.asarray(experience.reward)
    rate = np.clip(reward.mean(axis=0), 1e-6, 1 - 1e-6)
    constant = -np.mean(reward * np.log(rate) + (1 - reward) * np.log(1 - rate))
    return [float(-log_prob.mean()), float(constant)]


@eqx.filter_jit
def _reward_log_prob(agent: rl.Agent, experience: Experience, keys: Array) -> Float[Array, "E T"]:
    predictor = agent.predictor
    names = [name for name, _ in predictor.likelihood.named_parts]
    part = predictor.likelihood.parts[names.index("reward")]

    def of_episode(experience: Experience, key: Array) -> Array:
        inference, embedded = infer_beliefs(agent, experience)
        belief = inference.belief
        z = belief.sample(key, (SAMPLES,)) if agent.posterior.has_density else belief.mean[None]
        outputs = predictor(z, predictor.query(embedded, experience.action))
        own = predictor.likelihood.split(outputs)[names.index("reward")]
        return rl.Predictive(part, own).log_prob(experience.reward[:, None])

    return jax.vmap(of_episode)(experience, keys)


def cell(numbers: Sequence[float] | np.ndarray, digits: int = 2) -> str:
    """Mean over seeds with the half-width of its 99% interval; a single seed has none."""
    interval = mean_interval(np.asarray(numbers, float))
    half = "" if np.isnan(interval.low) else f" ± {interval.mean - interval.low:.{digits}f}"
    return f"{interval.mean:.{digits}f}{half}"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as Markdown."""
    print(f"\n### {title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def print_performance(study: Study, arms: Sequence[Arm]) -> None:
    """Return, regret or error, and the seconds of training."""
    task = arms[0].task
    metrics = {
        "gridworld": ("return", "cumulative_regret"),
        "bandit": ("return", "cumulative_regret"),
        "regression": ("squared_error", "cross_entropy", "coverage_90"),
    }[task]
    rows = []
    for arm in arms:
        found = {metric: study.performance(arm, metric) for metric in metrics}
        if "squared_error" in found:
            found = {"RMSE": np.sqrt(found.pop("squared_error"))} | found
        seconds = [second for _, second in study.train(arm) if second is not None]
        rows.append([arm.name, *map(cell, found.values()), cell(seconds, 0)])
    table(f"{task}: performance at t = {LENGTH[task]}", ["method", *found, "seconds"], rows)


def print_rule(study: Study, arms: Sequence[Arm]) -> None:
    """Measures and states of every criterion."""
    rows = []
    for arm in arms:
        frame = study.rule(arm)
        rows += [["exact belief, " + arm.name, *_criteria(frame, "exact", "exact belief"), ""]]
        for verdict in judge(frame):
            marks = {"holds": "", "fails": " ✗", "open": " ?"}
            cells = [
                f"{cell(_of(frame, verdict.posterior, c.criterion))}{marks[c.state]}" for c in verdict.checks
            ]
            rows.append([f"{arm.name}: {verdict.posterior}", *cells, verdict.word])
            control = _criteria(frame, "untrained", verdict.posterior)
            rows.append([f"{arm.name}: {verdict.posterior}, untrained", *control, ""])
    columns = ["posterior", *(criterion.short for criterion in CRITERIA), "verdict"]
    table(f"{arms[0].task}: criteria (✗ fails, ? open)", columns, rows)


def _of(frame: pl.DataFrame, posterior: str, criterion, network: str = "trained") -> np.ndarray:
    chosen = frame.filter((pl.col("network") == network) & (pl.col("posterior") == posterior))
    return chosen[criterion.measure].drop_nulls().to_numpy()


def _criteria(frame: pl.DataFrame, network: str, posterior: str) -> list[str]:
    found = [_of(frame, posterior, criterion, network) for criterion in CRITERIA]
    return [cell(numbers) if len(numbers) else "-" for numbers in found]


def print_predictions(study: Study, arms: Sequence[Arm]) -> None:
    """Likelihood of rewards under the predictive head."""
    rows = []
    for arm in arms:
        own, constant = np.array(study.predictions(arm)).T
        rows.append([arm.name, cell(own, 4), cell(constant, 4), cell(1 - own / constant)])
    columns = ["method", "NLL of the next reward, nats", "of the rate at each step", "explained"]
    table(f"{arms[0].task}: predicted rewards", columns, rows)


def print_alarm(study: Study, arms: Sequence[Arm]) -> None:
    """Separation and misses of a changed problem."""
    rows = []
    for arm in arms:
        frame = study.alarm(arm)
        for score in frame["score"].unique(maintain_order=True):
            if score in COMBINED or score.endswith(": kl"):
                own = frame.filter(pl.col("score") == score)
                parts = [
                    own[name].drop_nulls().drop_nans().to_numpy()
                    for name in ("auroc", "missed", "false_alarms")
                ]
                rows.append([arm.name, score, *(cell(part) if len(part) else "-" for part in parts)])
    table(f"{arms[0].task}: a changed problem", ["method", "score", "AUROC", "missed", "false alarms"], rows)


def main() -> None:
    """Execute the parts and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/beliefs"))
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--heads", nargs="+", choices=list(HEADS), default=list(HEADS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--validation", action="store_true", help="seeds from 100 on")
    options = parser.parse_args()
    first = FIRST_VALIDATION_SEED if options.validation else 0
    study = Study(options.out, range(first, first + options.seeds))
    kind = "Validation" if options.validation else "Reported"
    print(f"{kind} seeds {first} to {first + options.seeds - 1}; intervals of 99% are over seeds.")
    printers = {
        "performance": print_performance,
        "rule": print_rule,
        "predictions": print_predictions,
        "alarm": print_alarm,
    }
    for task in options.only:
        heads = ["without"] if task == "regression" else options.heads
        arms = [Arm(task, method, head) for method in options.methods for head in heads]
        for part in options.parts:
            chosen = [arm for arm in arms if part != "predictions" or arm.head == "with"]
            if chosen and not (task == "regression" and part == "rule"):
                printers[part](study, chosen)


if __name__ == "__main__":
    main()
