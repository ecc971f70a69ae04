"""Interface of posteriors: extension points, declared capabilities, deprecated names."""

import importlib.util
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from support.models import small_agent, small_config
from support.registry import assert_close

import recurrent_laplace as rl
from recurrent_laplace.learning.rollout import rollout

EXAMPLE = Path(__file__).parents[2] / "examples" / "add_a_posterior.py"
D, F, TEMPERATURE = 3, 4, 2.0
KEYS = jax.random.split(jax.random.key(0), 5)
MEMORY = rl.Memory(rl.GRU(D, 5, key=KEYS[0]), features=F, key=KEYS[1])
LONG = 70
"""More inputs than the initial capacity of a state with an unlimited window."""


def tempered(memory):
    """Posterior of the example, over a Laplace posterior with an unlimited window."""
    spec = importlib.util.spec_from_file_location("add_a_posterior", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    base = rl.LaplacePosterior(memory, covariance="diagonal", accumulate="none", window=None)
    return module.TemperedPosterior(base, temperature=TEMPERATURE)


def inputs_of(*lead):
    return jax.random.normal(KEYS[2], (*lead, D))


def test_example_updates_with_all_history():
    posterior, inputs = tempered(MEMORY), inputs_of(LONG)
    state = posterior.init()
    for x in inputs:
        state, belief = posterior.update(state, x)
    assert_close(belief, posterior.unroll(inputs)[-1])
    assert_close(belief.precision(), posterior.base.unroll(inputs)[-1].precision() / TEMPERATURE)


@pytest.mark.parametrize("streams", [None, 2])
def test_example_is_monitored_with_all_history(streams):
    posterior = tempered(MEMORY)
    inputs = inputs_of(LONG) if streams is None else inputs_of(LONG, streams)
    monitor = rl.Monitor(posterior, streams=streams)
    for x in inputs:
        reading = monitor.step(x)
    unroll = posterior.unroll if streams is None else jax.vmap(posterior.unroll, 1)
    expected = unroll(inputs).entropy()
    assert_close(reading.entropy, expected[..., -1])


def test_example_acts_with_all_history():
    task = rl.TwoArmBandit()
    agent = small_agent(task, rl.LaplaceConfig(), key=KEYS[3], config=small_config(4, 3, cell="gru"))
    agent = eqx.tree_at(lambda agent: agent.posterior, agent, tempered(agent.posterior.memory))

    @jax.jit
    def act(agent, key):
        problem = task.sample(key)
        options = {"steps": LONG, "samples": 1, "with_beliefs": True, "with_readings": True}
        experience, readings = rollout(agent, task, problem, key=key, **options)
        inputs, _ = agent.embed(
            experience.observation, experience.previous_action, experience.previous_reward
        )
        return readings.entropy, agent.posterior.unroll(inputs).entropy()

    assert_close(*act(agent, KEYS[4]))


# Capabilities


LAPLACE = rl.LaplacePosterior(MEMORY)
HISTORY = rl.LaplacePosterior(MEMORY, covariance="diagonal", accumulate="none", window=None)
VARIATIONAL = rl.VariationalPosterior(MEMORY, covariance="diagonal", key=KEYS[3])


def likelihood(**options):
    predictor = rl.Predictor(lambda z, x: z[:1] * x, rl.BernoulliLikelihood(1), context_size=1)
    return rl.LikelihoodPosterior(MEMORY, predictor, **options)


DECLARED = {
    "point": (rl.PointPosterior(MEMORY), {"has_density": False, "grows": False}),
    "variational": (VARIATIONAL, {"has_density": True, "grows": False}),
    "conjugate": (
        rl.ConjugatePosterior(MEMORY, key=KEYS[3]),
        {"has_density": True, "grows": False, "covariance_has_gradient": True},
    ),
    "laplace": (LAPLACE, {"has_density": True, "grows": False}),
    "all-history": (HISTORY, {"has_density": True, "grows": True}),
    "likelihood": (likelihood(), {"has_density": True, "grows": False, "query_size": 1}),
    "likelihood-history": (
        likelihood(accumulate="none", window=None),
        {"has_density": True, "grows": True, "query_size": 1, "covariance_has_gradient": False},
    ),
}


def queries_of(posterior, *lead):
    return None if posterior.query_size is None else jnp.ones((*lead, posterior.query_size))


@pytest.mark.parametrize("kind", DECLARED)
def test_declared_capabilities_hold(kind):
    posterior, declared = DECLARED[kind]
    assert {name: getattr(posterior, name) for name in declared} == declared
    belief = posterior.unroll(inputs_of(2), queries=queries_of(posterior, 2))
    assert isinstance(belief, rl.AbstractGaussian) == posterior.has_density
    shapes = [
        jax.tree.map(jnp.shape, jax.eval_shape(lambda room=room: posterior.init(room))) for room in (2, 5)
    ]
    assert (shapes[0] != shapes[1]) == posterior.grows
    assert posterior.capacity(posterior.init(capacity=5)) == (5 if posterior.grows else None)


def test_capacity_grows_if_one_of_many_streams_is_full():
    states = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), HISTORY.init(capacity=2))
    assert HISTORY.with_room(states) is states
    full = eqx.tree_at(lambda state: state.window.count, states, jnp.array([0, 2], jnp.int32))
    assert HISTORY.capacity(HISTORY.with_room(full)) == 4
    assert HISTORY.with_room(full).window.projected.shape[:2] == (2, 4)


# Results


@pytest.mark.parametrize("kind", DECLARED)
def test_steps_have_the_trace_of_a_sequence(kind):
    posterior, _ = DECLARED[kind]
    whole = posterior.infer(inputs_of(3), queries=queries_of(posterior, 3))
    step = lambda state, x: posterior.infer_step(state, x, query=queries_of(posterior))
    _, stacked = jax.lax.scan(step, posterior.init(), inputs_of(3))
    assert jax.tree.structure(stacked) == jax.tree.structure(whole)
    assert_close((stacked.belief, stacked.trace), (whole.belief, whole.trace))
    assert_close(whole.trace.hidden, jax.vmap(MEMORY.cell.hidden)(whole.trace.carries))


def test_deprecated_names_warn_what_to_use():
    inputs = inputs_of(3)
    whole, (state, step) = LAPLACE.infer(inputs), LAPLACE.infer_step(LAPLACE.init(), inputs[0])
    deprecated = {
        "update_info": ((LAPLACE.init(), inputs[0]), "infer_step", (state, step.belief, step.info)),
        "unroll_info": ((inputs,), "infer", (whole.belief, whole.info)),
        "unroll_trace": ((inputs,), "infer", (whole.trace, whole.belief, whole.info)),
        "unroll_again": ((inputs, whole.belief), "infer", (whole.trace, whole.belief, whole.info)),
        "carry": ((state,), "infer_step", state.carry),
    }
    for name, (arguments, use, expected) in deprecated.items():
        with pytest.warns(DeprecationWarning, match=rf"{name} is deprecated: use posterior\.{use}\("):
            actual = getattr(LAPLACE, name)(*arguments)
        assert eqx.tree_equal(actual, expected), name
