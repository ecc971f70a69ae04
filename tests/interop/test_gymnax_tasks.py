"""Environments of gymnax by name: `--task gymnax:CartPole-v1`."""

import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

gymnax = pytest.importorskip("gymnax")

from support.own_task import forgotten  # noqa: E402
from support.runs import SIZES  # noqa: E402

from recurrent_laplace.runs.config import Run  # noqa: E402
from recurrent_laplace.tasks import load_task, make_task  # noqa: E402
from recurrent_laplace.tasks.conformance import check_dynamics  # noqa: E402

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("programs", "loaded")]

UNTRAINED = ("train", *SIZES, "--updates", "0")
KEYS = jax.random.split(jax.random.key(0), 64)

OWN = """
import jax.numpy as jnp
from gymnax.environments import environment, spaces


class Counter(environment.Environment):
    @property
    def default_params(self):
        return environment.EnvParams(max_steps_in_episode=3)

    def step_env(self, key, state, action, params):
        state = state.replace(time=state.time + 1)
        done = state.time >= params.max_steps_in_episode
        return jnp.ones(2), state, jnp.float32(action), done, {}

    def reset_env(self, key, params):
        return jnp.zeros(2), environment.EnvState(time=jnp.array(0))

    def action_space(self, params=None):
        return spaces.Discrete(5)

    def observation_space(self, params):
        return spaces.Box(0, 1, (2,))
"""


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """A current folder of its own; what is loaded is forgotten."""
    monkeypatch.chdir(tmp_path)
    with forgotten("counters"):
        yield tmp_path


def cart_pole(**parameters):
    return make_task(load_task("gymnax:CartPole-v1"), **parameters)


def test_the_parameters_are_those_of_the_environment():
    task = cart_pole()
    default = gymnax.make("CartPole-v1")[1]
    problem = task.sample(KEYS[0])
    assert jax.tree.leaves(problem.params) == jax.tree.leaves(default)
    assert (task.observation_size, task.actions) == (4, 2)
    check_dynamics(task)
    problem = cart_pole(length=0.7, max_steps_in_episode=9).sample(KEYS[0])
    assert (problem.params.length, problem.params.max_steps_in_episode) == (0.7, 9)


def test_ranges_are_sampled_for_each_problem():
    task = cart_pole(length=(0.3, 0.9), masspole=(0.1, 0.2), max_steps_in_episode=(5, 7))
    params = jax.vmap(task.sample)(KEYS).params
    for values, low, high in ((params.length, 0.3, 0.9), (params.masspole, 0.1, 0.2)):
        assert low <= values.min() < low + 0.2 * (high - low)
        assert high - 0.2 * (high - low) < values.max() <= high
    assert set(params.max_steps_in_episode.tolist()) == {5, 6, 7}
    # Each parameter has random numbers of its own.
    assert abs(np.corrcoef(params.length, params.masspole)[0, 1]) < 5 / np.sqrt(len(KEYS))
    check_dynamics(task)


def test_hidden_components():
    whole, task = cart_pole(), cart_pole(hide=(1, 3))
    assert task.observation_size == 2
    problem = task.sample(KEYS[0])
    state, observation = task.reset(problem, KEYS[1])
    full_state, full = whole.reset(problem, KEYS[1])
    np.testing.assert_array_equal(observation, full[jnp.array([0, 2])])
    _, step = task.step(problem, state, jnp.array(1), KEYS[2])
    _, full_step = whole.step(problem, full_state, jnp.array(1), KEYS[2])
    np.testing.assert_array_equal(step.observation, full_step.observation[jnp.array([0, 2])])
    assert step.reward == full_step.reward
    assert step.regret is None


@pytest.mark.parametrize("name", ["Catch-bsuite", "Asterix-MinAtar", "Breakout-MinAtar", "FourRooms-misc"])
def test_other_environments(name):
    task = make_task(load_task(f"gymnax:{name}"))
    check_dynamics(task)


def test_flags_and_files_agree(command, loaded):
    flags = ("--task.hide", "1", "3", "--task.length", "0.3", "0.7", "--task.gravity", "10")
    path = command(*UNTRAINED, "--task", "gymnax:CartPole-v1", *flags).path
    assert path.name.startswith("CartPole-v1-point-")
    text = (path / "config.toml").read_text()
    table = tomllib.loads(text)["task"]
    assert table["reference"] == "gymnax:CartPole-v1"
    assert (table["hide"], table["length"], table["gravity"]) == ([1, 3], [0.3, 0.7], 10.0)
    run = Run.from_toml(text, path)
    assert (run.config.task.hide, run.config.task.length) == ((1, 3), (0.3, 0.7))
    (loaded / "own.toml").write_text(
        '[task]\nname = "gymnax:CartPole-v1"\nhide = [1, 3]\nlength = [0.3, 0.7]\ngravity = 10\n'
    )
    assert command(*UNTRAINED, "--config", "own.toml", "--out", "others").path.name == path.name


def test_environments_of_ones_own(command, loaded):
    (loaded / "counters.py").write_text(OWN)
    path = command(*UNTRAINED, "--task", "gymnax:counters:Counter").path
    assert tomllib.loads((path / "config.toml").read_text())["task"]["reference"] == "gymnax:counters:Counter"
    command(*UNTRAINED, "--task", "gymnax:counters:Environment").refused("no class 'Environment'")
    command(*UNTRAINED, "--task", "gymnax:counters:jnp").refused("gymnax:counters:jnp is not an environment")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--task", "gymnax:CartPol-v1"], ["gymnax environment", "(did you mean 'CartPole-v1'?)"]),
        (["--task", "gymnax:CartPole-v1", "--task.hide", "4"], ["hide", "from 0 to 3; got 4"]),
        (["--task", "gymnax:CartPole-v1", "--task.hide", "-1"], ["hide", "at least 0; got -1"]),
        (["--task", "gymnax:CartPole-v1", "--task.hide", "0", "1", "2", "3"], ["at least one of the 4"]),
        (
            ["--task", "gymnax:CartPole-v1", "--task.length", "2", "1"],
            ["length", "low to high; got (2.0, 1.0)"],
        ),
        (["--task", "gymnax:CartPole-v1", "--task.length", "nan"], ["length", "nan"]),
        (["--task", "gymnax:CartPole-v1", "--task.start", "again"], ["--task.start", "'again'"]),
    ],
    ids=lambda words: " ".join(words),
)
def test_bad_options(args, words, command, loaded):
    command(*UNTRAINED, *args).refused(*words)
    assert not (loaded / "runs").exists()


SWEEP = """
preset = "smoke"
[[stage]]
name = "all"
set.learning = { updates = 0, steps = 5, batch = 4 }
axes.task.name = ["gymnax:CartPole-v1"]
axes.task.length = [0.5, [0.3, 0.7]]
axes.task.hide = [[], [1, 3]]
"""


def test_options_are_axes_of_a_sweep(command, loaded):
    (loaded / "own.toml").write_text(SWEEP)
    assert "4 runs" in command("sweep", "own.toml", "--dry-run").check(0).out
