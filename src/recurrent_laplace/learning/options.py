"""Learning options: those of every objective, of acting and control, and of V-MPO."""

import dataclasses
from typing import Literal

from recurrent_laplace.errors import check_choice, check_number, check_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """Options of every objective: batches, optimiser, weight of the KL."""

    objective: str | None = None
    """Name of the objective; the task's default if unset: `ppo` for control, `regression` for regression."""
    updates: int = 20_000
    """Updates, each from one batch of experience."""
    steps: int = 100
    """Steps per task in training: T."""
    batch: int = 256
    """Tasks per batch: B."""
    learning_rate: float = 1e-3
    """Learning rate of AdamW."""
    final_learning_rate: float | None = None
    """Final learning rate, annealed linearly; constant if unset."""
    weight_decay: float = 1e-6
    """Decoupled weight decay of AdamW."""
    gradient_norm: float = 1.0
    """Maximum global norm of the gradient."""
    gradient_element: float = 5.0
    """Maximum magnitude of each element of the gradient, applied before the norm is taken."""
    beta: float = 1e-2
    """Weight of the KL between consecutive beliefs."""
    training_samples: int = 1
    """Samples of the belief in the loss; 0 evaluates the heads at its mean."""
    predictive_floor: float = 0.0
    """Lower bound of the predictive standard deviation (regression)."""
    kl_fraction: float = 1.0
    """Fraction of a batch's tasks whose covariances enter the logged KL of a Laplace posterior. Below 1, `kl`
    is an unbiased estimate, logged with its standard error; gradients stay the same."""

    def check(self) -> None:
        """Refuse values that cannot be run."""
        for name in ("steps", "batch"):
            check_size(name, getattr(self, name))
        for name in ("updates", "training_samples"):
            check_size(name, getattr(self, name), least=0)
        for name in ("learning_rate", "gradient_norm", "gradient_element"):
            check_number(name, getattr(self, name), above=0)
        for name in ("weight_decay", "beta", "predictive_floor"):
            check_number(name, getattr(self, name), least=0)
        check_number("kl_fraction", self.kl_fraction, above=0, most=1)
        if self.final_learning_rate is not None:
            check_number("final_learning_rate", self.final_learning_rate, least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ControlOptions:
    """Options of acting and of recurrent actor-critics; regression ignores them."""

    lookup: bool = True
    """Embed each input of a task's vocabulary once per update, not at every step; equal up to rounding."""
    acting_samples: int = 10
    """Samples of the belief per step when acting, in training and evaluation; 0 acts on its mean."""
    acting_policy: Literal["average", "mixture"] = "average"
    """Policy of several samples when acting: averaged logits (or means and variances), or the mixture."""
    epochs: int = 1
    """Passes over each batch."""
    minibatches: int = 1
    """Minibatches per pass: whole sequences of some of the tasks."""
    discount: float = 0.9
    """Discount of the return; 0 at the end of an episode."""
    trace_decay: float = 0.9
    """Lambda of the generalised advantage estimate."""
    clip: float = 0.2
    """Clipping range of the policy ratio around 1 (PPO)."""
    policy_weight: float = 1.0
    """Weight of the policy loss."""
    value_weight: float = 1.0
    """Weight of the value loss, half the mean squared error."""
    reward_weight: float = 1.0
    """Weight of the negative log-likelihood of predicted rewards, if the agent predicts them."""
    observation_weight: float = 1.0
    """Weight of the negative log-likelihood of predicted observations, if the agent predicts them."""
    entropy_weight: float = 0.1
    """Weight of the policy's entropy (PPO)."""
    final_entropy_weight: float | None = None
    """Final weight of the policy's entropy, annealed linearly; constant if unset (PPO)."""

    @property
    def one_step(self) -> bool:
        """Whether a batch serves one gradient step, so that the weights that learn are those that acted."""
        return self.epochs * self.minibatches == 1

    def check(self) -> None:
        """Refuse values that cannot be run."""
        for name in ("epochs", "minibatches"):
            check_size(name, getattr(self, name))
        check_size("acting_samples", self.acting_samples, least=0)
        check_number("clip", self.clip, above=0)
        for part in ("policy", "value", "reward", "observation", "entropy"):
            check_number(f"{part}_weight", getattr(self, f"{part}_weight"), least=0)
        for name in ("discount", "trace_decay"):
            check_number(name, getattr(self, name), least=0, most=1)
        if self.final_entropy_weight is not None:
            check_number("final_entropy_weight", self.final_entropy_weight, least=0)
        check_choice("acting_policy", self.acting_policy, ("average", "mixture"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class VMPOOptions:
    """Options of V-MPO; other objectives ignore them."""

    temperature_bound: float = 0.1
    """Bound of the KL of the sample weights from equal ones, which sets the temperature (V-MPO)."""
    policy_kl_bound: float = 0.01
    """Bound of the KL of the new policy from the one that acted; of its means if continuous (V-MPO)."""
    policy_stddev_kl_bound: float = 1e-3
    """Bound of that part of the KL that is due to the standard deviations of continuous actions (V-MPO)."""
    dual_learning_rate: float = 0.01
    """Learning rate of the logarithms of the temperature and of the multipliers of the bounds (V-MPO)."""

    def check(self) -> None:
        """Refuse values that cannot be run."""
        for name in ("temperature_bound", "policy_kl_bound", "policy_stddev_kl_bound", "dual_learning_rate"):
            check_number(name, getattr(self, name), above=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningConfig(VMPOOptions, ControlOptions, SharedOptions):
    """Learning options of all objectives, in one flat section: `[learning]` in TOML.

    Each option is explained by its docstring, which is also the help text of its flag.

    ```python
    learning = rl.LearningConfig(updates=1000, batch=64, discount=0.95)
    ```
    """

    def check(self) -> None:
        """Refuse values that cannot be run."""
        SharedOptions.check(self)
        ControlOptions.check(self)
        VMPOOptions.check(self)
        if self.batch % self.minibatches:
            raise ValueError(
                f"minibatches must divide the batch of {self.batch} tasks; got {self.minibatches}."
            )
