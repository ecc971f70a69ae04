"""Networks: against NumPy and Equinox; which weights there are, which are shared, and what sees what."""

import dataclasses
import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from support.models import randomized
from support.networks import embed_by_hand, head_by_hand, leaky, mlp_by_hand, norm_by_hand
from support.registry import assert_close

import recurrent_laplace as rl
from recurrent_laplace.cells import GRU, LSTM, Elman
from recurrent_laplace.models import (
    Agent,
    AgentConfig,
    LaplaceConfig,
    PointConfig,
    Regressor,
    VariationalConfig,
    with_posterior,
)
from recurrent_laplace.models.agent import POLICY_GAIN
from recurrent_laplace.models.layers import EPSILON, MLP, Embedder, Head, LayerNorm
from recurrent_laplace.models.posterior import make_memory
from recurrent_laplace.models.regressor import LEAST_STDDEV, Prediction
from recurrent_laplace.posterior import LaplacePosterior, PointPosterior, VariationalPosterior

KEY = jax.random.key(0)
O, A, E, H, F = 3, 5, 6, 8, 4  # noqa: E741 - the sizes of observation, actions, embedding, state, belief
SMALL = AgentConfig(hidden_size=H, features=F, embedding_sizes=(7, E), head_sizes=(9,))
POSTERIORS = {
    "point": PointConfig(),
    "variational-diagonal": VariationalConfig(),
    "variational-dense": VariationalConfig(covariance="dense"),
    "laplace-diagonal": LaplaceConfig(),
    "laplace-dense": LaplaceConfig(covariance="dense", window=2),
}
COVARIANCE_HEADS = ("log_eigenvalue_head", "rotation_head")

each_posterior = pytest.mark.parametrize("name", POSTERIORS)
each_model = pytest.mark.parametrize("build", ["agent", "regressor"])


@functools.cache
def agent_of(posterior="point", policy_input="belief_and_observation", config=SMALL, key=0):
    return Agent.init(
        config,
        POSTERIORS[posterior],
        observation_size=O,
        actions=A,
        policy_input=policy_input,
        key=jax.random.key(key),
    )


@functools.cache
def model_of(build, posterior="point"):
    return agent_of(posterior) if build == "agent" else Regressor.init(SMALL, POSTERIORS[posterior], key=KEY)


@functools.cache
def loud(policy_input="belief_and_observation"):
    """An agent all of whose weights are random, norms and biases too, and whose policy is not uniform."""
    return randomized(jax.eval_shape(lambda: agent_of.__wrapped__(policy_input=policy_input)))


def numbers(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def weights(model):
    """Parameters by the path that leads to them."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(model)}


def network_of(named):
    """All weights but those of a covariance head."""
    return {path: leaf for path, leaf in named.items() if not any(head in path for head in COVARIANCE_HEADS)}


def assert_same_bits(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


# Layers


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)], ids=str)
def test_layer_norm_is_numpys_and_equinoxs(lead):
    x, size = numbers(*lead, E), E
    ours = LayerNorm(numbers(size, seed=1), numbers(size, seed=2))
    theirs = eqx.tree_at(
        lambda norm: (norm.weight, norm.bias), eqx.nn.LayerNorm(size, eps=EPSILON), (ours.weight, ours.bias)
    )
    for _ in lead:
        theirs = jax.vmap(theirs)
    got, expected = jax.jit(lambda: (ours(x), theirs(x)))()
    assert_close(got, norm_by_hand(ours, np.asarray(x)))
    assert_close(got, expected)


def test_layer_norm_survives_a_constant():
    norm, flat = LayerNorm.init(E), jnp.full(E, 3.0)
    value, slope = jax.jit(jax.value_and_grad(lambda x: jnp.sum(norm(x) ** 2)))(flat)
    assert value == 0
    assert np.all(np.isfinite(slope))


def test_layers_are_the_formulas():
    embedder, head = loud().observation_embedder, loud().policy_head
    x, z, context = numbers(2, 3, O), numbers(4, 2, 3, F), numbers(2, 3, E, seed=1)
    both = np.concatenate([z, np.broadcast_to(context, (4, *context.shape))], axis=-1)
    bare_embedder, bare_head = Embedder(embedder.mlp, None), Head(None, head.mlp)
    got = jax.jit(
        lambda: (
            embedder(x),
            head(z, context),
            bare_embedder(x),
            bare_head(z, context),
            head(jnp.asarray(both)),
        )
    )()
    assert_close(got[0], embed_by_hand(embedder, np.asarray(x)))
    assert_close(got[1], head_by_hand(head, both))
    assert_close(got[2], leaky(mlp_by_hand(embedder.mlp, np.asarray(x))))
    assert_close(got[3], mlp_by_hand(head.mlp, both))
    assert_close(got[4], got[1])


@pytest.mark.parametrize("last_gain", [1.0, 0.01])
def test_first_weights_keep_the_variance(last_gain):
    """Variances of weights are 1/inputs, the last layer's times the gain squared; to five standard errors."""
    sizes = (40, 80, 60)
    mlp = MLP.init(sizes, last_gain=last_gain, key=KEY)
    for inputs, layer, gain in zip(sizes, mlp.layers, (1.0, last_gain), strict=False):
        standard = np.asarray(layer.weight) / gain * np.sqrt(inputs)
        assert abs(np.mean(standard**2) - 1) < 5 * np.sqrt(2 / standard.size)
        assert abs(np.mean(standard)) < 5 / np.sqrt(standard.size)
        assert not np.any(layer.bias)


def test_first_policy_is_close_to_uniform_and_the_first_value_is_not_silent():
    agent = agent_of()
    behaviour = jax.jit(lambda: agent.behave(numbers(1, 100, F), numbers(100, E, seed=1)))()
    assert np.max(np.abs(behaviour.logits)) < 10 * POLICY_GAIN
    assert np.std(behaviour.value) > 0.1


# Agents


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("wide", [True, False], ids=["float64", "float32"])
def test_shapes_and_dtypes(lead, wide):
    def run(key):
        agent = Agent.init(
            SMALL, PointConfig(), observation_size=O, actions=A, policy_input="belief_and_hidden", key=key
        )
        x, embedded = agent.embed(jnp.ones((*lead, O)), jnp.zeros(lead, int), jnp.ones(lead))
        behaviour = agent.behave(jnp.ones((6, *lead, F)), agent.head_context(embedded, jnp.ones((*lead, H))))
        return agent, x, embedded, behaviour, behaviour.entropy(), behaviour.log_prob(jnp.zeros(lead, int))

    with jax.enable_x64(wide):
        agent, *results = jax.eval_shape(run, jax.random.key(0))
    behaviour = results.pop(2)
    shapes = [leaf.shape for leaf in (*results, behaviour.logits, behaviour.value)]
    assert shapes == [(*lead, 3 * E), (*lead, E), lead, lead, (*lead, A), lead]
    dtype = jnp.float64 if wide else jnp.float32
    assert {leaf.dtype for leaf in jax.tree.leaves((agent, results, behaviour))} == {jnp.dtype(dtype)}


@pytest.mark.parametrize("wide", [True, False], ids=["float64", "float32"])
def test_shapes_and_dtypes_of_a_regressor(wide):
    def run(key):
        model = Regressor.init(SMALL, PointConfig(), input_size=2, output_size=3, key=key)
        inputs = model.embed(jnp.ones((5, 4, 2)), jnp.ones((5, 4, 3)))
        prediction = model.predict(jnp.ones((6, 5, 4, F)), jnp.ones((5, 4, 2)))
        return model, inputs, prediction, prediction.log_prob(jnp.ones((5, 4, 3)))

    with jax.enable_x64(wide):
        model, inputs, prediction, log_prob = jax.eval_shape(run, jax.random.key(0))
    assert inputs.shape == (5, 4, 2 * E)
    assert prediction.mean.shape == prediction.variance.shape == (5, 4, 3)
    assert log_prob.shape == (5, 4)
    dtype = jnp.float64 if wide else jnp.float32
    leaves = jax.tree.leaves((model, inputs, prediction, log_prob))
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype(dtype)}


def test_input_of_the_memory_is_three_embeddings_side_by_side():
    agent, observation, reward = loud(), numbers(4, O), numbers(4, seed=1)
    action = jnp.array([0, 4, 2, -1])
    x, embedded = jax.jit(lambda: agent.embed(observation, action, reward))()
    one_hot = np.zeros((4, A))
    one_hot[[0, 1, 2], [0, 4, 2]] = 1  # the last has no previous action: all zeros
    parts = (
        embed_by_hand(agent.observation_embedder, np.asarray(observation)),
        embed_by_hand(agent.action_embedder, one_hot),
        embed_by_hand(agent.reward_embedder, np.asarray(reward)[:, None]),
    )
    assert_close(x, np.concatenate(parts, axis=-1))
    assert_close(embedded, parts[0])


@pytest.mark.parametrize("policy", ["average", "mixture"])
def test_behaviour_is_averaged_over_draws_as_in_numpy(policy):
    agent, z, context = loud(), numbers(5, 2, 3, F), numbers(2, 3, E, seed=1)
    got = jax.jit(lambda: agent.behave(z, context, policy=policy))()
    logits = head_by_hand(agent.policy_head, z, context)
    if policy == "mixture":
        exps = np.exp(logits)
        expected = np.mean(exps / exps.sum(axis=-1, keepdims=True), axis=0)
        assert_close(np.exp(got.logits), expected)
    else:
        assert_close(got.logits, logits.mean(axis=0))
    assert_close(got.value, head_by_hand(agent.value_head, z, context)[..., 0].mean(axis=0))


def test_the_two_ways_to_average_differ_but_for_one_draw():
    agent, z, context = loud(), numbers(5, F), numbers(E, seed=1)

    def distance(z):
        policies = ("average", "mixture")
        average, mixture = (agent.behave(z, context, policy=policy).logits for policy in policies)
        return jnp.max(jnp.abs(jax.nn.softmax(average) - jnp.exp(mixture)))

    many, one = jax.jit(lambda: (distance(z), distance(z[:1])))()
    assert many > 0.01
    assert_close(one, 0.0)


# What the heads see

SEES = {
    "belief": (True, False, False),
    "belief_and_observation": (True, True, False),
    "belief_and_hidden": (True, False, True),
}


@pytest.mark.parametrize("policy_input", SEES)
def test_policy_input_decides_what_the_heads_see(policy_input):
    agent = loud(policy_input)

    def outputs(z, embedded, hidden):
        behaviour = agent.behave(z[None], agent.head_context(embedded, hidden))
        return jnp.append(behaviour.logits, behaviour.value)

    slopes = jax.jit(jax.jacrev(outputs, (0, 1, 2)))(numbers(F), numbers(E, seed=1), numbers(H, seed=2))
    assert tuple(bool(np.all(np.any(slope != 0, axis=-1))) for slope in slopes) == SEES[policy_input]
    assert tuple(bool(np.any(slope != 0)) for slope in slopes) == SEES[policy_input]
    extra = {"belief": 0, "belief_and_observation": E, "belief_and_hidden": H}[policy_input]
    for head in (agent.policy_head, agent.value_head):
        assert head.mlp.layers[0].weight.shape[-1] == F + extra
        assert head.norm.weight.shape == (F + extra,)


def test_policy_input_of_the_configuration_goes_before_that_of_the_task():
    config = dataclasses.replace(SMALL, policy_input="belief_and_hidden")
    own = jax.eval_shape(lambda: agent_of.__wrapped__(policy_input="belief", config=config))
    assert own.policy_input == "belief_and_hidden"
    assert own.policy_head.norm.weight.shape == (F + H,)


# Which weights there are


@each_model
def test_point_and_laplace_have_the_same_parameters_and_a_vrnn_its_covariance_head_too(build):
    named = {name: weights(model_of(build, name)) for name in POSTERIORS}
    shapes = {name: {path: leaf.shape for path, leaf in of.items()} for name, of in named.items()}
    for name in ("laplace-diagonal", "laplace-dense"):
        assert shapes[name] == shapes["point"]
    for name, heads in (("variational-diagonal", 1), ("variational-dense", 2)):
        own = shapes[name].keys() - shapes["point"].keys()
        expected = {
            f".posterior.{head}.{leaf}" for head in COVARIANCE_HEADS[:heads] for leaf in ("weight", "bias")
        }
        assert own == expected
        assert network_of(shapes[name]) == shapes["point"]
    # The same key makes the same network, whatever the posterior.
    for of in named.values():
        assert_same_bits(network_of(of), named["point"])


@each_posterior
@each_model
def test_with_posterior_keeps_every_weight_bit_for_bit(build, name):
    model, key = model_of(build, name), jax.random.key(7)
    memory = model.posterior.memory
    for other, config in POSTERIORS.items():
        if "variational" in name and "variational" in other and name != other:
            continue  # refused, see below
        under = with_posterior(model, config, key=key)
        expected = model_of(build, other)
        assert jax.tree.structure(under) == jax.tree.structure(expected)
        kept, found = weights(model), weights(under)
        assert found.keys() == weights(expected).keys()
        shared = kept.keys() & found.keys()
        assert shared == kept.keys() if "variational" in other else shared == network_of(kept).keys()
        for path in shared:
            np.testing.assert_array_equal(found[path], kept[path])
        fresh = VariationalPosterior(memory, covariance=config.family or "diagonal", key=key)
        for path in found.keys() - kept:
            np.testing.assert_array_equal(found[path], weights(fresh)[path.removeprefix(".posterior")])


def test_with_posterior_changes_the_settings_of_a_vrnn_and_keeps_what_it_learned():
    agent = agent_of("variational-dense")
    config = VariationalConfig(covariance="dense", prior_stddev=3.0)
    under = with_posterior(agent, config, key=jax.random.key(7))
    assert under.posterior.prior_stddev == 3.0
    assert_same_bits(weights(under), weights(agent))


@pytest.mark.parametrize(("has", "wants"), [("diagonal", "dense"), ("dense", "diagonal")])
def test_with_posterior_refuses_another_kind_of_covariance_head(has, wants):
    """What was learned would be lost without a word."""
    message = (
        f"VRNN, {wants} does not fit the weights: the model's posterior was trained with another "
        "rotation_head.bias, rotation_head.weight. Keep the options that decide their shapes."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        with_posterior(agent_of(f"variational-{has}"), POSTERIORS[f"variational-{wants}"], key=KEY)


class OwnPosterior(rl.AbstractPosterior):
    """A posterior from outside of the package, with learned weights of its own."""

    memory: rl.Memory
    scale: jax.Array
    offset: float = eqx.field(static=True)
    prior = init = compute_step = compute = cost = lambda self, *args: None


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnConfig(rl.AbstractPosteriorConfig):
    kind, label = "own", "own"
    size: int = 3
    offset: float = 0.0

    def build(self, memory, *, key):
        return OwnPosterior(memory, jax.random.normal(key, (self.size,)), self.offset)


def test_with_posterior_keeps_what_a_posterior_of_somebody_else_has_learned():
    agent = with_posterior(agent_of("point"), OwnConfig(), key=KEY)
    under = with_posterior(agent, OwnConfig(offset=2.0), key=jax.random.key(7))
    assert under.posterior.offset == 2.0
    assert_same_bits(weights(under), weights(agent))
    with pytest.raises(ValueError, match=r"^own does not fit the weights: .* another scale\. Keep the opt"):
        with_posterior(agent, OwnConfig(size=4), key=KEY)


def test_there_and_back_again():
    """What a fine-tune and a post-hoc evaluation stand on."""
    agent = agent_of("point")
    away = with_posterior(agent, POSTERIORS["variational-dense"], key=KEY)
    assert_same_bits(with_posterior(away, POSTERIORS["point"], key=KEY), agent)


def test_posterior_has_all_that_was_configured():
    memory = agent_of().posterior.memory
    assert type(PointConfig().build(memory, key=KEY)) is PointPosterior
    options = {"accumulate": "none", "forgetting": 0.5, "prior_stddev": 2.0, "damping_precision": 0.25}
    options |= {"temperature": 3.0, "space": "state"}
    config = LaplaceConfig(covariance="dense", window="all", **options)
    laplace = config.build(memory, key=KEY)
    assert type(laplace) is LaplacePosterior
    expected = {"memory": memory, "covariance": "dense", "window": None, **options}
    assert all(getattr(laplace, field) is value or getattr(laplace, field) == value
               for field, value in expected.items())  # fmt: skip
    assert vars(laplace).keys() == expected.keys()
    assert LaplaceConfig(window=3).build(memory, key=KEY).window == 3
    config = VariationalConfig(covariance="dense", prior_stddev=2.0)
    variational = config.build(memory, key=KEY)
    assert (variational.covariance, variational.prior_stddev) == ("dense", 2.0)
    assert variational.rotation_head is not None


@pytest.mark.parametrize(("cell", "kind"), [("lstm", LSTM), ("gru", GRU), ("elman", Elman)])
def test_memory_is_of_the_configured_cell_and_sizes(cell, kind):
    config = AgentConfig(cell=cell, hidden_size=H, features=F)
    memory = jax.eval_shape(lambda: make_memory(config, 3, key=KEY))
    assert type(memory.cell) is kind
    assert (memory.cell.input_size, memory.cell.hidden_size, memory.feature_size) == (3, H, F)


def test_layer_norms_are_an_option():
    with_norms = weights(agent_of())
    without = weights(agent_of(config=dataclasses.replace(SMALL, layer_norm=False)))
    norms = {path for path in with_norms if ".norm." in path}
    places = ("observation_embedder", "action_embedder", "reward_embedder", "policy_head", "value_head")
    assert norms == {f".{place}.norm.{leaf}" for place in places for leaf in ("weight", "bias")}
    assert without.keys() == with_norms.keys() - norms
    for path, leaf in without.items():
        np.testing.assert_array_equal(leaf, with_norms[path])


def test_reward_model_is_one_more_head():
    plain = weights(agent_of())
    config = dataclasses.replace(SMALL, reward_model=True)
    assert agent_of().reward_head is None
    more = weights(agent_of(config=config))
    own = {path: more.pop(path) for path in more.keys() - plain.keys()}
    assert own.keys() == {path.replace("policy_head", "reward_head") for path in plain if "policy" in path}
    assert own[".reward_head.mlp.layers[1].weight"].shape == (A, 9)
    assert_same_bits(more, plain)


TARGETS = {"observation": rl.CategoricalLikelihood(3), "reward": rl.BernoulliLikelihood(1)}


def predicting(**options):
    config = dataclasses.replace(SMALL, predict=("observation", "reward"), **options)
    return rl.Agent.init(
        config,
        rl.PointConfig(),
        observation_size=3,
        actions=A,
        policy_input="belief",
        targets=TARGETS,
        key=jax.random.key(0),
    )


def test_predictive_head_has_the_outputs_of_each_action():
    agent = predicting()
    assert agent.predictor.likelihood.names == ("reward", "observation")
    observation, previous_action = jnp.eye(3), jnp.array([-1, 2, 0])
    queries = agent.queries(observation, previous_action)
    assert np.isnan(queries[0]).all()
    z = jnp.ones(SMALL.features)
    embedded = agent.observation_embedder(observation)
    outputs = agent.predictor.head(z, embedded[0]).reshape(A, 4)
    np.testing.assert_allclose(agent.predictor(z, queries[1]), outputs[2], rtol=1e-12)
    posterior = rl.LikelihoodPosterior(agent.posterior.memory, agent.predictor)
    inputs, _ = agent.embed(observation, previous_action, jnp.zeros(3))
    entropy = posterior.unroll(inputs, queries=queries).entropy()
    assert entropy[0] == pytest.approx(posterior.prior().entropy())
    assert entropy[2] < entropy[1] < entropy[0]


def test_predictive_head_is_one_more_head():
    with_head, without = weights(predicting()), weights(dataclasses.replace(predicting(), predictor=None))
    own = with_head.keys() - without.keys()
    assert {path.split(".")[1] for path in own} == {"predictor"}
    config = dataclasses.replace(SMALL, predict=("reward",))
    with pytest.raises(ValueError, match=r"targets must be given to predict them, such as task.targets\(\)"):
        agent_of(config=config)
    with pytest.raises(ValueError, match="reward_model must be false if predict has the reward"):
        dataclasses.replace(config, reward_model=True).check()
    with pytest.raises(ValueError, match="predict must name each target once"):
        dataclasses.replace(config, predict=("reward", "reward")).check()
    with pytest.raises(ValueError, match="queries need a predictor, and this agent has none"):
        agent_of().queries(jnp.eye(3), jnp.array([-1, 2, 0]))


def test_every_weight_has_its_own_draw():
    """No key is used twice: matrices of one shape differ."""
    named = {
        path: leaf for path, leaf in weights(agent_of("variational-dense")).items() if path.endswith("weight")
    }
    drawn = {path: np.asarray(leaf).ravel()[:4] for path, leaf in named.items() if leaf.ndim == 2}
    # Divided by the first, so that a scale cannot hide a twin.
    directions = np.stack([numbers / numbers[0] for numbers in drawn.values()])
    distances = np.abs(directions[:, None] - directions[None]).max(axis=-1) + np.eye(len(drawn))
    assert distances.min() > 1e-6


# Regression


def test_predictor_of_a_regressor_is_its_prediction():
    model = rl.Regressor.init(SMALL, rl.PointConfig(), key=jax.random.key(0))
    z, x = jnp.ones((1, SMALL.features)), jnp.array([0.3])
    prediction = model.predict(z, x)
    belief = rl.PointBelief(z[0])
    predictive = model.predictor.predict(belief, x)
    np.testing.assert_allclose(predictive.mean(), prediction.mean, rtol=1e-12)
    np.testing.assert_allclose(predictive.variance(), prediction.variance, rtol=1e-12)
    y = jnp.array([0.7])
    np.testing.assert_allclose(predictive.log_prob(y), prediction.log_prob(y), rtol=1e-12)


def test_prediction_averages_means_and_has_one_variance():
    model = randomized(model_of("regressor"))
    z, x, y = numbers(5, 2, 3, F), numbers(2, 3, 1, seed=1), numbers(2, 3, 1, seed=2)
    prediction, embedded = jax.jit(lambda m: (m.predict(z, x), m.embed(x, y)))(model)
    context = embed_by_hand(model.input_embedder, np.asarray(x))
    assert_close(prediction.mean, head_by_hand(model.prediction_head, z, context).mean(axis=0))
    stddev = np.log1p(np.exp(np.asarray(model.raw_stddev))) + LEAST_STDDEV
    assert_close(prediction.variance, np.full((2, 3, 1), stddev**2))
    parts = (
        embed_by_hand(model.input_embedder, np.asarray(x)),
        embed_by_hand(model.output_embedder, np.asarray(y)),
    )
    assert_close(embedded, np.concatenate(parts, axis=-1))


def test_predictive_stddev_has_a_floor():
    model = eqx.tree_at(lambda m: m.raw_stddev, model_of("regressor"), jnp.full(1, -1e3))
    prediction = jax.jit(lambda: model.predict(numbers(1, F), numbers(1)))()
    assert_close(prediction.variance, np.full(1, LEAST_STDDEV**2))


def test_predictive_floor_is_added_to_the_softplus():
    """In the loss and on test functions alike: both take the variance of the model."""
    learning = rl.LearningConfig(predictive_floor=0.694)
    small = rl.AgentConfig(hidden_size=3, features=2, embedding_sizes=(2,), head_sizes=(2,))
    config = rl.Config(task=rl.Regression(), agent=small, learning=learning)
    model = config.objective.make_model(jax.random.key(0))
    for raw in (-1e3, 0.0, 2.0):
        moved = eqx.tree_at(lambda m: m.raw_stddev, model, jnp.full(1, raw))
        assert_close(moved.variance(), np.full(1, (np.logaddexp(0, raw) + 0.694) ** 2))
        assert_close(
            rl.with_posterior(moved, rl.LaplaceConfig(), key=jax.random.key(0)).variance(), moved.variance()
        )
    with pytest.raises(ValueError, match="predictive_floor must be"):
        rl.LearningConfig(predictive_floor=-1.0).check()


def test_log_prob_of_a_prediction_is_scipys():
    mean, y, stddev = numbers(4, 3), numbers(4, 3, seed=1), np.array([0.1, 1.0, 3.0])
    prediction = Prediction(mean, jnp.broadcast_to(stddev**2, mean.shape))
    assert_close(prediction.log_prob(y), scipy.stats.norm(mean, stddev).logpdf(y).sum(axis=-1))


# Checks; tests/runs/test_config_keys.py has the values that are refused


def test_what_makes_a_network_is_not_refused():
    for config in (AgentConfig(), SMALL, *POSTERIORS.values()):
        config.check()
    LaplaceConfig(accumulate="none", window="all").check()
