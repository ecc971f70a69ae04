"""Summary of a report in the form of the ML Reproducibility Challenge, from the tables of its runs."""

import dataclasses
import statistics
from collections.abc import Iterable, Sequence

import polars as pl

from recurrent_laplace.report.claims import OUTCOMES, RULES_DATE, Gate, Verdict
from recurrent_laplace.report.claims.looks import LOOKS
from recurrent_laplace.report.costs import commits_of, hours_of, machines_of, total_hours, update_times
from recurrent_laplace.report.frames import Frames
from recurrent_laplace.report.methods import ALL_ORIGINS

COLUMNS = {
    "released": "As released",
    "written": "As written",
    "written, beta 1e-4": "As written, beta 1e-4",
    "both": "Both columns",
}
"""Titles of the columns of verdicts."""

METHOD = (
    "The method is an independent implementation in JAX: memory, posteriors, training, tasks, and exact "
    "Bayes as a reference for each task. Every comparison of a claim has a margin, inside of which two "
    f"results are on par, and is made at looks of up to {LOOKS[0]}, {LOOKS[1]} and {LOOKS[2]} seeds; a "
    "claim is reproduced if all of its comparisons hold, and not reproduced if one fails after Holm's "
    "correction. Seeds and test tasks are paired between methods. The rules of decision are those of "
    f"{RULES_DATE}, fixed before the reported seeds were run."
)
EASY = (
    "The Laplace posterior needs neither parameters nor training of its own: it follows from the weights of "
    "a network, so that every trained RNN is also an agent with a belief."
)
DIFFICULT = (
    "The paper states its claims in words and figures; every threshold and margin of the rules is ours.",
    "The paper samples beliefs, the published code acts and learns on their mean: claims about control "
    "need two sets of agents, which can have different verdicts.",
)
DIFFERENCES = (
    "Samples in control: the published code passes no number of samples to the heads, which see the "
    "mean of the belief; the column 'as released' does the same, 'as written' samples.",
    "Regression: the published code has three cosines instead of four, and a predictive standard "
    "deviation of at least 0.694; 'as released' has both.",
    "Scale: the published experiments are larger, with 20,000 updates of 256 tasks; sizes here are in "
    "the table of options.",
    "Start tile of the gridworld: a fixed corner in the published code, uniform here. Reward as an "
    "input on the gridworld: absent in the published code, present here. Policy on the bandit: the "
    "published code adds the hidden state to its inputs, and trains a reward model beside it.",
)
"""Differences that remain or that the columns tell apart; docs/differences.md has all of them."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A section of the summary, with its paragraphs as plain text."""

    title: str
    paragraphs: list[str]


def summarize(frames: Frames, verdicts: Sequence[Verdict], gates: Sequence[Gate]) -> list[Part]:
    """Sections of the summary, in the order of the ML Reproducibility Challenge."""
    return [
        Part("Scope of reproducibility", [_scope(frames, verdicts)]),
        Part("Methodology", [METHOD, _runs(frames), _machine(frames)]),
        Part("Results", [*results(frames, verdicts), *_learned(gates)]),
        Part("What was easy", [EASY, *_cheap(frames)]),
        Part("What was difficult", [*DIFFICULT, *_obstacles(frames, verdicts)]),
        Part("Differences from the published code", list(DIFFERENCES)),
    ]


def results(frames: Frames, verdicts: Sequence[Verdict]) -> list[str]:
    """One sentence of outcomes per column."""
    if not frames.judged:
        return ["No claim is judged: runs of preset smoke show that every part works, and learn nothing."]
    made = []
    for column, title in COLUMNS.items():
        own = [verdict for verdict in verdicts if verdict.column == column]
        outcomes = [
            f"{len(ids)} {word} ({', '.join(ids)})"
            for word in OUTCOMES
            if (ids := [verdict.id for verdict in own if verdict.verdict == word])
        ]
        if own:
            made.append(f"{title}: of {_count(len(own), 'claim')}, {_join(outcomes)}.")
    return made


def _scope(frames: Frames, verdicts: Sequence[Verdict]) -> str:
    ids = dict.fromkeys(verdict.id for verdict in verdicts)
    tasks = _join(sorted({task.replace("_", " ") for task in frames.runs["task"]}))
    return (
        f"{_count(len(ids), 'claim')} of 'Bayesian Meta-Reinforcement Learning with Laplace Variational "
        f"Recurrent Networks' about posteriors over the memory of RNN, VRNN and Laplace-VRNN agents, on the "
        f"tasks {tasks}. Each is judged as the published code was released and as the paper is written."
    )


def _runs(frames: Frames) -> str:
    parts = []
    for task in sorted({*frames.runs["task"]}):
        runs = frames.runs.filter(pl.col("task") == task)
        scratch = runs.filter(pl.col("origin") == "scratch")
        seeds = scratch.group_by("configuration").agg(pl.col("seeds").sum())["seeds"]
        updates = sorted({*scratch["updates"]})
        count = _count(len(runs), "run")
        if len(scratch):
            count += (
                f", {_count(len(seeds), 'configuration')} from scratch with {_span(seeds, 'seed')} each and "
                f"{_span(updates, 'update')}"
            )
        parts.append(f"{task.replace('_', ' ')}: {count}")
    return f"{'; '.join(parts)}."


def _machine(frames: Frames) -> str:
    commits, machines = commits_of(frames), machines_of(frames)
    where = f", on {_join(machines)}" if machines else ""
    which = f" Commit {_join(commits)}." if commits else ""
    return f"Computation: {total_hours(frames):.3g} core-hours in all{where}.{which}"


def _learned(gates: Iterable[Gate]) -> list[str]:
    """What the agents have learned, in one sentence per column."""
    made = []
    for column, title in COLUMNS.items():
        own = [gate for gate in gates if gate.column == column]
        failed = [gate.name for gate in own if gate.passed is False]
        unknown = [gate.name for gate in own if gate.passed is None]
        if not own:
            continue
        words = f"{title}: {sum(gate.passed is True for gate in own)} of {_count(len(own), 'gate')} passed"
        words += f"; failed: {_join(failed)}" if failed else ""
        made.append(words + (f"; unknown: {_join(unknown)}" if unknown else "") + ".")
    return made


def _cheap(frames: Frames) -> list[str]:
    """Shares of the cost and of the parameters."""
    made = []
    by_origin = {
        origin: sum(hours.by_origin.get(origin, 0.0) for hours in hours_of(frames)) for origin in ALL_ORIGINS
    }
    count = len(frames.runs.filter(pl.col("origin") == "posthoc"))
    if by_origin["posthoc"] and count:
        share = by_origin["posthoc"] / sum(by_origin.values())
        made.append(f"{_count(count, 'post-hoc run')} took {share:.1%} of the core-hours.")
    ratios = [
        (row.label, by_task[1])
        for row in update_times(frames)
        for task, by_task in row.by_task.items()
        if task == "gridworld" and by_task[1] is not None and row.label != "RNN"
    ]
    if ratios:
        words = [f"{label}: {ratio:.2g}" for label, ratio in ratios]
        made.append(f"Time of an update on the gridworld, as a multiple of the RNN's. {'; '.join(words)}.")
    fewer = _fewer_parameters(frames)
    if fewer is not None:
        made.append(
            f"A Laplace agent has {fewer:.0%} of the parameters of the VRNN with the same sizes (median)."
        )
    return made


def _fewer_parameters(frames: Frames) -> float | None:
    """Median ratio of the parameters of Laplace agents to those of the VRNN with the same sizes."""
    scratch = frames.runs.filter(pl.col("origin") == "scratch")
    keys = ["task_id", "covariance", "features"]
    laplace = scratch.filter(pl.col("method").is_in(["stationary", "precision", "mean_and_precision"]))
    vrnn = (
        scratch.filter(pl.col("method") == "vrnn").select(*keys, pl.col("parameters").alias("all")).unique()
    )
    pairs = laplace.join(vrnn, on=keys)
    return None if pairs.is_empty() else statistics.median((pairs["parameters"] / pairs["all"]).to_list())


def _obstacles(frames: Frames, verdicts: Sequence[Verdict]) -> list[str]:
    """Runs that are missing and claims that stay open."""
    made = []
    if frames.left_out:
        made.append(f"{_count(len(frames.left_out), 'run')} failed or did not end, and are left out.")
    for word, why in (
        ("not decided", "more seeds, or runs that are missing, may decide them"),
        ("agents not trained", "agents that they are about did not pass a gate"),
    ):
        count = sum(verdict.verdict == word for verdict in verdicts)
        if count:
            made.append(f"{_count(count, 'verdict')} '{word}': {why}.")
    return made


def _span(values: Iterable[int], noun: str) -> str:
    """A number, or the least and the most of several, with their noun."""
    least, most = min(values := sorted(values)), max(values)
    return _count(least, noun) if least == most else f"{least:,} to {_count(most, noun)}"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _join(words: Sequence[str]) -> str:
    """Words as a list in a sentence."""
    *others, last = words or ["none"]
    return f"{', '.join(others)} and {last}" if others else last
