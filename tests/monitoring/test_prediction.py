"""Predictive heads fitted on recorded episodes: where the best head is known, and bad episodes."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.registry import assert_close

import recurrent_laplace as rl
from recurrent_laplace.posterior import JointLikelihood
from recurrent_laplace.scoring.predictor import Rows, _ridge, _ridge_path

D, F, T, N, ACTIONS = 3, 4, 20, 24, 2
KEYS = jax.random.split(jax.random.key(0), 2)
MEMORY = rl.Memory(rl.GRU(D, 6, key=KEYS[0]), F, key=KEYS[1])
POINT = rl.PointPosterior(MEMORY)
NOISE = 0.01
WEIGHT = np.array([1.0, -2.0, 0.5, 1.5])


def recordings(discrete=True, binary=False, count=N):
    """Rewards are linear in the features, with an opposite sign for the other action, plus noise."""
    random, made = np.random.default_rng(0), []
    for _ in range(count):
        inputs = random.normal(size=(T, D))
        z = np.asarray(MEMORY.unroll(jnp.asarray(inputs)).features)
        action = random.integers(ACTIONS, size=T) if discrete else random.normal(size=(T, 1))
        sign = 1 - 2 * action if discrete else 1
        signal = sign * (z @ WEIGHT) + (0 if discrete else action[:, 0])
        rewards = signal + NOISE * random.normal(size=T)
        if binary:
            rewards = (random.uniform(size=T) < 1 / (1 + np.exp(-8 * signal))).astype(float)
        made.append(rl.Recording(inputs, action, rewards))
    return made


@pytest.fixture(scope="module")
def fitted():
    return rl.fit_predictor(POINT, recordings(), targets=["reward"], hidden_sizes=(8,))


def test_a_linear_reward_is_found(fitted):
    predictor = fitted.predictor
    query = predictor.query(jnp.zeros(D), jnp.array(1))
    gradient = jax.jacfwd(lambda z: predictor(z, query))(jnp.zeros(F))[0]
    np.testing.assert_allclose(gradient, -WEIGHT, rtol=0.05, atol=0.05)
    stddev = np.exp(predictor.likelihood.parts[0].log_stddev[0])
    np.testing.assert_allclose(stddev, NOISE, rtol=0.2)
    reward = fitted.explained["reward"]
    spread = np.var(np.concatenate([each.rewards[:-1] for each in recordings()]))
    # The residuals of 6 test episodes.
    np.testing.assert_allclose(1 - reward.beyond_constant, NOISE**2 / spread, rtol=0.6)
    assert 0.99 < reward.beyond_observation < reward.beyond_constant
    assert 0.8 < reward.coverage <= 1
    assert fitted.informative
    assert str(fitted).startswith("Predicts the next reward 100%")
    assert "its 90% intervals cover" in str(fitted)


def test_queries_are_the_previous_observation_and_action(fitted):
    episode = recordings()[0]
    queries, targets = fitted.queries(episode), fitted.targets(episode)
    assert np.isnan(queries[0]).all()
    assert np.isnan(targets[0]).all()
    one_hot = np.eye(ACTIONS)[episode.actions[:-1]]
    assert_close(queries[1:], np.concatenate([episode.inputs[:-1], one_hot], axis=1))
    assert_close(targets[1:], episode.rewards[:-1, None])
    # The curvature shows the posterior what it was told.
    beliefs = fitted.posterior.unroll(jnp.asarray(episode.inputs), queries=queries)
    np.testing.assert_allclose(beliefs[0].entropy(), fitted.posterior.prior().entropy())
    assert (np.diff(beliefs.entropy()) < 0).all()


def test_an_action_that_was_never_taken_has_no_prediction(fitted):
    recording = rl.Recording(np.zeros((T, D)), np.full(T, ACTIONS), np.zeros(T))
    with pytest.raises(ValueError, match=r"actions must be from 0 to 1, as in the episodes .*; got 2"):
        fitted.queries(recording)


def test_scores_are_those_of_the_beliefs_on_the_test_episodes(fitted):
    posterior, test = fitted.posterior, recordings()[-6:]
    assert posterior.scales != rl.LikelihoodPosterior(MEMORY, fitted.predictor).scales
    inside = []
    for each in test:
        beliefs = posterior.unroll(jnp.asarray(each.inputs), queries=fitted.queries(each))
        # The last action too, whose reward is known.
        predictive = posterior.predict(beliefs, jnp.asarray(fitted.query(each.observations, each.actions)))
        error = np.abs(each.rewards - predictive.mean()[:, 0])
        inside.append(error <= 1.6448536269514722 * predictive.stddev()[:, 0])
    assert fitted.scores["reward"].coverage == pytest.approx(np.mean(inside))
    assert fitted.explained["reward"].coverage == pytest.approx(np.mean(inside))
    assert fitted.scores["reward"].crps < 0.05


def test_what_was_seen_online_is_that_of_the_recording(fitted):
    episode = recordings()[0]
    asked = fitted.query(episode.observations[2], episode.actions[2])
    assert_close(asked, fitted.queries(episode)[3])
    target = fitted.target(episode.rewards[2], episode.observations[3])
    assert_close(target, fitted.targets(episode)[3])
    with pytest.raises(
        ValueError, match=r"observations must have 3 entries, .*; got shape \(5,\): use the env"
    ):
        fitted.query(np.zeros(5), 0)
    with pytest.raises(ValueError, match="observations must have 3 entries"):
        fitted.queries(rl.Recording(np.zeros((T, 5)), np.zeros(T, int), np.zeros(T)))


def sparse(final):
    """A reward that comes with the last action alone, if the first input was positive."""
    random = np.random.default_rng(3)
    made = []
    for _ in range(32):
        inputs = random.normal(size=(3, D))
        z = np.asarray(MEMORY.unroll(jnp.asarray(inputs)).features)
        rewards = np.array([0, 0, z[-1] @ WEIGHT])
        last = random.normal(size=D) if final else None
        made.append(rl.Recording(inputs, np.zeros(3, int), rewards, final_observation=last))
    return made


@pytest.mark.parametrize("targets", [["reward"], None])
def test_a_reward_at_the_end_is_seen(targets):
    """Alone, or beside observations, of which the last must be known."""
    fit = rl.fit_predictor(POINT, sparse(final=targets is None), targets=targets, hidden_sizes=())
    assert "reward" in fit.explained
    assert fit.explained["reward"].constant > 0.1


def test_what_is_always_the_same_is_named():
    made = [rl.Recording(each.inputs, each.actions, np.ones(T)) for each in recordings(count=8)]
    fit = rl.fit_predictor(POINT, made, hidden_sizes=())
    assert list(fit.explained) == ["observation"]
    assert not fit.informative
    assert "The reward is 1 at every step, and not predicted." in str(fit)
    assert "The belief adds nothing to the prediction of the next observation: " in str(fit)


def test_one_hot_observations_are_categorical():
    made = []
    for each in recordings(count=8):
        state = (each.actions + np.arange(T)) % D
        made.append(rl.Recording(each.inputs, each.actions, np.ones(T), np.eye(D)[state]))
    fit = rl.fit_predictor(POINT, made, hidden_sizes=(), covariance="diagonal", actions=5)
    assert isinstance(fit.predictor.likelihood.parts[0], rl.CategoricalLikelihood)
    assert fit.posterior.covariance == "diagonal"
    assert fit.predictor.actions == 5
    assert np.isfinite(fit.scores["observation"].crps)
    assert np.isfinite(fit.explained["observation"].full)


def test_a_fit_is_saved_with_its_posterior(fitted, tmp_path):
    rl.save(tmp_path / "fit", fitted.posterior)
    again = rl.load(tmp_path / "fit")
    assert eqx.tree_equal(again, fitted.posterior)


def test_binary_rewards_are_bernoulli():
    fit = rl.fit_predictor(POINT, recordings(binary=True), targets=["reward"], hidden_sizes=())
    assert isinstance(fit.predictor.likelihood.parts[0], rl.BernoulliLikelihood)
    assert fit.explained["reward"].beyond_observation > 0.2
    assert np.isnan(fit.explained["reward"].coverage)
    assert not fit.has_network


def test_continuous_actions_and_both_targets():
    fit = rl.fit_predictor(POINT, recordings(discrete=False), hidden_sizes=())
    assert list(fit.explained) == ["reward", "observation"]
    assert fit.explained["reward"].beyond_constant > 0.999
    # Observations are noise: nothing is to be explained, and nothing is claimed.
    assert abs(fit.explained["observation"].beyond_constant) < 0.05


def test_means_that_are_not_the_features_have_no_likelihood_posterior():
    conjugate = rl.ConjugatePosterior(MEMORY, key=jax.random.key(2))
    assert rl.fit_predictor(conjugate, recordings(count=8), hidden_sizes=()).posterior is None


class OwnGaussian(rl.AbstractLikelihood):
    """Likelihood from outside of the package, which says that it is Gaussian."""

    part: rl.GaussianLikelihood
    is_gaussian = True
    size = property(lambda self: self.part.size)
    mean = outputs_of = lambda self, values: values
    log_prob = lambda self, outputs, target: self.part.log_prob(outputs, target)
    deviance = lambda self, outputs, target: self.part.deviance(outputs, target)
    variance = lambda self, outputs: self.part.variance(outputs)
    fisher_root = lambda self, outputs: self.part.fisher_root(outputs)
    integrate = lambda self, outputs, variance: self.part.integrate(outputs, variance)
    entropy = lambda self, outputs: self.part.entropy(outputs)
    with_noise = lambda self, scale: OwnGaussian(self.part.with_noise(scale))
    with_noise_stddev = lambda self, stddev: OwnGaussian(self.part.with_noise_stddev(stddev))


def test_a_gaussian_likelihood_from_outside_gets_noise_and_coverage():
    part = rl.GaussianLikelihood(jnp.zeros(1))
    known, own = (
        rl.fit_predictor(
            POINT, recordings(count=8), targets=["reward"], likelihoods={"reward": each}, hidden_sizes=()
        )
        for each in (part, OwnGaussian(part))
    )
    assert own.explained == known.explained
    assert np.isfinite(own.explained["reward"].coverage)
    assert_close(own.predictor.likelihood.parts[0].part, known.predictor.likelihood.parts[0])


class OwnPredicting(rl.AbstractPosterior):
    """Posterior from outside of the package, which says that it predicts."""

    memory: rl.Memory
    inner: rl.LaplacePosterior
    predictor: rl.Predictor
    likelihood = property(lambda self: self.predictor.likelihood)
    query_size = property(lambda self: self.predictor.query_size)
    prior = lambda self: self.inner.prior()
    init = lambda self, capacity=None: self.inner.init(capacity)
    cost = lambda self, steps, batch=1: self.inner.cost(steps, batch)
    compute_step = lambda self, state, x, reset, query: self.inner.compute_step(state, x, reset)
    compute = lambda self, inputs, resets, reuse, queries: self.inner.compute(inputs, resets, reuse)
    predict = lambda self, belief, query, **options: self.predictor.predict(belief, query, **options)


def test_a_posterior_from_outside_predicts_in_a_monitor():
    predictor = rl.Predictor(lambda z, x: z[:1] * x, rl.GaussianLikelihood(jnp.zeros(1)), context_size=1)
    own = OwnPredicting(MEMORY, rl.LaplacePosterior(MEMORY), predictor)
    monitor, x = rl.Monitor(own), np.ones(D)
    monitor.step(x, query=np.array([np.nan]))
    forecast = monitor.predict(np.array([2.0]))
    _, belief = own.update(own.init(), jnp.asarray(x), query=jnp.full(1, jnp.nan))
    assert_close(forecast.mean["target"], 2 * belief.mean[:1])
    assert_close(forecast.stddev["target"] ** 2, 1 + 4 * belief.variance()[:1])
    surprises = [monitor.step(x, query=np.ones(1), target=np.array([y])) for y in (0.5, np.nan, np.inf)]
    assert [bool(each.finite) for each in surprises] == [True, True, False]
    assert surprises[0].surprise != 0
    assert surprises[1].surprise == 0
    with pytest.raises(ValueError, match=r"a LaplacePosterior predicts no targets: use an rl.LikelihoodPost"):
        own.inner.predict(belief, jnp.ones(1))


def test_ridge_is_the_solution_of_its_normal_equations():
    random = np.random.default_rng(1)
    x, y, penalty = random.normal(size=(30, 4)) + 1, random.normal(size=(30, 2)), 0.3
    weight, bias = _ridge(x, y, penalty)
    # As ordinary least squares with further rows; the constant is not penalised.
    penalties = np.hstack([np.sqrt(30 * penalty) * np.eye(4), np.zeros((4, 1))])
    rows = np.vstack([np.hstack([x, np.ones((30, 1))]), penalties])
    expected, *_ = np.linalg.lstsq(rows, np.vstack([y, np.zeros((4, 2))]), rcond=None)
    assert_close((weight, bias), (expected[:4].T, expected[4]))


@pytest.mark.parametrize("part", [rl.BernoulliLikelihood(1), rl.CategoricalLikelihood(3)])
def test_logits_start_with_a_newton_step(part):
    """The step of Newton's method, with the Hessian and the gradient from automatic differentiation."""
    random = np.random.default_rng(2)
    x = random.normal(size=(40, 2))
    x -= x.mean(axis=0)
    target = random.integers(2, size=(40, 1)).astype(float)
    if part.size > 1:
        target = np.eye(3)[random.integers(3, size=40)]
    likelihood = JointLikelihood(("reward",), (part,))
    rows = Rows(jnp.asarray(x[:, :1]), jnp.asarray(x[:, 1:]), jnp.asarray(target))
    first = _ridge_path(rows, likelihood, 0, 1)[0]  # the smallest penalty, 1e-5
    mean = (target.sum(axis=0) + np.asarray(part.mean(jnp.zeros(part.size)))) / 41
    constant = part.outputs_of(jnp.asarray(mean))

    def energy(weights):
        weight = weights.reshape(part.size, 3)
        outputs = constant + jnp.asarray(x) @ weight[:, :2].T + weight[:, 2]
        return -jnp.mean(part.log_prob(outputs, jnp.asarray(target)))

    zeros = jnp.zeros(3 * part.size)
    step = -np.linalg.pinv(jax.hessian(energy)(zeros), rcond=1e-9) @ jax.grad(energy)(zeros)
    step = step.reshape(part.size, 3)
    centered = lambda array: array - array.mean(axis=0) if part.size > 1 else array
    # The penalty, relative to a variance of about one.
    np.testing.assert_allclose(centered(first.weight), centered(step[:, :2]), rtol=1e-4)
    np.testing.assert_allclose(centered(first.bias - constant), centered(step[:, 2]), rtol=1e-4, atol=1e-10)


# Bad episodes


def broken(index, **changes):
    made = recordings(count=8)
    made[index] = dataclasses.replace(made[index], observations=None) if not changes else made[index]
    if changes:
        fields = {name: getattr(made[index], name) for name in ("inputs", "actions", "rewards")}
        made[index] = rl.Recording(**(fields | changes))
    return made


NAN = np.where(np.arange(T) == 3, np.nan, 1.0)


@pytest.mark.parametrize(
    ("episodes", "options", "message"),
    [
        (recordings(count=7), {}, "episodes must be at least 8, .*; got 7"),
        (broken(2, rewards=NAN), {}, "episode 2 has NaN or infinity in its rewards, first at step 3: leave"),
        (broken(1, source="another"), {}, "episode 1 was recorded with another posterior or agent: pass"),
        (broken(0, inputs=np.zeros((T, 5))), {}, "episode 0 must have inputs of length 3, .*; got 5: record"),
        (broken(3, actions=np.zeros((T, 1))), {}, "episode 3 must have inputs, observations and actions of"),
        (broken(3, actions=np.full(T, -1)), {}, "episode 3 must have actions from 0 on; got -1"),
        (
            [rl.Recording(each.inputs, each.actions, np.ones(T)) for each in recordings(count=8)],
            {"targets": ["reward"]},
            r"episodes must have a reward that varies, .*; all are \[1\.\]: leave it out of targets",
        ),
        (
            [rl.Recording(np.ones((T, D)), np.zeros(T, int), np.ones(T)) for _ in range(8)],
            {},
            "episodes must have rewards or observations that vary, .* are the same: record episodes in which",
        ),
        (
            broken(1, final_observation=np.full(D, np.nan)),
            {},
            "episode 1 has NaN or infinity in its final_obs",
        ),
        (
            broken(1, final_observation=np.full(D, 1e30)),
            {},
            r"episode 1 has a number beyond 1e\+18 in its final_observation",
        ),
        (recordings(count=8), {"actions": 10**9}, "actions must be at most 4096, .* one-hot; got 1000000000"),
        (recordings(count=8), {"actions": 1}, "actions must be a whole number of at least 2; got 1"),
        (recordings(count=8, discrete=False), {"actions": 2}, "actions must be left out, since those of"),
        (recordings(count=8), {"targets": []}, "targets must name at least one"),
        (recordings(count=8), {"targets": ["value"]}, "targets must be one of 'reward', 'observation'"),
        (
            recordings(count=8),
            {"likelihoods": {"reward": rl.BernoulliLikelihood(2)}},
            "likelihoods must have the size of their targets: 1 for the reward; got 2",
        ),
        (
            recordings(count=8),
            {"likelihoods": {"reward": "gaussian"}},
            "likelihoods must be of AbstractLikelihood, .*; got a str for the reward",
        ),
        (
            recordings(count=8),
            {"likelihoods": {"rewards": rl.BernoulliLikelihood(1)}},
            "likelihoods must be one of 'reward', 'observation' .did you mean 'reward'.*; got 'rewards'",
        ),
        (
            recordings(count=8),
            {"likelihoods": {"reward": rl.BernoulliLikelihood(1)}},
            "targets of the reward must be 0 or 1, as a BernoulliLikelihood needs",
        ),
        (
            broken(4, rewards=np.full(T, 1e30)),
            {},
            r"episode 4 has a number beyond 1e\+18 in its rewards, first at step 0: use a smaller unit",
        ),
        (
            broken(5, actions=np.full(T, 10**9)),
            {},
            "episode 5 must have actions below 4096; got 1000000000: count them from 0",
        ),
    ],
)
def test_bad_episodes_are_refused_in_one_sentence(episodes, options, message):
    with pytest.raises(ValueError, match=message) as refused:
        rl.fit_predictor(POINT, episodes, **options)
    assert len(str(refused.value).splitlines()) == 1


def test_a_recording_that_does_not_fit_itself_is_refused():
    with pytest.raises(ValueError, match=r"rewards must have shape \(5,\); got \(4,\)"):
        rl.Recording(np.zeros((5, 2)), np.zeros(5, int), np.zeros(4))
    with pytest.raises(ValueError, match=r"rewards must be numbers; got an array of <U1"):
        rl.Recording(np.zeros((5, 2)), np.zeros(5, int), np.array(list("abcde")))
    with pytest.raises(ValueError, match=r"inputs must be numbers; got an array of object"):
        rl.Recording(np.full((5, 2), None), np.zeros(5, int), np.zeros(5))
    with pytest.raises(ValueError, match=r"actions must be 5 whole numbers, .*; got shape .* of float64"):
        rl.Recording(np.zeros((5, 2)), np.zeros(5), np.zeros(5))
    with pytest.raises(ValueError, match=r"final_observation must have shape \(2,\); got \(3,\)"):
        rl.Recording(np.zeros((5, 2)), np.zeros(5, int), np.zeros(5), final_observation=np.zeros(3))
