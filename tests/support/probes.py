"""Worlds so small that what an agent must learn in them is known; each asks for one thing more.

All have tables of one shape, so that one compiled program can learn any of them.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import recurrent_laplace as rl

STATES, ACTIONS, OBSERVATIONS = 6, 2, 3
AFRESH = -1
"""In place of a next state: one of the first ones, by chance."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe(rl.AbstractControlTask):
    """A finite world, given by tables over states and actions. A problem is its first state."""

    name: ClassVar[str] = "probe"

    first: jax.Array
    """States to begin in, all as likely."""
    seen: jax.Array
    """Which of the observations each state shows."""
    pay: jax.Array
    chance: jax.Array
    """That an action pays; what it pays is in `pay`."""
    ends: jax.Array
    """Does an action end the episode?"""
    then: jax.Array

    def check(self) -> None:
        assert self.seen.shape == (STATES,)
        assert all(
            table.shape == (STATES, ACTIONS) for table in (self.pay, self.chance, self.ends, self.then)
        )

    @property
    def actions(self) -> int:
        return ACTIONS

    @property
    def observation_size(self) -> int:
        return OBSERVATIONS

    def sample(self, key, *, test=False):
        del test
        return jax.random.choice(key, self.first)

    def reset(self, problem, key):
        del key
        return problem, self._observe(problem)

    def step(self, problem, state, action, key):
        key_pay, key_first = jax.random.split(key)
        paid = jax.random.bernoulli(key_pay, self.chance[state, action])
        then = self.then[state, action]
        then = jnp.where(then == AFRESH, self.sample(key_first), then)
        expected = (self.pay * self.chance)[state]
        no = jnp.zeros((), bool)
        return then, rl.Step(
            observation=self._observe(then),
            reward=self.pay[state, action] * paid,
            terminated=self.ends[state, action],
            truncated=no,
            regret=jnp.max(expected) - expected[action],
        )

    def _observe(self, state):
        return jax.nn.one_hot(self.seen[state], OBSERVATIONS)


def probe(*, first, seen, pay, then, ends, chance=1.0) -> Probe:
    """Tables from rows of the states there are, one number standing for all actions; the rest is padding."""

    def table(rows, dtype):
        filled = np.zeros((STATES, ACTIONS), dtype)
        for state, row in enumerate(rows if isinstance(rows, list) else [rows] * len(seen)):
            filled[state] = row
        return jnp.asarray(filled)

    return Probe(
        first=jnp.array((first * 2)[:2]),
        seen=jnp.array([*seen, *[0] * (STATES - len(seen))]),
        pay=table(pay, float),
        chance=table(chance, float),
        ends=table(ends, bool),
        then=table(then, int),
    )


def constant_reward(pay: float) -> Probe:
    """Everything is the same, for ever: `pay / (1 - discount)` is to come."""
    return probe(first=[0], seen=[0], pay=[pay], then=[0], ends=False)


def reward_by_observation(pays: tuple[float, float]) -> Probe:
    """What is seen tells what is paid."""
    return probe(first=[0, 1], seen=[0, 1], pay=list(pays), then=AFRESH, ends=True)


def two_steps(pay: float) -> Probe:
    """Paid at the second step, so that the first is worth `discount * pay`."""
    return probe(first=[0], seen=[0, 1], pay=[0.0, pay], then=[1, AFRESH], ends=[False, True])


def reward_by_action() -> Probe:
    """One action pays 1, the other nothing."""
    return probe(first=[0], seen=[0], pay=[(0.0, 1.0)], then=[0], ends=True)


def needs_memory() -> Probe:
    """A cue; a step on which nothing is seen; another, which pays 1 for the action of the cue."""
    return probe(
        first=[0, 1],
        seen=[0, 1, 2, 2, 2, 2],
        pay=[0.0, 0.0, 0.0, 0.0, (1.0, 0.0), (0.0, 1.0)],
        then=[2, 3, 4, 5, AFRESH, AFRESH],
        ends=[False, False, False, False, True, True],
    )


def needs_belief(chance: float) -> Probe:
    """Two arms, nothing to be seen: one pays with this chance, the other with what is left of it."""
    other = 1 - chance
    return probe(
        first=[0, 1],
        seen=[0, 0],
        pay=1.0,
        chance=[(chance, other), (other, chance)],
        then=[0, 1],
        ends=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstantFunctions(rl.AbstractRegressionTask):
    """Functions that are one number, even in [-1, 1]: its variance is 1/3, and one pair tells it."""

    name: ClassVar[str] = "constant_functions"
    variance: ClassVar[float] = 1 / 3

    def check(self) -> None:
        pass

    @property
    def observation_size(self) -> int:
        return 2

    def sample(self, key, *, test=False):
        del test
        return jax.random.uniform(key, minval=-1, maxval=1)

    def pairs(self, problem, key, steps):
        x = jax.random.uniform(key, (steps, 1), minval=-1, maxval=1)
        return x, jnp.full((steps, 1), problem)

    def queries(self, problem, key, count):
        return self.pairs(problem, key, count)

    def reset(self, problem, key):
        raise NotImplementedError("learning needs pairs only")

    def step(self, problem, state, action, key):
        raise NotImplementedError("learning needs pairs only")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class ContinuousProbe(rl.AbstractControlTask):
    """A finite world whose action is a number: it costs its squared distance from a target.

    The target is that of the state plus a hidden number, normal around 0, which is seen with noise.
    """

    name: ClassVar[str] = "continuous_probe"

    first: jax.Array
    seen: jax.Array
    target: jax.Array
    pays: jax.Array
    """Does the action in this state cost anything?"""
    ends: jax.Array
    then: jax.Array
    hidden_stddev: jax.Array
    noise_stddev: jax.Array

    def check(self) -> None:
        assert self.seen.shape == (STATES,)

    @property
    def action_space(self) -> rl.Box:
        return rl.Box(low=(-2.0,), high=(2.0,))

    @property
    def observation_size(self) -> int:
        return OBSERVATIONS + 1

    def sample(self, key, *, test=False):
        del test
        key_first, key_hidden = jax.random.split(key)
        hidden = self.hidden_stddev * jax.random.normal(key_hidden)
        return jax.random.choice(key_first, self.first), hidden

    def reset(self, problem, key):
        state, hidden = problem
        return state, self._observe(state, hidden, key)

    def step(self, problem, state, action, key):
        key_first, key_noise = jax.random.split(key)
        _, hidden = problem
        cost = self.pays[state] * (action[0] - self.target[state] - hidden) ** 2
        then = self.then[state]
        then = jnp.where(then == AFRESH, jax.random.choice(key_first, self.first), then)
        return then, rl.Step(
            observation=self._observe(then, hidden, key_noise),
            reward=-cost,
            terminated=self.ends[state],
            truncated=jnp.zeros((), bool),
            regret=cost,
        )

    def _observe(self, state, hidden, key):
        hint = hidden + self.noise_stddev * jax.random.normal(key)
        return jnp.append(jax.nn.one_hot(self.seen[state], OBSERVATIONS), hint)


def continuous_probe(
    *, first, seen, target, then, pays=True, ends=True, hidden_stddev=0.0, noise_stddev=0.0
) -> ContinuousProbe:
    """Rows of the states there are, one value standing for all; the rest is padding."""

    def row(values, dtype):
        filled = np.zeros(STATES, dtype)
        filled[: len(seen)] = values
        return jnp.asarray(filled)

    return ContinuousProbe(
        first=jnp.array((first * 2)[:2]),
        seen=row(seen, int),
        target=row(target, float),
        pays=row(pays, float),
        ends=row(ends, bool),
        then=row(then, int),
        hidden_stddev=jnp.asarray(hidden_stddev),
        noise_stddev=jnp.asarray(noise_stddev),
    )


def target(action: float) -> ContinuousProbe:
    """One action is the best, everywhere."""
    return continuous_probe(first=[0], seen=[0], target=action, then=0)


def target_by_observation(actions: tuple[float, float]) -> ContinuousProbe:
    """What is seen tells the best action."""
    return continuous_probe(first=[0, 1], seen=[0, 1], target=list(actions), then=AFRESH)


def target_by_memory(actions: tuple[float, float], *, always_pays: bool) -> ContinuousProbe:
    """A cue; a step on which nothing is seen; another, whose best action is that of the cue.

    If `always_pays`, the other actions are to be 0. Without that, an entropy bonus widens the policy to the
    bounds; with it, a policy without the bonus narrows before the cue is of use.
    """
    return continuous_probe(
        first=[0, 1],
        seen=[0, 1, 2, 2, 2, 2],
        target=[0.0, 0.0, 0.0, 0.0, *actions],
        pays=[always_pays] * 4 + [True, True],
        then=[2, 3, 4, 5, AFRESH, AFRESH],
        ends=[False, False, False, False, True, True],
    )


def target_by_belief(hidden_stddev: float, noise_stddev: float) -> ContinuousProbe:
    """The best action is the posterior mean of a number seen with noise at every step."""
    return continuous_probe(
        first=[0], seen=[0], target=0.0, then=0, hidden_stddev=hidden_stddev, noise_stddev=noise_stddev
    )
