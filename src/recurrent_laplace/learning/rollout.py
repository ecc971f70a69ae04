"""Rollouts of an agent in a task: experience."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from recurrent_laplace.learning.beliefs import sample_belief
from recurrent_laplace.models import Agent, Behaviour
from recurrent_laplace.models.policies import Averaging
from recurrent_laplace.tasks import AbstractControlTask
from recurrent_laplace.tasks.base import Problem
from recurrent_laplace.tasks.experience import Experience


class Readings(eqx.Module):
    """Policy entropy, belief entropy and KL from the previous belief, at each step before its action.

    A point belief has neither entropy nor KL: both are None.
    """

    policy_entropy: Float[Array, "*lead"]
    entropy: Float[Array, "*lead"] | None
    kl: Float[Array, "*lead"] | None


def rollout(
    agent: Agent,
    task: AbstractControlTask,
    problem: Problem,
    *,
    steps: int,
    samples: int,
    policy: Averaging = "average",
    greedy: bool = False,
    with_readings: bool = False,
    with_beliefs: bool = False,
    with_policy: bool = False,
    resets: Bool[Array, " T"] | None = None,
    key: Array,
) -> tuple[Experience, Readings | None]:
    """Act in one problem for `steps` steps, on the average of `samples` samples of each belief.

    Values are those of the value head at the mean of each belief: only the policy needs samples.
    The end of an episode inside the task resets neither the memory nor the previous action and reward.
    `resets` marks steps at which the belief returns to the prior before it takes in the step's input.
    """
    posterior = agent.posterior
    key_reset, key_steps = jax.random.split(key)
    world, observation = task.reset(problem, key_reset)
    belief_state = posterior.init(capacity=steps + 1)
    previous = posterior.prior() if with_readings and posterior.has_density else None
    # Keys and the noise of actions are sampled for all steps together, which takes a fraction of the time.
    indices = jnp.arange(steps + 1)
    keys = jax.vmap(lambda index: jax.random.split(jax.random.fold_in(key_steps, index), 3))(indices)
    key_beliefs, key_actions, key_worlds = keys[:, 0], keys[:, 1], keys[:, 2]
    family, dtype = agent.family, posterior.memory.dtype
    action_noise = jax.vmap(lambda key: family.noise(key, dtype))(key_actions)

    def step(carry, inputs):
        world, belief_state, previous, observation, action, reward = carry
        index, key_belief, noise, key_world = inputs
        x, embedded = agent.embed(observation, action, reward)
        reset = False if resets is None else resets[jnp.minimum(index, steps - 1)]
        belief_state, inference = posterior.infer_step(belief_state, x, reset)
        belief = inference.belief
        context = agent.head_context(embedded, inference.trace.hidden)
        chooser = agent.policy(sample_belief(belief, samples, key=key_belief), context, policy=policy)
        choice = chooser.mode() if greedy else chooser.sample(noise)
        executed = family.action(choice)
        statistics = None
        if previous is not None:
            statistics, previous = (belief.entropy(), belief.kl(previous)), belief
        new_world, outcome = task.step(problem, world, executed, key_world)
        record = (observation, action, reward, executed, choice, outcome, chooser, statistics)
        kept = (belief.mean, context, belief if with_beliefs else None)
        next_carry = (new_world, belief_state, previous, outcome.observation, executed, outcome.reward)
        return next_carry, (record, kept)

    no_action, no_reward = agent.action_space.none(dtype), jnp.zeros((), observation.dtype)
    start = (world, belief_state, previous, observation, no_action, no_reward)
    # One step more than is recorded: its value is the bootstrap, that of the input after the last step.
    _, (record, kept) = jax.lax.scan(step, start, (indices, key_beliefs, action_noise, key_worlds))
    means, contexts, beliefs = kept
    values = agent.value_head(means, contexts)[:, 0]
    record = jax.tree.map(lambda leaf: leaf[:-1], record)
    observation, previous_action, previous_reward, action, choice, outcome, chooser, statistics = record
    behaviour = Behaviour(chooser, values[:-1])
    experience = Experience(
        observation=observation,
        previous_action=previous_action,
        previous_reward=previous_reward,
        action=action,
        log_prob=behaviour.log_prob(choice),
        value=values,
        reward=outcome.reward,
        regret=outcome.regret,
        episode_end=outcome.terminated | outcome.truncated,
        belief=beliefs,
        choice=None if family.space.discrete_actions else choice,
        policy=chooser if with_policy else None,
    )
    if not with_readings:
        return experience, None
    entropy, kl = (None, None) if statistics is None else statistics
    return experience, Readings(behaviour.entropy(), entropy, kl)
