"""Every key of the configuration changes something; those that say they do not, do not; bad values are named.

Nothing is trained nor compiled: two configurations differ where the traced programs of an update differ,
after all that has no influence on the outcome was taken out of them.
"""

import dataclasses
import functools
import re
from unittest import mock

import jax
import numpy as np
import pytest
from jax.interpreters import partial_eval
from support.configurations import FIELDS, OTHER_VALUES
from support.objectives import Doubled

import recurrent_laplace as rl
from recurrent_laplace.learning.objectives.registry import OBJECTIVES
from recurrent_laplace.models.posterior_config import option_names, posterior_class

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
    """The initialisation, and one update, whose arguments have the shapes of the weights."""
    model, initialized = _model_of(*model_options(config))
    train = rl.make_train(config)
    return initialized, traced(train.update, jax.eval_shape(train.start_from, model, KEY))


def initialization(config):
    return _model_of(*model_options(config))[1]


def model_options(config):
    return config.task, config.agent, config.posterior, config.learning.predictive_floor


@functools.cache
def _model_of(task, agent, posterior, predictive_floor):
    learning = rl.LearningConfig(predictive_floor=predictive_floor)
    train = rl.make_train(rl.Config(task=task, agent=agent, posterior=posterior, learning=learning))
    return jax.eval_shape(train.make_model, KEY), traced(train.make_model, KEY)


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
LAPLACE = rl.LaplaceConfig()
REGRESSION = rl.Config(task=rl.Regression(), agent=SMALL, posterior=LAPLACE, learning=FEW)
CONTROL = rl.Config(task=rl.Gridworld(size=2), agent=SMALL, posterior=LAPLACE, learning=FEW)


def changed(base, **keys):
    """With other values: each key goes to the part of the configuration that has it."""
    parts = {}
    if "kind" in keys:
        kind, old = posterior_class(keys.pop("kind")), base.posterior.options()
        own = {key: value for key, value in old.items() if key in option_names(kind)}
        base = dataclasses.replace(base, posterior=kind(**own))
    for part in ("agent", "posterior", "learning"):
        old = getattr(base, part)
        own = {key: value for key, value in keys.items() if key in vars(old)}
        parts[part] = dataclasses.replace(old, **own)
        keys = {key: value for key, value in keys.items() if key not in own}
    assert not keys, keys
    return dataclasses.replace(base, **parts)


STATIONARY = {"accumulate": "none"}

CONTROL_ALONE = {
    "epochs",
    "minibatches",
    "acting_samples",
    "acting_policy",
    "discount",
    "trace_decay",
    "clip",
}
CONTROL_ALONE |= {"policy_weight", "value_weight", "reward_weight", "entropy_weight", "final_entropy_weight"}
CONTROL_ALONE |= {"policy_input", "reward_model", "predict", "observation_weight"}
"""Keys without a meaning in a regression."""
# Where the other value is that of `SMALL`, or of the objective that there is anyway.
INSTEAD = {"layer_norm": True, "objective": "doubled"}
# What else both configurations have.
OTHERS = {
    "damping_precision": STATIONARY,
    "updates": {"final_learning_rate": 1e-4},
    "lookup": {"embedding_sizes": (8,)},
    "reward_weight": {"reward_model": True},
    "observation_weight": {"predict": ("observation",)},
}


def case(key, value):
    """Key, configuration that it is changed in, new value, and what else both have."""
    base = CONTROL if key in CONTROL_ALONE | {"objective", "lookup"} else REGRESSION
    return key, base, INSTEAD.get(key, value), OTHERS.get(key, {})


# Other ways in which a key shows, where one is not enough to tell.
MORE_CHANGES = {
    "kind-point": ("kind", REGRESSION, "point"),
    "kind-variational": ("kind", REGRESSION, "variational"),
    "covariance-variational": ("covariance", REGRESSION, "dense", {"kind": "variational"}),
    "prior_stddev-variational": ("prior_stddev", REGRESSION, 2.0, {"kind": "variational"}),
    "prior_stddev-stationary": ("prior_stddev", REGRESSION, 2.0, STATIONARY),
    "window-all": ("window", REGRESSION, "all", STATIONARY),
    "cell-lstm": ("cell", REGRESSION, "lstm"),
    "policy_input-belief": ("policy_input", CONTROL, "belief"),
    "beta-control": ("beta", CONTROL, 1.0),
    "training_samples-control": ("training_samples", CONTROL, 2),
    "training_samples-mean": ("training_samples", CONTROL, 0),
    "acting_samples-mean": ("acting_samples", CONTROL, 0),
    "kl_fraction-control": ("kl_fraction", CONTROL, 0.5),
    "updates-entropy": ("updates", CONTROL, 20, {"final_entropy_weight": 0.01}),
    "final_learning_rate-above-zero": ("final_learning_rate", REGRESSION, 1e-4),
}
KINDS = (rl.AgentConfig, rl.LaplaceConfig, rl.LearningConfig)
CASES = {key: case(key, value) for kind in KINDS for key, value in OTHER_VALUES[kind].items()} | MORE_CHANGES


def test_the_table_is_about_every_part_of_a_configuration():
    parts = {field.name for field in dataclasses.fields(rl.Config)} - {"task"}
    assert {type(getattr(CONTROL, part)) for part in parts} == set(KINDS)


@pytest.mark.parametrize("name", CASES)
def test_key_changes_what_is_done(name):
    key, base, value, *others = CASES[name]
    base = changed(base, **(others[0] if others else {}))
    other = changed(base, **{key: value})
    assert other != base, "the table names the default"
    with mock.patch.dict(OBJECTIVES, doubled=Doubled):
        # The initialisation is traced in a tenth of the time that an update takes.
        assert initialization(other) != initialization(base) or program(other) != program(base)


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
    "belief of a point": (
        CONTROL,
        POINT,
        {"beta": 1.0, "training_samples": 5, "acting_samples": 5, "kl_fraction": 0.5},
    ),
    "fraction of a KL with a gradient": (CONTROL, {"kind": "variational"}, {"kl_fraction": 0.5}),
    "damping, accumulated": (REGRESSION, {}, {"damping_precision": 2.0}),
    "forgetting, not accumulated": (REGRESSION, STATIONARY, {"forgetting": 0.5}),
    "control in a regression": (
        REGRESSION,
        {},
        {
            key: value
            for values in OTHER_VALUES.values()
            for key, value in values.items()
            if key in CONTROL_ALONE
        },
    ),
    "predictive floor in control": (CONTROL, {}, {"predictive_floor": 0.5}),
    "weights of targets that are not predicted": (
        CONTROL,
        {},
        {"reward_weight": 2.0, "observation_weight": 2.0},
    ),
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


@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind, key in FIELDS if kind not in KINDS])
def test_key_changes_the_task(kind, key):
    base, other = kind(), kind(**{key: OTHER_VALUES[kind][key]})
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
        "initialization": "zeros",
        "predict": ("rewards",),
    },
    rl.VariationalConfig: {"covariance": "full", "prior_stddev": 0.0},
    rl.LaplaceConfig: {
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
        "training_samples": -1,
        "kl_fraction": 0.0,
        "predictive_floor": -1.0,
        "acting_samples": -1,
        "acting_policy": "both",
        "discount": 1.1,
        "trace_decay": -0.1,
        "clip": 0.0,
        "policy_weight": -1.0,
        "value_weight": -1.0,
        "reward_weight": -1.0,
        "observation_weight": -1.0,
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
YES_OR_NO = {rl.AgentConfig: {"layer_norm", "reward_model"}, rl.LearningConfig: {"lookup", "objective"}}
"""Keys without a bad value, or with one that only a whole configuration can refuse."""


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
    with pytest.raises(ValueError, match=rf"^{key} must .*; got .*\.$") as refused:
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
        ("posterior", rl.LaplaceConfig(window=0)),
        ("learning", rl.LearningConfig(steps=0)),
    ):
        with pytest.raises(ValueError, match="must be"):
            dataclasses.replace(CONTROL, **{part: bad}).check()
    CONTROL.check()
