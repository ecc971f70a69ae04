"""Agents of Stable-Baselines3 itself: what we make of their files does what they do."""

import base64
import io
import json
import os
import pickle
import warnings
import zipfile

import jax
import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")
torch = pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")

from gymnasium import spaces  # noqa: E402
from sb3_contrib import RecurrentPPO  # noqa: E402
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy  # noqa: E402
from sb3_contrib.common.recurrent.type_aliases import RNNStates  # noqa: E402
from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.logger import KVWriter, Logger  # noqa: E402
from stable_baselines3.common.torch_layers import FlattenExtractor  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize  # noqa: E402

import recurrent_laplace as rl  # noqa: E402
from recurrent_laplace.interop import sb3  # noqa: E402
from recurrent_laplace.interop.gymnasium import Uncertainty  # noqa: E402
from recurrent_laplace.interop.play import play_gymnasium  # noqa: E402
from recurrent_laplace.interop.sb3_files import read_model  # noqa: E402
from recurrent_laplace.monitoring.forecast import forecast_episodes  # noqa: E402

pytestmark = pytest.mark.interop
torch.set_num_threads(1)

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


class Noise(gymnasium.Env):
    """Observations by chance, in episodes of ten steps."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 10, False, {}


FLAT = spaces.Box(-2, 2, (2, 3))
TWO = spaces.Discrete(2)
FORCES = spaces.Box(np.float32([[-1.0, -0.5]]), np.float32([[0.25, 2.0]]))
SMALL = {"lstm_hidden_size": 8, "net_arch": [6]}


def make(
    observation_space=FLAT, action_space=TWO, policy="MlpLstmPolicy", seed=0, algorithm=RecurrentPPO, **more
):
    """A model whose weights are large enough for everything to matter."""
    kwargs = SMALL | more.pop("policy_kwargs", {})
    if algorithm is PPO:
        kwargs = {}
    model = algorithm(
        policy,
        DummyVecEnv([lambda: Noise(observation_space, action_space)]),
        n_steps=16,
        batch_size=16,
        policy_kwargs=kwargs,
        device="cpu",
        seed=seed,
        **more,
    )
    with torch.no_grad():
        for weights in model.policy.parameters():
            weights.add_(0.5 * torch.randn_like(weights))
    return model


def save(model, tmp_path):
    path = tmp_path / "model.zip"
    model.save(path)
    return path


class Reference:
    """RecurrentPPO's own numbers, step by step."""

    def __init__(self, model, streams=1):
        self.policy = model.policy
        self.policy.set_training_mode(False)
        lstm = self.policy.lstm_actor
        zeros = torch.zeros(lstm.num_layers, streams, lstm.hidden_size)
        self.states = RNNStates((zeros, zeros), (zeros, zeros))

    def step(self, observation, start):
        """Probabilities (or mean and stddev) and value of a batch."""
        with torch.no_grad():
            observation, _ = self.policy.obs_to_tensor(observation)
            start = torch.tensor(np.atleast_1d(start), dtype=torch.float32)
            distribution, _ = self.policy.get_distribution(observation, self.states.pi, start)
            _, value, _, self.states = self.policy.forward(observation, self.states, start)
        inner = distribution.distribution
        numbers = (inner.probs,) if hasattr(inner, "probs") else (inner.mean, inner.stddev)
        return [array.numpy() for array in numbers], value.numpy()[:, 0]


def numbers(distribution):
    if isinstance(distribution, sb3.DiscreteActions):
        return [distribution.probs]
    return [distribution.mean, distribution.stddev]


def assert_same(step, expected, streams=None):
    distribution, value = expected
    if streams is None:
        distribution, value = [array[0] for array in distribution], value[0]
    for ours, theirs in zip(numbers(step.distribution), distribution, strict=True):
        np.testing.assert_allclose(ours, theirs, **CLOSE)
    np.testing.assert_allclose(step.value, value, **CLOSE)


CRITIC_LINEAR = {"enable_critic_lstm": False}
SHARED = {"shared_lstm": True, "enable_critic_lstm": False}
VARIANTS = {
    "default": ({}, "actor", {}),
    "critic": ({"net_arch": {"pi": [5], "vf": [7, 4]}}, "critic", {}),
    "shared": (SHARED | {"net_arch": []}, "shared", {}),
    "linear critic": (CRITIC_LINEAR | {"net_arch": {"vf": [4]}}, "actor", {}),
    "two layers": ({"n_lstm_layers": 2, "lstm_kwargs": {"dropout": 0.1, "bias": False}}, "critic", {}),
    "relu": ({"activation_fn": torch.nn.ReLU, "net_arch": [6, 5]}, "actor", {}),
    "tanh said": ({"activation_fn": torch.nn.Tanh, "share_features_extractor": False}, "actor", {}),
    "continuous": ({"log_std_init": -0.5}, "actor", {"action_space": FORCES}),
    "discrete observations": ({}, "actor", {"observation_space": spaces.Discrete(5)}),
    "no image": ({}, "actor", {"observation_space": spaces.Box(0, 255, (4,), np.uint8)}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_parity_of_every_kind_of_network(variant, tmp_path):
    kwargs, network, more = VARIANTS[variant]
    model = make(policy_kwargs=kwargs, **more)
    agent = sb3.load(save(model, tmp_path), network=network)
    reference = Reference(model)
    model.observation_space.seed(1)
    distinct = []
    for t in range(12):
        observation, start = model.observation_space.sample(), t in (0, 7)
        step = agent.step(observation, start)
        assert_same(step, reference.step(observation, start))
        distinct.append(numbers(step.distribution)[0])
        # The belief's own readings of the heads, at its mean, are the same functions.
        if network != "actor":
            np.testing.assert_allclose(step.reading.value, step.value, **CLOSE)
            assert step.reading.value_stddev > 0
        if network != "critic":
            parts = step.reading.policy if isinstance(step.reading.policy, tuple) else (step.reading.policy,)
            ours = step.distribution
            first = ours.logits if isinstance(ours, sb3.DiscreteActions) else ours.mean
            np.testing.assert_allclose(parts[0], first, **CLOSE)
            assert step.reading.policy_disagreement > 0
        assert step.reading.step == (t + 1 if t < 7 else t - 6)
    assert np.ptp(distinct, axis=0).max() > 1e-2, "the reference is not constant"
    agent.reset()
    assert agent.step(observation, False).reading.step == 1


def test_many_streams_with_their_own_resets(tmp_path):
    model = make(action_space=FORCES)
    agent = sb3.load(save(model, tmp_path), streams=3)
    reference = Reference(model, streams=3)
    rng = np.random.default_rng(0)
    for t in range(6):
        observation = rng.uniform(-2, 2, (3, 2, 3)).astype(np.float32)
        start = np.array([t == 0, t in (0, 3), t in (0, 4)])
        step = agent.step(observation, start)
        assert_same(step, reference.step(observation, start), streams=3)
    assert step.reading.step.tolist() == [6, 3, 2]
    actions = agent.act(step, key=jax.random.key(0))
    assert actions.shape == (3, 1, 2)
    assert actions.dtype == np.float32
    assert np.all(actions >= FORCES.low)
    assert np.all(actions <= FORCES.high)


def test_actions(tmp_path):
    model = make()
    agent = sb3.load(save(model, tmp_path))
    observation = np.ones((2, 3), np.float32)
    step = agent.step(observation, True)
    assert agent.act(step, deterministic=True) == model.predict(observation, deterministic=True)[0]
    draws = [agent.act(step, key=key) for key in jax.random.split(jax.random.key(0), 400)]
    probability = step.distribution.probs[1]
    assert abs(np.mean(draws) - probability) < 5 * np.sqrt(probability * (1 - probability) / 400)
    with pytest.raises(ValueError, match="key must be"):
        agent.act(step)
    model = make(action_space=FORCES)
    agent = sb3.load(save(model, tmp_path))
    expected, _ = model.predict(observation, deterministic=True)
    np.testing.assert_allclose(
        agent.act(agent.step(observation, True), deterministic=True), expected, **CLOSE
    )


def test_another_posterior(tmp_path):
    agent = sb3.load(
        save(make(), tmp_path),
        posterior=lambda memory: rl.LaplacePosterior(memory, covariance="dense", window=2),
    )
    assert (agent.posterior.covariance, agent.posterior.window) == ("dense", 2)
    assert agent.posterior.memory.readout is None
    plain = sb3.load(tmp_path / "model.zip").posterior
    assert (plain.covariance, plain.accumulate, plain.window) == ("diagonal", "precision", 1)
    with pytest.raises(ValueError, match=r"observation must have shape \(2, 3\); got \(3,\)"):
        agent.step(np.ones(3), True)


def fitted(agent, env, **options):
    """The agent with a belief that predicts, and the fit."""
    episodes = play_gymnasium(agent, env, episodes=8)
    fit = rl.fit_predictor(agent.posterior, episodes, actions=agent.actions, hidden_sizes=(), **options)
    return agent.with_posterior(fit.posterior), fit


@pytest.mark.parametrize("action_space", [TWO, FORCES], ids=["discrete", "continuous"])
def test_a_belief_that_predicts_the_observations_of_the_environment(action_space, tmp_path):
    agent = sb3.load(save(make(action_space=action_space), tmp_path))
    env = Noise(FLAT, action_space)
    predicting, fit = fitted(agent, env)
    assert list(fit.explained) == ["observation"]
    assert "The reward is 1 at every step" in str(fit)
    (episode,) = play_gymnasium(predicting, env, episodes=1)
    surprise = episode.steps["surprise"].to_numpy()
    assert surprise[0] == 0
    assert np.all(surprise[1:] != 0)
    # The same as the forecasts of the recorded episode.
    recording = rl.Recording.of(episode)
    np.testing.assert_allclose(recording.observations.shape, (10, 6))
    np.testing.assert_allclose(recording.final_observation.shape, (6,))
    (forecasts,) = forecast_episodes(fit.posterior, fit.posterior.likelihood, [recording])
    assert np.isfinite(forecasts.target).all()
    forecast = predicting.predict(recording.actions[-1])
    np.testing.assert_allclose(forecast.mean["observation"], forecasts.mean[-1], rtol=1e-4, atol=1e-5)
    assert str(forecast).startswith("next observation ")
    # Through the wrapper, which knows the actions and the rewards.
    wrapped = Uncertainty(Noise(FLAT, action_space), predicting)
    wrapped.reset(seed=0)
    *_, info = wrapped.step(action_space.sample())
    assert info["belief"]["surprise"] != 0
    with pytest.raises(
        ValueError, match=r"action must be the one that led to this observation, .*; got None"
    ):
        predicting.step(FLAT.sample(), False)


def test_the_wrapper_fits_on_its_first_episodes(tmp_path, caplog):
    agent = sb3.load(save(make(), tmp_path))
    env = Uncertainty(Noise(FLAT, TWO), agent, fit_episodes=8)
    with caplog.at_level("INFO", logger="recurrent_laplace"):
        for episode in range(9):
            _, info = env.reset(seed=episode)
            assert (env.fit is not None) == (episode == 8)
            over = False
            while not over:
                _, _, over, _, info = env.step(int(agent.act(env.latest, deterministic=True)))
    assert info["belief"]["surprise"] != 0
    assert str(env.fit) in caplog.text
    assert str(env.source.predict(0)).startswith("next observation ")
    with pytest.raises(ValueError, match="fit_episodes must be a whole number of at least 8; got 3"):
        Uncertainty(Noise(FLAT, TWO), agent, fit_episodes=3)
    with pytest.raises(ValueError, match="fit_episodes is for an SB3Agent"):
        Uncertainty(Noise(FLAT, TWO), agent.monitor, fit_episodes=8)


def test_a_belief_of_another_agent_is_refused(tmp_path):
    agent, other = (sb3.from_model(make(seed=seed)) for seed in (0, 1))
    with pytest.raises(
        ValueError, match=r"predict needs the posterior of rl.fit_predictor .*; this agent has a Lap"
    ):
        agent.predict(0)
    with pytest.raises(
        ValueError, match="posterior must be over the LSTM of this agent; it is over another one"
    ):
        agent.with_posterior(other.posterior)


class Doubled(FlattenExtractor):
    def forward(self, observations):
        return 2 * super().forward(observations)


class Weighted(FlattenExtractor):
    def __init__(self, space):
        super().__init__(space)
        self.scale = torch.nn.Parameter(torch.ones(1))


class Own(RecurrentActorCriticPolicy):
    pass


IMAGE = spaces.Box(0, 255, (3, 36, 36), np.uint8)
REFUSED = {
    "not recurrent": ({"algorithm": PPO, "policy": "MlpPolicy"}, "the policy is not recurrent"),
    "activation": ({"policy_kwargs": {"activation_fn": torch.nn.ELU}}, r"torch's Tanh or ReLU; got .*\.ELU"),
    "sde": ({"use_sde": True, "action_space": FORCES}, "use_sde must be False"),
    "squashed": (
        {"use_sde": True, "action_space": FORCES, "policy_kwargs": {"squash_output": True}},
        "must be False",
    ),
    "image": ({"policy": "CnnLstmPolicy", "observation_space": IMAGE}, "got images of shape"),
    "flat image": ({"observation_space": IMAGE}, "got images of shape"),
    "dict": (
        {"policy": "MultiInputLstmPolicy", "observation_space": spaces.Dict(a=FLAT, b=FLAT)},
        r"observation_space must be a Box or Discrete; got .*\.Dict",
    ),
    "multi-binary seen": (
        {"observation_space": spaces.MultiBinary(3)},
        r"observation_space must be a Box or Discrete; got .*MultiBinary",
    ),
    "multi-discrete": (
        {"action_space": spaces.MultiDiscrete([2, 3])},
        r"action_space must be a Box or Discrete; got .*MultiDiscrete",
    ),
    "multi-binary": (
        {"action_space": spaces.MultiBinary(3)},
        r"action_space must be a Box or Discrete; got .*MultiBinary",
    ),
    "extractor": (
        {"policy_kwargs": {"features_extractor_class": Doubled}},
        r"FlattenExtractor; got .*Doubled",
    ),
    "weighted": (
        {"policy_kwargs": {"features_extractor_class": Weighted}},
        r"FlattenExtractor; got .*Weighted",
    ),
    "policy": ({"policy": Own}, "sb3_contrib's own recurrent policies; it is from"),
    "batch first": ({"policy_kwargs": {"lstm_kwargs": {"batch_first": True}}}, "lstm_kwargs may have"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_told_exactly_is_refused(reason, tmp_path):
    options, message = REFUSED[reason]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its remarks on strange spaces
        path = save(make(**options), tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        sb3.load(path)
    assert str(caught.value).startswith(f"{path} cannot be converted: ")
    assert "\n" not in str(caught.value)


def test_the_network_must_be_there(tmp_path):
    path = save(make(policy_kwargs=SHARED), tmp_path)
    for network in ("actor", "critic"):
        with pytest.raises(ValueError, match=f"network must be 'shared'.*got '{network}'"):
            sb3.load(path, network=network)
    path = save(make(), tmp_path)
    with pytest.raises(ValueError, match="this model wants 'actor' or 'critic'"):
        sb3.load(path, network="shared")
    with pytest.raises(ValueError, match="network must be one of"):
        sb3.load(path, network="both")
    path = save(make(policy_kwargs=CRITIC_LINEAR), tmp_path)
    with pytest.raises(ValueError, match="this one is linear"):
        sb3.load(path, network="critic")


# Files that want something


def rewritten(path, **changes):
    """The same model with members changed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (members | changes).items():
            archive.writestr(name, content)
    return members


class Attack:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def test_hostile_models_do_not_run(tmp_path):
    marker, path = tmp_path / "ran", save(make(), tmp_path)
    members = rewritten(path)
    raw = io.BytesIO()
    torch.save({"lstm_actor.weight_ih_l0": Attack(marker)}, raw)
    rewritten(path, **{"policy.pth": raw.getvalue()})
    with pytest.raises(ValueError, match=r"'policy.pth' asks for \w+\.system, which is no weight"):
        sb3.load(path)
    assert not marker.exists()
    # In the JSON part pickles are ordinary, and stay unread.
    data = json.loads(members["data"])
    for name in ("policy_class", "observation_space", "action_space"):
        assert ":serialized:" in data[name]
        data[name][":serialized:"] = base64.b64encode(pickle.dumps(Attack(marker))).decode()
    rewritten(path, **{"policy.pth": members["policy.pth"], "data": json.dumps(data)})
    sb3.load(path)
    assert not marker.exists()
    # Weights that are none.
    for content in (["a"], {"lstm_actor.weight_ih_l0": "text"}, {"a": torch.zeros(2).to_sparse()}):
        raw = io.BytesIO()
        torch.save(content, raw)
        rewritten(path, **{"policy.pth": raw.getvalue()})
        with pytest.raises(ValueError, match=r"must be a dict of weights|must hold plain arrays|no weight"):
            sb3.load(path)
    raw = io.BytesIO()
    torch.save({"lstm_actor.weight_ih_l0": torch.zeros(1).expand(10**6, 10**6)}, raw)
    rewritten(path, **{"policy.pth": raw.getvalue()})
    with pytest.raises(ValueError, match="must hold plain arrays"):
        sb3.load(path)


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_are_those_that_torch_reads(variant, tmp_path):
    kwargs, _, more = VARIANTS[variant]
    with zipfile.ZipFile(save(make(policy_kwargs=kwargs, **more), tmp_path)) as archive:
        raw = archive.read("policy.pth")
    expected = torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True)
    _, found = read_model(tmp_path / "model.zip")
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor.numpy(), strict=True)


def test_weights_that_do_not_fit(tmp_path):
    model = make()
    path = save(model, tmp_path)
    weights = model.policy.state_dict()
    for changes, message in (
        ({"extra.weight": torch.zeros(2)}, "'extra.weight', which no part"),
        ({"log_std": torch.zeros(2)}, "log_std is for a Box"),
        (
            {"value_net.weight": torch.zeros(2, 6), "value_net.bias": torch.zeros(2)},
            r"value_net.weight must have",
        ),
        ({"action_net.weight": torch.zeros(2, 5)}, "action_net and the layers before it must have shape"),
        ({"action_net.bias": None}, "a weight and a bias of 'action_net'"),
        ({"features_extractor.linear.weight": torch.zeros(2)}, "must have no weights of its own"),
        (
            {"lstm_actor.weight_ih_l0": torch.zeros(32, 5), "lstm_critic.weight_ih_l0": torch.zeros(32, 5)},
            "5 inputs",
        ),
        ({"lstm_critic.weight_ih_l0": torch.zeros(32, 5)}, "must be alike"),
    ):
        raw = io.BytesIO()
        torch.save({name: array for name, array in (weights | changes).items() if array is not None}, raw)
        rewritten(path, **{"policy.pth": raw.getvalue()})
        with pytest.raises(ValueError, match=message):
            sb3.load(path)


# A real training


class HiddenVelocities(gymnasium.ObservationWrapper):
    """CartPole that shows position and angle only: velocities must be remembered."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = spaces.Box(-10, 10, (2,))

    def observation(self, observation):
        return observation[[0, 2]].astype(np.float32)


def cartpole():
    return HiddenVelocities(gymnasium.make("CartPole-v1", max_episode_steps=100))


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "normalised"])
def trained(request, tmp_path_factory):
    """A model that has learned for some seconds, its file, and that of its statistics."""
    folder = tmp_path_factory.mktemp("trained")
    envs = DummyVecEnv([cartpole] * 4)
    if request.param:
        envs = VecNormalize(envs, clip_obs=2.0)
    model = RecurrentPPO(
        "MlpLstmPolicy",
        envs,
        n_steps=64,
        batch_size=256,
        n_epochs=4,
        learning_rate=2e-3,
        policy_kwargs={"lstm_hidden_size": 32, "net_arch": [32]},
        seed=0,
        device="cpu",
    )
    model.learn(6144)
    model.save(folder / "model.zip")
    if request.param:
        envs.save(folder / "vecnormalize.pkl")
        envs.training = False
    return model, folder / "model.zip", folder / "vecnormalize.pkl" if request.param else None


@pytest.mark.parametrize("network", ["actor", "critic"])
def test_parity_over_whole_episodes(trained, network):
    model, path, statistics = trained
    agent = sb3.load(path, network=network, vec_normalize=statistics)
    reference, env = Reference(model), cartpole()
    lengths, normalised = [], model.get_vec_normalize_env()
    for episode in range(3):
        observation, _ = env.reset(seed=episode)
        start, over, length = True, False, 0
        while not over:
            step = agent.step(observation, start)
            seen = observation if normalised is None else normalised.normalize_obs(observation)
            np.testing.assert_array_equal(agent.normalize(observation), seen)
            assert_same(step, reference.step(seen, start))
            action = agent.act(step, deterministic=True)
            assert step.reading.step == length + 1
            observation, _, terminated, truncated, _ = env.step(int(action))
            start, over, length = False, terminated or truncated, length + 1
        lengths.append(length)
    assert min(lengths) > 5


def test_statistics_are_needed_and_fit(trained, tmp_path):
    _, path, statistics = trained
    if statistics is None:
        return
    with pytest.raises(ValueError, match=r"is for observations of shape \(2,\); the model's have \(2, 3\)"):
        sb3.load(save(make(), tmp_path), vec_normalize=statistics)
    trusted = sb3.load(path, vec_normalize=statistics, trust=True)
    careful = sb3.load(path, vec_normalize=statistics)
    np.testing.assert_array_equal(trusted.normalization.mean, careful.normalization.mean)
    observation = np.array([0.1, 0.02], np.float32)
    plain = sb3.load(path).step(observation, True)
    assert abs(plain.value - careful.step(observation, True).value) > 1e-3


def test_played_through_the_wrapper(trained):
    _, path, statistics = trained
    agent = sb3.load(path, vec_normalize=statistics)
    env, bare = Uncertainty(cartpole(), agent), cartpole()
    alone = sb3.load(path, vec_normalize=statistics)
    for episode in range(2):
        observation, info = env.reset(seed=episode)
        expected, _ = bare.reset(seed=episode)
        start, over = True, False
        while not over:
            np.testing.assert_array_equal(observation, expected)
            reading = alone.step(expected, start).reading
            belief = info["belief"]
            assert all(isinstance(value, float) for value in belief.values())
            assert belief == {name: float(value) for name, value in reading.scalars().items()}
            assert {"entropy", "kl", "mahalanobis", "policy_disagreement", "policy_moved"} < belief.keys()
            action = int(agent.act(env.latest, deterministic=True))
            observation, _, terminated, truncated, info = env.step(action)
            expected, *_ = bare.step(action)
            start, over = False, terminated or truncated


class Kept(KVWriter):
    """A log that is kept."""

    def __init__(self):
        self.rows = []

    def write(self, key_values, key_excluded, step=0):
        self.rows.append(dict(key_values))

    def close(self):
        pass


@pytest.mark.parametrize(("network", "discrete"), [("actor", False), ("critic", True)])
def test_callback_in_a_training(network, discrete):
    model = make(observation_space=spaces.Discrete(4) if discrete else FLAT)
    log = Kept()
    model.set_logger(Logger(None, [log]))
    seen = []

    class Spy(sb3.UncertaintyCallback):
        def _on_rollout_end(self):
            super()._on_rollout_end()
            buffer = self.model.rollout_buffer
            copies = [buffer.observations[:, 0].copy(), buffer.episode_starts[:, 0].copy()]
            seen.append((sb3.from_model(self.model, network), *copies))

    model.learn(4 * 16, callback=Spy(every=2, network=network))
    assert ["belief/entropy" in row for row in log.rows] == [False, True, False, True]
    value, policy = {"value", "value_stddev", "value_moved"}, {"policy_disagreement", "policy_moved"}
    own, other = (value, policy) if network == "critic" else (policy, value)
    names = {name.removeprefix("belief/") for name in log.rows[1] if name.startswith("belief/")}
    assert {"entropy", "kl", "mahalanobis", *own} <= names
    assert not names & {"step", "mean", *other}
    assert all(np.isfinite(log.rows[1][f"belief/{name}"]) for name in names)
    # The weights are those of the moment.
    for index in (1, 3):
        agent, observations, starts = seen[index]
        shape = agent.description.observation_shape
        readings = [
            agent.step(o.reshape(shape), s).reading for o, s in zip(observations, starts, strict=True)
        ]
        for name in names:
            mean = np.mean([getattr(reading, name) for reading in readings])
            np.testing.assert_allclose(log.rows[index][f"belief/{name}"], mean, rtol=1e-4, atol=1e-6)
    assert log.rows[1]["belief/kl"] != log.rows[3]["belief/kl"]


def test_callback_refuses_before_training():
    model = make(policy_kwargs=SHARED)
    with pytest.raises(ValueError, match="network must be 'shared'"):
        model.learn(16, callback=sb3.UncertaintyCallback())
    with pytest.raises(ValueError, match="every must be a whole number"):
        sb3.UncertaintyCallback(every=0)
