"""Experience of an agent in one task."""

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from recurrent_laplace.gaussians import AbstractBelief


class Experience(eqx.Module):
    """Trajectory of an agent in one task: observations, actions, rewards.

    The memory takes in `observation`, `previous_action` (-1 at first) and `previous_reward`. `value` is that
    at the mean of the belief. `belief` is the belief acted on, if kept. Both have one entry more, for the
    input after the last step.
    """

    observation: Float[Array, "*lead O"]
    previous_action: Int[Array, "*lead"]
    previous_reward: Float[Array, "*lead"]
    action: Int[Array, "*lead"]
    log_prob: Float[Array, "*lead"]
    value: Float[Array, "*values"]
    reward: Float[Array, "*lead"]
    regret: Float[Array, "*lead"] | None
    episode_end: Bool[Array, "*lead"]
    belief: AbstractBelief | None = None
