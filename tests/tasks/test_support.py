"""What a task supports is declared by registration, for tasks from outside of the package as well."""

import dataclasses
import functools
import re
from typing import Any, ClassVar
from unittest import mock

import jax
import jax.numpy as jnp
import matplotlib.image
import numpy as np
import polars as pl
import pytest
from jaxtyping import Array, Float
from matplotlib.figure import Figure
from support.runs import SIZES

import recurrent_laplace as rl
from recurrent_laplace.evaluation.calibration import CalibrationConfig
from recurrent_laplace.evaluation.faithfulness.study import FaithfulnessConfig, exact_truth, faithfulness
from recurrent_laplace.evaluation.play import play_episodes
from recurrent_laplace.evaluation.references import EXACT, evaluate_references, training_reference
from recurrent_laplace.evaluation.shifts.study import ShiftConfig, shiftbench
from recurrent_laplace.oracles import (
    AbstractExactBelief,
    AbstractOracle,
    AbstractReference,
    GridOracle,
    Targets,
    make_oracle,
    make_references,
)
from recurrent_laplace.oracles.base import surprise_at
from recurrent_laplace.report.tasks import draw_task
from recurrent_laplace.tasks import TASKS, make_task, register_support, register_task, support_of
from recurrent_laplace.tasks.shifts import CONTROL_SHIFTS, Shift, Shifted, shifts_of

KEY = jax.random.key(0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Levers(rl.AbstractControlTask):
    """Two levers, of which the better one pays more often. A problem is the chance of the second."""

    name: ClassVar[str] = "levers"
    policy_input: ClassVar = "belief"

    chance: float = 0.8
    """Chance of the better lever; the other has the rest."""
    actions = 2
    observation_size = 1

    def check(self):
        pass

    def sample(self, key, *, test=False):
        return jnp.where(jax.random.bernoulli(key), self.chance, 1 - self.chance)

    def reset(self, problem, key):
        return None, jnp.zeros(1)

    def step(self, problem, state, action, key):
        chance = jnp.where(action == 1, problem, 1 - problem)
        reward = jax.random.bernoulli(key, chance).astype(float)
        yes = jnp.ones((), bool)
        return None, rl.Step(reward[None], reward, yes, ~yes, self.chance - chance)


class LeversBelief(AbstractExactBelief):
    """The probability that the second lever is the better one."""

    second: Float[Array, ""]
    chance: float

    def pays(self, action):
        second = self.second * self.chance + (1 - self.second) * (1 - self.chance)
        return jnp.where(action == 1, second, 1 - second)

    def entropy(self):
        return jnp.sum(jax.scipy.special.entr(jnp.stack([self.second, 1 - self.second])))

    def surprise(self, observation, action, outcome):
        chance = self.pays(action)
        return surprise_at(jnp.where(outcome.reward > 0, chance, 1 - chance))


class LeversOracle(AbstractOracle[LeversBelief]):
    is_gradual: ClassVar[bool] = True
    task: Levers = dataclasses.field(metadata={"static": True})

    def init(self, observation):
        return LeversBelief(jnp.full((), 0.5, observation.dtype), self.task.chance)

    def update(self, belief, observation, action, outcome):
        for_second = (action == 1) == (outcome.reward > 0)
        chance = jnp.where(for_second, self.task.chance, 1 - self.task.chance)
        seen = belief.second * chance
        return LeversBelief(seen / (seen + (1 - belief.second) * (1 - chance)), self.task.chance)

    def read(self, belief) -> Any:
        return belief.second

    def targets(self, beliefs, observation) -> Targets:
        second = np.asarray(beliefs, float)[..., None]
        mean = second * self.task.chance + (1 - second) * (1 - self.task.chance)
        variance = second * (1 - second) * (2 * self.task.chance - 1) ** 2
        belief = np.concatenate([1 - mean, mean], axis=-1)
        return Targets(belief, "chances", mean, variance, np.broadcast_to(np.arange(2), belief.shape))


class LikelierLever(AbstractReference[LeversBelief]):
    oracle: LeversOracle

    def act(self, belief, observation, key):
        return (belief.second > 0.5).astype(int)


def draw_levers(task, key, count):
    figure = Figure()
    figure.subplots().bar(range(count), jax.vmap(task.sample)(jax.random.split(key, count)))
    figure.suptitle(task.name)
    return figure


SUPPORT = {
    "oracle": lambda task, **_: LeversOracle(task),
    "references": lambda task, oracle, **_: {"likelier": lambda problem: LikelierLever(oracle)},
    "reported": {EXACT: "likelier"},
    "parameters": lambda task, problem: problem[None],
    "shifts": {**CONTROL_SHIFTS, "swapped": Shift(problem=lambda task, problem, key: 1 - problem)},
    "draw": draw_levers,
}


@pytest.fixture
def registered():
    with mock.patch.dict(TASKS):
        register_task(Levers, **SUPPORT)
        yield Levers()


@functools.cache
def learned(posterior="point"):
    agent = rl.AgentConfig(cell="elman", hidden_size=4, features=2, embedding_sizes=(4,), head_sizes=(4,))
    posterior = rl.PointConfig() if posterior == "point" else rl.LaplaceConfig()
    learning = rl.LearningConfig(steps=8)
    config = rl.Config(task=Levers(), agent=agent, posterior=posterior, learning=learning)
    return rl.make_train(config).init(KEY).model, learning


def test_evaluation_has_exact_bayes_beside_it(registered):
    tables = evaluate_references(registered, tasks=64)
    assert list(tables) == [EXACT]
    assert tables[EXACT]["return"].shape[0] == 64
    regret = np.asarray(tables[EXACT]["cumulative_regret"]).mean(axis=0)
    # Some pulls of the worse lever, each 0.6, and nearly none of them in the last hundred steps.
    assert 0 < regret[-1] < 3
    assert list(training_reference(registered, tasks=2, steps=5)) == [EXACT]
    assert set(make_references(registered)) == {"random", "likelier"}


def test_the_exact_belief_is_what_learned_ones_are_compared_with(registered):
    agent, learning = learned()
    played = play_episodes(agent, registered, learning, episodes=64, steps=8, key=KEY)
    truth = exact_truth(registered, played, KEY)
    assert truth.parameter.shape == (64, 1)
    assert truth.mean.shape == (64, 8, 1)
    np.testing.assert_allclose(truth.mean[:, 0], 0.5)
    # The belief is calibrated: its squared error is its variance, up to five standard errors.
    error = (truth.parameter[:, None] - truth.mean)[:, -1] ** 2 - truth.variance[:, -1]
    assert abs(error.mean()) < 5 * error.std() / 8


def test_a_shift_of_ones_own_changes_the_problem(registered):
    assert shifts_of(registered)[0] == "none"
    assert shifts_of(registered)[-1] == "swapped"
    task = Shifted(base=registered, shift="swapped", at=3)
    task.check()
    problem = task.sample(KEY)
    np.testing.assert_allclose(problem.before + problem.after, 1)


def test_a_picture_of_ones_own(registered):
    figure = draw_task(registered, key=KEY, count=3)
    assert figure.get_suptitle() == "levers"


@pytest.mark.slow
@pytest.mark.usefixtures("registered", "programs")
def test_all_verbs_know_it(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = ("--posterior", "variational", "--covariance", "diagonal")
    run = command(
        "train", "--task", "levers", *SIZES, "--steps", "8", *own, "--updates", "0", "--out", "runs"
    ).path
    done = command("evaluate", run, "--tasks", "4")
    assert done.code == 0, done.err
    assert EXACT in done.out
    done = command("faithfulness", run, "--tasks", "32", "--steps", "8", "--out", "faithful")
    assert done.code == 0, done.err
    frame = pl.read_parquet("faithful/faithfulness.parquet")
    assert frame["network"].to_list() == ["exact", "trained", "untrained"]
    assert frame["rank_agreement"][0] == pytest.approx(1)
    assert np.isfinite(frame["linear_r2"][1])
    few = ("--episodes", "16", "--false-alarm-rate", "0.1")
    done = command("shiftbench", "--run", run, *few, "--shifts", "swapped", "--out", "page.html")
    assert done.code == 0, done.err
    assert "swapped" in (tmp_path / "page.html").read_text()
    exact = pl.read_parquet("page.parquet").filter(pl.col("score") == "exact surprise")
    assert exact["shift"].to_list() == ["swapped"]
    assert command("tasks", "--draw", "levers", "--out", "levers.png").code == 0
    assert matplotlib.image.imread("levers.png").std() > 0.02


# What is missing


@dataclasses.dataclass(frozen=True, kw_only=True)
class BareLevers(rl.AbstractControlTask):
    name: ClassVar[str] = "bare"
    actions, observation_size = 2, 1
    check, sample, reset, step = Levers.check, Levers.sample, Levers.reset, Levers.step


def missing(verb, part, words):
    return (
        f"{verb} needs {words}, and the task 'bare' has none: "
        f"add it by rl.register_task(..., {part}=...) or rl.register_support."
    )


LEARNING = rl.LearningConfig(steps=8)
NEEDS = {
    "make_oracle": (make_oracle, "oracle", "an exact belief"),
    "tasks --draw": (functools.partial(draw_task, key=KEY), "draw", "a picture"),
    "a shift": (lambda task: Shifted(base=task).check(), "shifts", "changes of the world"),
    "shiftbench": (
        lambda task: shiftbench([], task, LEARNING, ShiftConfig()),
        "shifts",
        "changes of the world",
    ),
    "faithfulness": (
        lambda task: faithfulness(Any, Any, task, LEARNING, FaithfulnessConfig()),
        "oracle",
        "an exact belief",
    ),
    "calibration": (
        lambda task: CalibrationConfig().check(task, rl.LaplaceConfig()),
        "parameters",
        "the parameters of a problem as a vector",
    ),
}


@pytest.mark.parametrize("verb", NEEDS)
def test_what_is_missing_is_said_in_one_sentence(verb):
    call, part, words = NEEDS[verb]
    with pytest.raises(ValueError, match=f"^{re.escape(missing(verb, part, words))}$"):
        call(BareLevers())


def test_a_task_without_an_exact_belief_has_no_references():
    assert evaluate_references(BareLevers(), tasks=2) == {}


def test_an_oracle_without_targets_says_so():
    with pytest.raises(ValueError, match=r"define `targets` of CoinOracle"):
        make_oracle(rl.PiecewiseCoin()).targets(None, np.zeros((1, 1, 1)))


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match=r"^part must be one of 'oracle', .*; got 'oracel'\.$"):
        register_support(BareLevers, oracel=None)


# Inheritance


@dataclasses.dataclass(frozen=True, kw_only=True)
class LikeGrid(rl.Gridworld):
    name: ClassVar[str] = "like_grid"


def test_a_subclass_inherits_what_it_does_not_replace():
    task = LikeGrid(size=3)
    assert isinstance(make_oracle(task), GridOracle)
    assert list(evaluate_references(task, tasks=1)) == [EXACT, "told the goal"]

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Other(LikeGrid):
        name: ClassVar[str] = "other"

    register_support(Other, references=None, parameters=lambda task, problem: problem.start)
    assert support_of(Other()).references is None
    assert support_of(Other()).shifts is support_of(task).shifts
    assert support_of(Other()).parameters is not support_of(task).parameters
    assert evaluate_references(Other(size=3), tasks=1) == {}


# Names


@pytest.mark.usefixtures("registered")
def test_a_name_is_registered_once():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Again(Levers):
        pass

    with pytest.raises(ValueError, match=r"^task name 'levers' is taken by Levers\.$"):
        register_task(Again, oracle=None)
    assert support_of(Again()).oracle is SUPPORT["oracle"], "what was refused has left nothing behind"


def test_the_decorator_takes_parts():
    with mock.patch.dict(TASKS):

        @register_task(parameters=SUPPORT["parameters"])
        @dataclasses.dataclass(frozen=True, kw_only=True)
        class Decorated(BareLevers):
            name: ClassVar[str] = "decorated"

        assert TASKS["decorated"] is Decorated
        assert support_of(make_task("decorated")).parameters is SUPPORT["parameters"]


def test_an_unknown_task_is_answered_with_the_known_and_the_nearest():
    known = ", ".join(map(repr, TASKS))
    nearest = re.escape("(did you mean 'gridworld'?)")
    with pytest.raises(ValueError, match=f"^task must be one of {known} {nearest}; got 'gridwrold'\\.$"):
        make_task("gridwrold")
    with pytest.raises(ValueError, match=f"^task must be one of {known}; got 'xyz'\\.$"):
        make_task("xyz")
