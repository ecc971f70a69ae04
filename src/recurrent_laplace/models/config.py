"""Configuration of the network of an agent or regressor."""

import dataclasses
import typing
from typing import Literal

from recurrent_laplace.cells import GRU, LSTM, Elman
from recurrent_laplace.errors import check_choice, check_size, shown
from recurrent_laplace.models.initialization import Initialization

CELLS = {"lstm": LSTM, "gru": GRU, "elman": Elman}
"""Cell classes by their names in `AgentConfig.cell`."""

PREDICTED = ("reward", "observation")
"""Targets of a predictive head, in their order."""

PolicyInput = Literal["belief", "belief_and_observation", "belief_and_hidden"]
"""Input of the policy: the belief alone, or with the observation or the hidden state."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """Architecture of the network of an agent or regressor.

    ```python
    config = rl.AgentConfig(cell="gru", hidden_size=32, features=8)
    model = rl.Regressor.init(config, rl.LaplaceConfig(), key=jax.random.key(0))
    ```
    """

    cell: Literal["lstm", "gru", "elman"] = "lstm"
    """Recurrent cell."""
    hidden_size: int = 128
    """Number H of hidden units of the cell."""
    features: int = 64
    """Number F of features, the dimension of the belief."""
    embedding_sizes: tuple[int, ...] = (256, 256)
    """Sizes of the layers of each embedder (observation, previous action, previous reward)."""
    head_sizes: tuple[int, ...] = (256, 256, 64)
    """Sizes of the hidden layers of each head (policy, value, prediction)."""
    layer_norm: bool = True
    """Layer normalisation of each embedder's output and each head's input."""
    initialization: Initialization = "pytorch"
    """Initial weights: PyTorch's (uniform) or Flax's (LeCun normal, orthogonal recurrent, zero biases)."""
    policy_input: Literal["task", "belief", "belief_and_observation", "belief_and_hidden"] = "task"
    """Input of the policy and value heads; 'task' is the task's default."""
    reward_model: bool = False
    """Auxiliary head that predicts the reward of each action, trained with the policy: that of `predict` with
    the input of the policy, for rewards of 0 and 1."""
    predict: tuple[Literal["reward", "observation"], ...] = ()
    """Targets of an auxiliary head that predicts them from the belief, the observation and the action,
    trained with the policy; the task says how they are distributed."""
    action_distribution: Literal["gaussian", "tanh_gaussian"] = "gaussian"
    """Policy of continuous actions: a Gaussian clipped at the bounds, whose entropy is exact, or one squashed
    between them by tanh, whose entropy is computed by quadrature. That of a mixture is estimated."""
    action_stddev: Literal["constant", "state"] = "constant"
    """Standard deviation of continuous actions: learned and the same in all states, or an output of the
    policy head."""

    def check(self) -> None:
        """Refuse invalid options."""
        check_choice("cell", self.cell, tuple(CELLS))
        check_choice("initialization", self.initialization, typing.get_args(Initialization))
        check_size("hidden_size", self.hidden_size)
        check_size("features", self.features)
        for name in ("layer_norm", "reward_model"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false; got {shown(getattr(self, name))}.")
        for name in ("embedding_sizes", "head_sizes"):
            sizes = getattr(self, name)
            if not isinstance(sizes, tuple):
                raise ValueError(f"{name} must be a list of sizes; got {shown(sizes)}.")
            if not sizes:
                raise ValueError(f"{name} must name at least one layer; got none.")
            for size in sizes:
                check_size(name, size)
        if not isinstance(self.predict, tuple):
            raise ValueError(f"predict must be a list of targets; got {shown(self.predict)}.")
        for name in self.predict:
            check_choice("predict", name, PREDICTED)
        if len(set(self.predict)) < len(self.predict):
            raise ValueError(f"predict must name each target once; got {shown(self.predict)}.")
        if self.reward_model and "reward" in self.predict:
            raise ValueError(
                "reward_model must be false if predict has the reward, so that one head predicts it."
            )
        check_choice("action_distribution", self.action_distribution, ("gaussian", "tanh_gaussian"))
        check_choice("action_stddev", self.action_stddev, ("constant", "state"))
        check_choice("policy_input", self.policy_input, ("task", *typing.get_args(PolicyInput)))
