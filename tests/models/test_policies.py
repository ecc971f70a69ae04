"""Distributions of actions against SciPy; action spaces; agents with continuous actions, saved and loaded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import recurrent_laplace as rl
from recurrent_laplace.models.policies import LOG_STDDEVS, CategoricalFamily, GaussianNoise

KEY = jax.random.key(0)
BOX = rl.Box(low=(-2.0, 0.0), high=(2.0, 1.0))
SCALE, CENTER = np.array([2.0, 0.5]), np.array([0.0, 0.5])
MEAN, LOG_STDDEV = jnp.array([0.3, -0.2]), jnp.array([-0.4, 0.1])
SMALL = {"cell": "elman", "hidden_size": 4, "features": 3, "embedding_sizes": (4,), "head_sizes": (4,)}


def family(box=BOX, **options):
    return box.family(rl.AgentConfig(**options))


def squashed(box=BOX):
    return family(box, action_distribution="tanh_gaussian")


def test_log_density_and_entropy_of_a_gaussian_are_those_of_the_action():
    policy, action = rl.GaussianPolicy(MEAN, LOG_STDDEV, family()), np.array([0.7, 0.9])
    marginals = norm(CENTER + SCALE * MEAN, SCALE * np.exp(LOG_STDDEV))
    choice = policy.family.choice(jnp.asarray(action))
    np.testing.assert_allclose(policy.log_prob(choice), marginals.logpdf(action).sum(), rtol=1e-10)
    np.testing.assert_allclose(policy.entropy(), marginals.entropy().sum(), rtol=1e-10)
    np.testing.assert_allclose(policy.family.action(choice), action, rtol=1e-10)


def test_squashed_density_integrates_to_one_and_has_the_entropy_of_its_integral():
    box = rl.Box(low=(-2.0,), high=(1.0,))
    policy = rl.GaussianPolicy(MEAN[:1], LOG_STDDEV[:1], squashed(box))

    def log_density(action):
        return float(policy.log_prob(policy.family.choice(jnp.array([action]))))

    total, _ = quad(lambda a: np.exp(log_density(a)), -2, 1, epsabs=1e-9)
    assert total == pytest.approx(1, abs=1e-8)
    entropy, _ = quad(lambda a: -np.exp(log_density(a)) * log_density(a), -2, 1, epsabs=1e-9)
    # The quadrature's error: 64 nodes.
    np.testing.assert_allclose(policy.entropy(), entropy, atol=1e-5)


def test_squashed_log_density_is_finite_where_tanh_has_saturated():
    policy = rl.GaussianPolicy(MEAN, LOG_STDDEV, squashed())
    far = jnp.array([40.0, -40.0])
    gradient = jax.grad(lambda choice: policy.log_prob(choice))(far)
    assert np.isfinite(policy.log_prob(far))
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(policy.family.action(far), [2.0, 0.0])


def test_unbounded_and_clipped_actions():
    gaussian = family(rl.Box(low=(-np.inf,), high=(np.inf,)))
    np.testing.assert_array_equal(gaussian.action(jnp.array([50.0])), [50.0])
    np.testing.assert_array_equal(family().action(jnp.array([50.0, -50.0])), [2.0, 0.0])


def test_kl_parts_add_up_where_one_of_them_is_all():
    one = rl.GaussianPolicy(MEAN, LOG_STDDEV, family())
    belief = rl.DiagonalGaussian(MEAN, jnp.exp(-2 * LOG_STDDEV))
    other_mean, other_stddev = MEAN + 0.5, LOG_STDDEV - 0.3
    means = one.kl_parts(rl.GaussianPolicy(other_mean, LOG_STDDEV, family()))
    np.testing.assert_allclose(means[0], belief.kl(rl.DiagonalGaussian(other_mean, belief.precision())))
    np.testing.assert_allclose(means[1], 0, atol=1e-12)
    stddevs = one.kl_parts(rl.GaussianPolicy(MEAN, other_stddev, family()))
    np.testing.assert_allclose(stddevs[0], 0, atol=1e-12)
    np.testing.assert_allclose(
        stddevs[1], belief.kl(rl.DiagonalGaussian(MEAN, jnp.exp(-2 * other_stddev))), rtol=1e-10
    )
    logits, others = jax.random.normal(KEY, (2, 5))
    probabilities = jax.nn.softmax(logits)
    expected = probabilities @ (jnp.log(probabilities) - jax.nn.log_softmax(others))
    (kl,) = rl.Categorical(logits).kl_parts(rl.Categorical(others))
    np.testing.assert_allclose(kl, expected, rtol=1e-10)


def test_averages_are_of_means_and_variances_and_a_mixture_is_the_mean_density():
    means, log_stddevs = jax.random.normal(KEY, (2, 3, 2))
    average = family().policy((means, log_stddevs), "average")
    np.testing.assert_allclose(average.mean, means.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(
        np.exp(2 * average.log_stddev), np.exp(2 * log_stddevs).mean(axis=0), rtol=1e-10
    )
    mixture = family().policy((means, log_stddevs), "mixture")
    action = np.array([0.2, 0.4])
    densities = norm(CENTER + SCALE * means, SCALE * np.exp(log_stddevs)).pdf(action).prod(axis=-1)
    choice = family().choice(jnp.asarray(action))
    np.testing.assert_allclose(mixture.log_prob(choice), np.log(densities.mean()), rtol=1e-10)
    np.testing.assert_allclose(mixture.mode(), means.mean(axis=0), rtol=1e-10)


def test_entropy_of_a_mixture_is_that_of_a_component_or_close_to_the_integral():
    same = jnp.broadcast_to(MEAN, (3, 2)), jnp.broadcast_to(LOG_STDDEV, (3, 2))
    equal = family().policy(same, "mixture")
    np.testing.assert_allclose(
        equal.entropy(), rl.GaussianPolicy(MEAN, LOG_STDDEV, family()).entropy(), rtol=1e-10
    )
    unit = rl.Box(low=(-1.0,), high=(1.0,))
    mixture = family(unit).policy((jnp.array([[-1.0], [0.5]]), jnp.zeros((2, 1))), "mixture")
    log_density = lambda a: float(mixture.log_prob(jnp.array([a])))
    entropy, _ = quad(lambda a: -np.exp(log_density(a)) * log_density(a), -9, 9, epsabs=1e-7)
    # An estimate from 16 points of each component.
    assert float(mixture.entropy()) == pytest.approx(entropy, abs=0.1)


def test_samples_of_a_mixture_come_from_all_components():
    means = jnp.array([[-8.0], [0.0], [8.0]])
    box = rl.Box(low=(-np.inf,), high=(np.inf,))
    mixture = family(box).policy((means, jnp.zeros((3, 1))), "mixture")
    noise = jax.vmap(lambda key: family(box).noise(key, float))(jax.random.split(KEY, 3000))
    choices = np.asarray(jax.vmap(mixture.sample)(noise))[:, 0]
    nearest = np.abs(choices[:, None] - means[:, 0]).argmin(axis=1)
    counts = np.bincount(nearest, minlength=3)
    assert np.all(np.abs(counts - 1000) < 5 * np.sqrt(3000 * 2 / 9))
    residuals = choices - np.asarray(means)[nearest, 0]
    assert abs(residuals.mean()) < 5 / np.sqrt(3000)
    assert abs(residuals.std() - 1) < 5 / np.sqrt(6000)
    last = mixture.sample(GaussianNoise(jnp.zeros(1), jnp.ones(())))
    np.testing.assert_array_equal(last, [8.0])


# Action spaces


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        ((), (), "low must be one bound or a vector of bounds; got ()."),
        ((0.0,), (1.0, 2.0), "low and high must have one length; got 1 and 2."),
        ((1.0,), (1.0,), "low must be below high in every entry, both finite or both infinite; got 1 and 1."),
        (
            (0.0,),
            (np.inf,),
            "low must be below high in every entry, both finite or both infinite; got 0 and inf.",
        ),
    ],
)
def test_bounds_that_are_none(low, high, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        rl.Box(low=low, high=high)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("space", "action", "message"),
    [
        (BOX, [0.0, 1.5], "action must be between 0 and 1 in entry 1; got 1.5."),
        (BOX, [np.nan, 0.5], "action must be between -2 and 2 in entry 0; got nan."),
        (BOX, 0.5, r"action must have shape (2,); got ()."),
        (rl.Discrete(4), 4, "action must be a whole number from 0 to 3; got 4."),
        (rl.Discrete(4), 0.5, "action must be a whole number from 0 to 3; got 0.5."),
    ],
)
def test_actions_outside_of_their_space_are_refused(space, action, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        space.check(np.asarray(action))
    assert str(refused.value) == message
    space.check(space.sample(KEY))
    jax.jit(space.check)(np.asarray(action))  # traced values are not known


def test_continuous_actions_are_encoded_in_half_ranges_and_have_no_number():
    np.testing.assert_allclose(BOX.encode(jnp.array([[2.0, 0.0], [0.0, 0.5]]), float), [[1, -1], [0, 0]])
    np.testing.assert_array_equal(BOX.encode(BOX.none(float), float), [0, 0])
    np.testing.assert_allclose(BOX.remap(jnp.array([1.5, 0.25])), [-1.5, 0.75])
    with pytest.raises(ValueError, match=r"^continuous actions have no number: use action_space, here "):
        _ = BOX.count


def test_options_that_an_action_space_does_not_support():
    unbounded = rl.Box(low=(-np.inf,), high=(np.inf,))
    with pytest.raises(
        ValueError, match=r"'tanh_gaussian' needs bounded actions; got continuous .*'gaussian'\.$"
    ):
        family(unbounded, action_distribution="tanh_gaussian")
    with pytest.raises(ValueError, match=r"^reward_model needs discrete actions; .*predict=\('reward',\)"):
        family(reward_model=True)


# Agents


def agent_of(actions=BOX, **options):
    config = rl.AgentConfig(**SMALL, **options)
    shape = {"observation_size": 2, "actions": actions, "policy_input": "belief_and_observation"}
    shape["targets"] = {"reward": rl.GaussianLikelihood(jnp.zeros(1))}
    return rl.Agent.init(config, rl.LaplaceConfig(covariance="diagonal"), **shape, key=KEY)


def behaviour_of(agent, policy="average"):
    x, embedded = agent.embed(jnp.ones(2), agent.action_space.none(float), jnp.zeros(()))
    _, belief = agent.posterior.update(agent.posterior.init(), x)
    return agent.behave(belief.sample(KEY, (3,)), embedded, policy=policy)


@pytest.mark.parametrize("stddev", ["constant", "state"])
@pytest.mark.parametrize("initialization", ["pytorch", "flax"])
def test_initial_policy_is_centred_with_half_a_half_range(stddev, initialization):
    agent = agent_of(action_stddev=stddev, initialization=initialization)
    policy = behaviour_of(agent).policy
    np.testing.assert_allclose(policy.mean, 0, atol=0.1)
    np.testing.assert_allclose(np.exp(policy.log_stddev), 0.5, rtol=0.1)


def test_stddevs_have_limits():
    agent = agent_of()
    far = jax.tree.map(lambda leaf: 1e3 * jnp.ones_like(leaf), agent.policy_head)
    _, log_stddev = far(jnp.ones(3), jnp.ones(4))
    np.testing.assert_array_equal(log_stddev, LOG_STDDEVS[1])


@pytest.mark.parametrize(
    "options",
    [{}, {"action_distribution": "tanh_gaussian", "action_stddev": "state"}, {"predict": ("reward",)}],
    ids=str,
)
def test_agent_is_loaded_as_it_was_saved(tmp_path, options):
    agent = agent_of(**options)
    rl.save(tmp_path / "agent.safetensors", agent)
    loaded = rl.load(tmp_path / "agent.safetensors")
    assert loaded.continuous == agent.continuous
    for policy in ("average", "mixture"):
        ours, theirs = behaviour_of(agent, policy), behaviour_of(loaded, policy)
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_discrete_agents_stay_as_they_were():
    agent = agent_of(actions=3)
    assert agent.continuous is None
    assert agent.family == CategoricalFamily(rl.Discrete(3))
    logits = behaviour_of(agent).logits
    assert logits.shape == (3,)
    same = rl.Behaviour(logits, jnp.zeros(()))  # as in version 0.1
    np.testing.assert_array_equal(same.policy.logits, logits)
