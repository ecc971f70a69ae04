"""All choices of a training run."""

import dataclasses
from typing import Literal

from recurrent_laplace.errors import check_choice, check_number, check_size
from recurrent_laplace.models.config import AgentConfig, PosteriorConfig
from recurrent_laplace.tasks import AbstractRegressionTask, AbstractTask, Gridworld


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningConfig:
    """How the agent learns."""

    updates: int = 20_000
    """Batches of experience to learn from."""
    steps: int = 100
    """Length of a task in training: T."""
    batch: int = 256
    """Tasks in a batch: B."""
    epochs: int = 1
    """Passes over each batch (control)."""
    minibatches: int = 1
    """Gradient steps in a pass, each on its share of the tasks, whole sequences (control)."""
    learning_rate: float = 1e-3
    """Step size of AdamW."""
    final_learning_rate: float | None = None
    """Step size at the end, reached linearly; none: it stays."""
    weight_decay: float = 1e-6
    """Decoupled weight decay of AdamW."""
    gradient_norm: float = 1.0
    """Gradients longer than this are shortened to it."""
    gradient_element: float = 5.0
    """Each element of the gradient is clipped to plus or minus this, before its norm is taken."""
    beta: float = 1e-2
    """Weight of the KL between consecutive beliefs."""
    training_samples: int = 1
    """Draws from the belief in the loss."""
    acting_samples: int = 10
    """Draws from the belief at each step of acting, in training and evaluation (control)."""
    acting_policy: Literal["average", "mixture"] = "average"
    """How draws make a policy when acting: averaged logits, or averaged probabilities (control)."""
    discount: float = 0.9
    """Discount of the return, times the task's own, which is 0 where an episode ends (control)."""
    trace_decay: float = 0.9
    """Lambda of the generalised advantage (control)."""
    clip: float = 0.2
    """Policy ratios count up to 1 plus or minus this (control)."""
    policy_weight: float = 1.0
    """Weight of the policy loss (control)."""
    value_weight: float = 1.0
    """Weight of the value loss, half the mean squared error (control)."""
    reward_weight: float = 1.0
    """Weight of the reward model's cross-entropy (control, with a reward model)."""
    entropy_weight: float = 0.1
    """Weight of the policy's entropy (control)."""
    final_entropy_weight: float | None = None
    """Weight of the policy's entropy at the end, reached linearly; none: it stays (control)."""

    @property
    def one_step(self) -> bool:
        """Whether a batch serves one gradient step: the weights that learn are those that acted."""
        return self.epochs * self.minibatches == 1

    def check(self) -> None:
        """Refuse what cannot be run."""
        for name in ("steps", "batch", "epochs", "minibatches", "training_samples", "acting_samples"):
            check_size(name, getattr(self, name))
        if isinstance(self.updates, bool) or not isinstance(self.updates, int) or self.updates < 0:
            raise ValueError(f"updates must be a whole number of at least 0; got {self.updates!r}.")
        if self.batch % self.minibatches:
            raise ValueError(
                f"minibatches must divide the batch of {self.batch} tasks; got {self.minibatches}."
            )
        for name in ("learning_rate", "gradient_norm", "gradient_element", "clip"):
            check_number(name, getattr(self, name), above=0)
        for name in ("weight_decay", "beta", "policy_weight", "value_weight", "reward_weight"):
            check_number(name, getattr(self, name), least=0)
        for name in ("discount", "trace_decay"):
            check_number(name, getattr(self, name), least=0, most=1)
        check_number("entropy_weight", self.entropy_weight, least=0)
        for name in ("final_learning_rate", "final_entropy_weight"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), least=0)
        check_choice("acting_policy", self.acting_policy, ("average", "mixture"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A training run: the task, the agent, its posterior, and how it learns.

    ```python
    config = rl.Config(task=rl.Gridworld(size=5), posterior=rl.PosteriorConfig(kind="laplace"))
    train = rl.make_train(config)
    ```
    """

    task: AbstractTask = dataclasses.field(default_factory=Gridworld)
    agent: AgentConfig = dataclasses.field(default_factory=AgentConfig)
    posterior: PosteriorConfig = dataclasses.field(default_factory=PosteriorConfig)
    learning: LearningConfig = dataclasses.field(default_factory=LearningConfig)

    def check(self) -> None:
        """Refuse what cannot be run, in one sentence."""
        for part in (self.task, self.agent, self.posterior, self.learning):
            part.check()
        if isinstance(self.task, AbstractRegressionTask) and self.learning.steps < 2:
            raise ValueError(f"steps must be at least 2 to learn from pairs; got {self.learning.steps}.")
