"""Losses of predictive heads: the likelihood of the reward and of the next observation."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.models import Agent
from recurrent_laplace.posterior import BernoulliLikelihood, JointLikelihood, Predictor
from recurrent_laplace.tasks.experience import Experience

REWARD_MODEL = JointLikelihood(("reward",), (BernoulliLikelihood(1),))
"""Likelihood of the targets of an agent's `reward_head`."""


def prediction_losses(
    agent: Agent,
    z: Float[Array, "S B T F"],
    embedded: Float[Array, "B T E"],
    context: Float[Array, "B T C"] | None,
    experience: Experience,
) -> dict[str, Float[Array, ""]]:
    """Mean negative log-likelihood of each target that the agent predicts, with outputs averaged over `z`.

    The last step of a sequence has no next observation.
    """
    heads = []
    if agent.reward_head is not None:
        size = 0 if context is None else context.shape[-1]
        predictor = Predictor(agent.reward_head, REWARD_MODEL, context_size=size, actions=agent.actions)
        heads.append((predictor, context))
    if agent.predictor is not None:
        heads.append((agent.predictor, embedded))
    targets = {
        "reward": (experience.reward[..., None], slice(None)),
        "observation": (experience.observation[..., 1:, :], slice(-1)),
    }
    losses = {}
    for predictor, seen in heads:
        outputs = jnp.mean(predictor(z, agent.action_space.query(predictor, seen, experience.action)), axis=0)
        joint = predictor.likelihood
        assert isinstance(joint, JointLikelihood)
        for name, likelihood, own in zip(joint.names, joint.parts, joint.split(outputs), strict=True):
            target, steps = targets[name]
            losses[name] = -jnp.mean(likelihood.log_prob(own[..., steps, :], target))
    return losses
