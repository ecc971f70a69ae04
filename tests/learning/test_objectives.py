"""Objectives as values: named by configurations, added from outside, refused where they do not fit."""

import dataclasses
from typing import ClassVar
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.objectives import Doubled

import recurrent_laplace as rl
from recurrent_laplace.learning.objectives.registry import OBJECTIVES
from recurrent_laplace.runs.config import Run, config_from

SMALL = rl.AgentConfig(
    cell="elman", hidden_size=4, features=3, embedding_sizes=(4,), head_sizes=(4,), layer_norm=False
)
LEARNING = rl.LearningConfig(batch=4, steps=5, updates=2)
CONFIG = rl.Config(task=rl.TwoArmBandit(), agent=SMALL, learning=LEARNING)
KEY = jax.random.key(0)


@pytest.fixture
def objectives():
    with mock.patch.dict(OBJECTIVES):
        yield OBJECTIVES


def named(name, config=CONFIG):
    return dataclasses.replace(config, learning=dataclasses.replace(config.learning, objective=name))


def trained(config):
    return jax.jit(rl.make_train(config))(KEY)


def test_tasks_have_an_objective_of_their_own():
    assert isinstance(CONFIG.objective, rl.PPO)
    assert rl.Config(task=rl.Regression()).objective.name == "regression"
    state, metrics = trained(CONFIG)
    again, same = trained(named("ppo"))
    jax.tree.map(np.testing.assert_array_equal, (state.model, metrics), (again.model, same))


def test_an_objective_from_outside(objectives):
    rl.register_objective(Doubled)
    _, metrics = trained(named("doubled"))
    np.testing.assert_array_equal(metrics["loss"], 2 * metrics["half"])
    # Also from a file, where it is a part of the run's identity.
    config = config_from({"task": {"name": "two_arm_bandit"}, "learning": {"objective": "doubled"}})
    assert isinstance(config.objective, Doubled)
    assert Run(config=config).id != Run(config=dataclasses.replace(config, learning=rl.LearningConfig())).id


def test_mistakes(objectives):
    with pytest.raises(
        ValueError, match=r"one of 'ppo', 'regression', 'vmpo' \(did you mean 'ppo'\?\); got 'ppo2'"
    ):
        rl.make_train(named("ppo2"))
    with pytest.raises(ValueError, match="'regression' learns regression tasks; 'two_arm_bandit' is none"):
        rl.make_train(named("regression"))
    with pytest.raises(ValueError, match="'ppo' learns tasks with actions; 'regression' is none"):
        rl.make_train(named("ppo", rl.Config(task=rl.Regression())))
    rl.register_objective(Doubled)
    rl.register_objective(Doubled)

    class Other(rl.PPO):
        name: ClassVar[str] = "doubled"

    with pytest.raises(ValueError, match=r"^objective name 'doubled' is taken by Doubled\.$"):
        rl.register_objective(Other)

    class Nameless(rl.AbstractObjective):
        acts: ClassVar[bool] = True

    for wrong, message in {
        rl.PointConfig: "must be a subclass of AbstractObjective; got",
        "ppo": "must be a subclass of AbstractObjective; got 'ppo'",
        Nameless: r"must have a name \(a str\); .*Nameless'> has none",
    }.items():
        with pytest.raises(ValueError, match=rf"^objective {message}.*\.$"):
            rl.register_objective(wrong)


def test_the_vocabulary_had_another_name():
    with pytest.warns(DeprecationWarning, match=r"rl\.Alphabet is deprecated: use rl\.Vocabulary"):
        assert rl.Alphabet is rl.Vocabulary
    with pytest.warns(DeprecationWarning, match="Old.alphabet is deprecated: call it vocabulary"):

        @dataclasses.dataclass(frozen=True, kw_only=True)
        class Old(rl.TwoArmBandit):
            def alphabet(self):
                return rl.Vocabulary(jnp.zeros((1, 1)), jnp.zeros(1))

    assert len(Old().vocabulary().observations) == 1
