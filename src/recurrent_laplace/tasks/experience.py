"""Experience of an agent in one task."""

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from recurrent_laplace.gaussians import AbstractBelief
from recurrent_laplace.models.policies import AbstractPolicy


class Experience(eqx.Module):
    """Trajectory of an agent in one task: observations, actions, rewards.

    The memory takes in `observation`, `previous_action` (-1 or NaN at first) and `previous_reward`. `value`
    is that at the mean of the belief. `belief` is the belief acted on, if kept. Both have one entry more, for
    the input after the last step. `choice` is what the policy chose before it was squashed or clipped to a
    continuous `action`. `policy` is the distribution that acted, if kept.
    """

    observation: Float[Array, "*lead O"]
    previous_action: Int[Array, "*lead"] | Float[Array, "*lead A"]
    previous_reward: Float[Array, "*lead"]
    action: Int[Array, "*lead"] | Float[Array, "*lead A"]
    log_prob: Float[Array, "*lead"]
    value: Float[Array, "*values"]
    reward: Float[Array, "*lead"]
    regret: Float[Array, "*lead"] | None
    episode_end: Bool[Array, "*lead"]
    belief: AbstractBelief | None = None
    choice: Float[Array, "*lead A"] | None = None
    policy: AbstractPolicy | None = None

    @property
    def chosen(self) -> Array:
        """Argument of a policy's `log_prob`: choices of continuous actions, discrete actions themselves."""
        return self.action if self.choice is None else self.choice
