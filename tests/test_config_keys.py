"""Every key of the configuration changes something; those that say they do not, do not; bad values are named.

Nothing is trained nor compiled: two configurations differ where the traced programs of an update differ,
after all that has no influence on the outcome was taken out of them.
"""

import dataclasses
import functools
import re

import jax
import numpy as np
import pytest
from jax.interpreters import partial_eval

import recurrent_laplace as rl
from recurrent_laplace.tasks import TASKS

KEY = jax.random.key(0)


# What a configuration does, as text


def traced(function, *args):
    """The program, with its constants, without what nothing depends on."""
    closed = jax.make_jaxpr(function)(*args)
    jaxpr, used = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
    del used
    constants = [np.asarray(constant).tolist() for constant in closed.consts]
    # Where a function happens to be in memory is no part of what it does.
    return re.sub(r"0x[0-9a-f]+", "", str(jaxpr)), str(constants)


@functools.cache
def program(config):
    """One update, whose arguments have the shapes of the weights."""
    model = model_of(config.task, config.agent, config.posterior)
    train = rl.make_train(config)
    return traced(train.update, jax.eval_shape(train.start_from, model, KEY))


@functools.cache
def model_of(task, agent, posterior):
    train = rl.make_train(rl.Config(task=task, agent=agent, posterior=posterior))
    return jax.eval_shape(train.make_model, KEY)


@functools.cache
def task_program(task):
    """Everything that can happen in a task."""

    def play(key):
        problem, tested = task.sample(key), task.sample(key, test=True)
        state, observation = task.reset(problem, key)
        action = jax.numpy.zeros((), int if isinstance(task, rl.AbstractControlTask) else float)
        state, step = task.step(problem, state, action, key)
        pairs = task.pairs(problem, key, 3) if isinstance(task, rl.AbstractRegressionTask) else None
        return problem, tested, observation, step, task.step(problem, state, action, key), pairs

    return traced(play, KEY)


# Configurations to change one key of

# With few operations, since tracing them takes the time.
SMALL = rl.AgentConfig(
    cell="elman", hidden_size=3, features=2, embedding_sizes=(2,), head_sizes=(2,), layer_norm=False
)
FEW = rl.LearningConfig(updates=10, steps=3, batch=4)
LAPLACE = rl.PosteriorConfig(kind="laplace")
REGRESSION = rl.Config(task=rl.Regression(), agent=SMALL, posterior=LAPLACE, learning=FEW)
CONTROL = rl.Config(task=rl.Gridworld(size=2), agent=SMALL, posterior=LAPLACE, learning=FEW)


def changed(base, **keys):
    """With other values: each key goes to the part of the configuration that has it."""
    parts = {}
    for part in ("agent", "posterior", "learning"):
        old = getattr(base, part)
        own = {key: value for key, value in keys.items() if key in vars(old)}
        parts[part] = dataclasses.replace(old, **own)
        keys = {key: value for key, value in keys.items() if key not in own}
    assert not keys, keys
    return dataclasses.replace(base, **parts)


STATIONARY = {"accumulate": "none"}

# Key by key: the configuration it is changed in, its new value, and what else both have.
CHANGES = {
    rl.AgentConfig: {
        "cell": (REGRESSION, "gru"),
        "hidden_size": (REGRESSION, 4),
        "features": (REGRESSION, 3),
        "embedding_sizes": (REGRESSION, (3,)),
        "head_sizes": (REGRESSION, (2, 2)),
        "layer_norm": (REGRESSION, True),
        "policy_input": (CONTROL, "belief"),
        "reward_model": (CONTROL, True),
    },
    rl.PosteriorConfig: {
        "kind": (REGRESSION, "variational"),
        "covariance": (REGRESSION, "dense"),
        "accumulate": (REGRESSION, "mean_and_precision"),
        "window": (REGRESSION, 2),
        "forgetting": (REGRESSION, 0.9),
        "prior_stddev": (REGRESSION, 2.0),
        "damping_precision": (REGRESSION, 2.0, STATIONARY),
        "temperature": (REGRESSION, 2.0),
        "space": (REGRESSION, "state"),
    },
    rl.LearningConfig: {
        "updates": (REGRESSION, 20, {"final_learning_rate": 1e-4}),
        "steps": (REGRESSION, 4),
        "batch": (REGRESSION, 8),
        "epochs": (CONTROL, 2),
        "minibatches": (CONTROL, 2),
        "learning_rate": (REGRESSION, 1e-2),
        "final_learning_rate": (REGRESSION, 1e-4),
        "weight_decay": (REGRESSION, 1e-2),
        "gradient_norm": (REGRESSION, 2.0),
        "gradient_element": (REGRESSION, 2.0),
        "beta": (REGRESSION, 1.0),
        "training_samples": (REGRESSION, 2),
        "acting_samples": (CONTROL, 3),
        "acting_policy": (CONTROL, "mixture"),
        "discount": (CONTROL, 0.5),
        "trace_decay": (CONTROL, 0.5),
        "clip": (CONTROL, 0.1),
        "policy_weight": (CONTROL, 0.5),
        "value_weight": (CONTROL, 0.5),
        "reward_weight": (CONTROL, 0.5, {"reward_model": True}),
        "entropy_weight": (CONTROL, 0.2),
        "final_entropy_weight": (CONTROL, 0.01),
    },
}
# Other ways in which a key shows, where one is not enough to tell.
MORE_CHANGES = {
    "kind-point": ("kind", REGRESSION, "point"),
    "covariance-variational": ("covariance", REGRESSION, "dense", {"kind": "variational"}),
    "prior_stddev-variational": ("prior_stddev", REGRESSION, 2.0, {"kind": "variational"}),
    "prior_stddev-stationary": ("prior_stddev", REGRESSION, 2.0, STATIONARY),
    "window-all": ("window", REGRESSION, "all", STATIONARY),
    "cell-lstm": ("cell", REGRESSION, "lstm"),
    "policy_input-hidden": ("policy_input", CONTROL, "belief_and_hidden"),
    "beta-control": ("beta", CONTROL, 1.0),
    "training_samples-control": ("training_samples", CONTROL, 2),
    "updates-entropy": ("updates", CONTROL, 20, {"final_entropy_weight": 0.01}),
    "final_learning_rate-zero": ("final_learning_rate", REGRESSION, 0.0),
}
CASES = {
    **{key: (key, *case) for cases in CHANGES.values() for key, case in cases.items()},
    **MORE_CHANGES,
}


@pytest.mark.parametrize("kind", CHANGES, ids=lambda kind: kind.__name__)
def test_every_key_is_in_the_table(kind):
    assert set(CHANGES[kind]) == {field.name for field in dataclasses.fields(kind)}


def test_the_table_is_about_every_part_of_a_configuration():
    parts = {field.name for field in dataclasses.fields(rl.Config)} - {"task"}
    assert {type(getattr(CONTROL, part)) for part in parts} == set(CHANGES)


@pytest.mark.parametrize("name", CASES)
def test_key_changes_what_is_done(name):
    key, base, value, *others = CASES[name]
    base = changed(base, **(others[0] if others else {}))
    other = changed(base, **{key: value})
    assert other != base, "the table names the default"
    assert program(other) != program(base)


def test_updates_are_how_many_there_are():
    lengths = [
        {
            leaf.shape
            for leaf in jax.eval_shape(rl.make_train(changed(REGRESSION, updates=n)), KEY)[1].values()
        }
        for n in (2, 3)
    ]
    assert lengths == [{(2,)}, {(3,)}]


def test_the_same_configuration_is_the_same_program():
    """Or the tests here could not fail."""
    for config in (REGRESSION, CONTROL):
        assert program.__wrapped__(changed(config)) == program(config)


# What the documentation says has no effect

POINT = {"kind": "point"}
# The configuration, what else both have, and the keys that are changed, all at once.
WITHOUT_EFFECT = {
    "posterior of a point": (
        REGRESSION,
        POINT,
        {
            "covariance": "dense",
            "accumulate": "none",
            "window": 3,
            "forgetting": 0.5,
            "damping_precision": 2.0,
            "temperature": 2.0,
            "space": "state",
        },
    ),
    "belief of a point": (
        CONTROL,
        POINT,
        {"beta": 1.0, "training_samples": 5, "acting_samples": 5, "prior_stddev": 2.0},
    ),
    "damping, accumulated": (REGRESSION, {}, {"damping_precision": 2.0}),
    "forgetting, not accumulated": (REGRESSION, STATIONARY, {"forgetting": 0.5}),
    "curvature of a VRNN": (
        REGRESSION,
        {"kind": "variational"},
        {
            "accumulate": "none",
            "window": 3,
            "forgetting": 0.5,
            "damping_precision": 2.0,
            "temperature": 2.0,
            "space": "state",
        },
    ),
    "control in a regression": (
        REGRESSION,
        {},
        {
            "epochs": 2,
            "minibatches": 2,
            "acting_samples": 2,
            "acting_policy": "mixture",
            "discount": 0.5,
            "trace_decay": 0.5,
            "clip": 0.1,
            "policy_weight": 0.5,
            "value_weight": 0.5,
            "reward_weight": 0.5,
            "entropy_weight": 0.5,
            "final_entropy_weight": 0.1,
            "policy_input": "belief",
            "reward_model": True,
        },
    ),
    "reward weight without a reward model": (CONTROL, {}, {"reward_weight": 2.0}),
    "updates without a schedule": (CONTROL, {}, {"updates": 20}),
    "policy input that the task has anyway": (CONTROL, {}, {"policy_input": "belief_and_observation"}),
}


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_key_has_no_effect_where_it_says_so(name):
    base, others, keys = WITHOUT_EFFECT[name]
    base = changed(base, **others)
    for key, value in keys.items():
        assert changed(base, **{key: value}) != base, f"the table names the default of {key}"
    assert program(changed(base, **keys)) == program(base)


# Tasks

TASK_CHANGES = {
    "regression": {"terms": 2, "period": 3.0, "noise_stddev": 0.1, "inputs": "strips"},
    "bandit": {"arms": 3, "train_alpha": 0.5, "test_alpha": 0.5},
    "gridworld": {"size": 4, "start": "corner", "episode_length": 7},
    "beta_bandit": {"arms": 3, "successes": 2.0, "failures": 2.0},
    "two_arm_bandit": {"alpha": 2.0},
    "coin": {"hazard": 0.1, "heads": 2.0, "tails": 2.0},
}


def test_every_key_of_every_task_is_in_the_table():
    fields = {name: {field.name for field in dataclasses.fields(task)} for name, task in TASKS.items()}
    assert {name: set(keys) for name, keys in TASK_CHANGES.items()} == fields


@pytest.mark.parametrize(
    ("name", "key"), [(name, key) for name, keys in TASK_CHANGES.items() for key in keys]
)
def test_key_changes_the_task(name, key):
    base = rl.make_task(name)
    other = rl.make_task(name, **{key: TASK_CHANGES[name][key]})
    assert other != base, "the table names the default"
    assert task_program(other) != task_program(base)


# Values that make no sense

BAD = {
    rl.AgentConfig: {
        "cell": "rnn",
        "hidden_size": 0,
        "features": 0,
        "embedding_sizes": (4, 0),
        "head_sizes": (),
        "policy_input": "observation",
    },
    rl.PosteriorConfig: {
        "kind": "laplacian",
        "covariance": "full",
        "accumulate": "mean",
        "window": 0,
        "forgetting": 0.0,
        "prior_stddev": 0.0,
        "damping_precision": -1.0,
        "temperature": 0.0,
        "space": "weights",
    },
    rl.LearningConfig: {
        "updates": -1,
        "steps": 0,
        "batch": 0,
        "epochs": 0,
        "minibatches": 7,
        "learning_rate": 0.0,
        "final_learning_rate": -1e-3,
        "weight_decay": -1e-6,
        "gradient_norm": 0.0,
        "gradient_element": 0.0,
        "beta": -1.0,
        "training_samples": 0,
        "acting_samples": 0,
        "acting_policy": "both",
        "discount": 1.1,
        "trace_decay": -0.1,
        "clip": 0.0,
        "policy_weight": -1.0,
        "value_weight": -1.0,
        "reward_weight": -1.0,
        "entropy_weight": -1.0,
        "final_entropy_weight": -1.0,
    },
    rl.Regression: {"terms": 0, "period": 0.0, "noise_stddev": -0.1, "inputs": "edges"},
    rl.DirichletBandit: {"arms": 0, "train_alpha": 0.0, "test_alpha": 0.0},
    rl.Gridworld: {"size": 1, "start": "middle", "episode_length": 0},
    rl.BetaBandit: {"arms": 0, "successes": 0.0, "failures": 0.0},
    rl.TwoArmBandit: {"alpha": 0.0},
    rl.PiecewiseCoin: {"hazard": 1.5, "heads": 0.0, "tails": 0.0},
}
YES_OR_NO = {rl.AgentConfig: {"layer_norm", "reward_model"}}
"""Keys without a bad value."""
CALLED = {"kind": "posterior"}
"""Keys with another name on the command line, where it is read."""


@pytest.mark.parametrize("kind", BAD, ids=lambda kind: kind.__name__)
def test_every_key_has_a_bad_value_or_none(kind):
    fields = {field.name for field in dataclasses.fields(kind)}
    assert set(BAD[kind]) == fields - YES_OR_NO.get(kind, set())
    kind().check()


@pytest.mark.parametrize(
    ("kind", "key"),
    [(kind, key) for kind, keys in BAD.items() for key in keys],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_bad_value_is_refused_by_name(kind, key):
    config = dataclasses.replace(kind(), **{key: BAD[kind][key]})
    with pytest.raises(ValueError, match=rf"^{CALLED.get(key, key)} must .*; got .*\.$") as refused:
        config.check()
    shown = BAD[kind][key]
    if isinstance(shown, tuple):
        shown = shown[-1] if shown else "none"
    assert str(shown) in str(refused.value).split("; got ")[1]


NUMBERS = [
    (kind, field.name) for kind in BAD for field in dataclasses.fields(kind) if "float" in str(field.type)
]


@pytest.mark.parametrize(
    ("kind", "key"), NUMBERS, ids=lambda value: value if isinstance(value, str) else value.__name__
)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "1"], ids=repr)
def test_what_is_no_finite_number_is_refused(kind, key, value):
    with pytest.raises(ValueError, match=f"^{key} must be a number in .*; got {value!r}"):
        dataclasses.replace(kind(), **{key: value}).check()


def test_a_bad_part_is_found_in_the_whole():
    for part, bad in (
        ("task", rl.Gridworld(size=1)),
        ("agent", rl.AgentConfig(features=0)),
        ("posterior", rl.PosteriorConfig(window=0)),
        ("learning", rl.LearningConfig(steps=0)),
    ):
        with pytest.raises(ValueError, match="must be"):
            dataclasses.replace(CONTROL, **{part: bad}).check()
    CONTROL.check()
