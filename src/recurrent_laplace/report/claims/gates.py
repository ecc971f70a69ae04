"""Gates: what agents must have learned before claims about them are judged."""

import dataclasses
import math
from collections.abc import Iterator

from recurrent_laplace.report.claims.columns import Column
from recurrent_laplace.report.claims.comparison import shown
from recurrent_laplace.report.claims.groups import BAYESIAN, CUTOFF, Group, groups, rnn_gate
from recurrent_laplace.report.claims.margins import exact_level, memoryless_level
from recurrent_laplace.report.claims.verdict import Findings
from recurrent_laplace.report.frames import Frames

RETURN_SHARE = 0.9
"""Least share of the return of exact Bayes on the gridworld, for the RNN."""
REGRET_FACTOR = 1.2
"""Most regret on the bandit as a multiple of that of exact greedy play, for the RNN."""
MOST_ERROR = 0.3
"""Most root mean squared error on regression after `ERROR_AT` pairs, for the RNN."""
ERROR_AT = 50
MEMORYLESS_FACTOR = 2.0
"""Least return on the gridworld as a multiple of the best memoryless walk, for Bayesian agents."""

RULES = (
    f"RNN on gridworld: return at T at least {RETURN_SHARE:.0%} of exact Bayes.",
    f"RNN on bandit: cumulative regret at T at most {REGRET_FACTOR:g} times that of exact greedy play.",
    f"RNN on regression: root mean squared error after {ERROR_AT} pairs at most {MOST_ERROR:g}.",
    f"Each Bayesian agent from scratch on gridworld: return at T at least {MEMORYLESS_FACTOR:g} times that "
    "of the best memoryless walk.",
)
"""Gates, compared as means over the seeds of the first look, without an interval."""


@dataclasses.dataclass(frozen=True)
class Gate:
    """Condition on the agents of a column."""

    name: str
    column: str
    words: str
    """What was measured and what is needed; what is missing if it is not known."""
    passed: bool | None
    """Whether the agents meet it; None if it is not known."""


def gates_of(frames: Frames, column: Column) -> list[Gate]:
    """Gates of a column, for the tasks that were run."""
    chosen = column.restrict(frames)
    found = Findings(column.beta_of(chosen))
    tasks = set(chosen.runs["task"])
    checks = {"gridworld": _return_gate, "bandit": _regret_gate, "regression": _error_gate}
    gates = []
    for task, check in checks.items():
        if task in tasks:
            rnns = groups(chosen, found, task, "scratch", ("rnn",))
            words, passed = check(rnns[0]) if rnns else (f"RNN from scratch on {task}", None)
            gates.append(Gate(rnn_gate(task), column.name, words, passed))
    return [*gates, *_memory_gates(chosen, found, column)]


def _return_gate(rnn: Group) -> tuple[str, bool | None]:
    exact, value = exact_level(rnn, "return"), rnn.test("return", CUTOFF).level()
    if exact is None or math.isnan(value):
        return _unknown("gridworld", exact, "return")
    words = f"return of RNN on gridworld is {shown(value)} at T, {value / exact:.0%} of exact Bayes; "
    return words + f"at least {RETURN_SHARE:.0%} needed", value >= RETURN_SHARE * exact


def _regret_gate(rnn: Group) -> tuple[str, bool | None]:
    exact, value = exact_level(rnn, "cumulative_regret"), rnn.test("cumulative_regret", CUTOFF).level()
    if exact is None or math.isnan(value):
        return _unknown("bandit", exact, "regret")
    words = f"regret of RNN on bandit is {shown(value)} at T, {value / exact:.2f} times that of exact greedy "
    return words + f"play; at most {REGRET_FACTOR:g} allowed", value <= REGRET_FACTOR * exact


def _error_gate(rnn: Group) -> tuple[str, bool | None]:
    error = math.sqrt(rnn.test("squared_error", ERROR_AT).level())
    if math.isnan(error):
        return f"squared error of RNN on regression after {ERROR_AT} pairs", None
    words = f"root mean squared error of RNN on regression is {shown(error)} after {ERROR_AT} pairs; "
    return words + f"at most {MOST_ERROR:g} allowed", error <= MOST_ERROR


def _memory_gates(frames: Frames, found: Findings, column: Column) -> Iterator[Gate]:
    for group in groups(frames, found, "gridworld", "scratch", BAYESIAN):
        level, value = memoryless_level(group), group.test("return", CUTOFF).level()
        if level is None or math.isnan(value):
            missing = f"return of {group.name}" if level is not None else "the memoryless walk on gridworld"
            yield Gate(group.name, column.name, missing, None)
            continue
        words = f"return of {group.name} is {shown(value)} at T, {value / level:.2f} times that of the best "
        words += f"memoryless walk; at least {MEMORYLESS_FACTOR:g} times needed"
        yield Gate(group.name, column.name, words, value >= MEMORYLESS_FACTOR * level)


def _unknown(task: str, exact: float | None, metric: str) -> tuple[str, None]:
    return (f"exact Bayes on {task}" if exact is None else f"{metric} of RNN on {task}"), None
