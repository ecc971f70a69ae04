"""Configuration of a training run."""

import dataclasses

from recurrent_laplace.learning.objectives import AbstractObjective, find_objective
from recurrent_laplace.learning.options import LearningConfig
from recurrent_laplace.models import AbstractPosteriorConfig, AgentConfig, LaplaceConfig, PointConfig
from recurrent_laplace.tasks import AbstractTask, Gridworld


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Configuration of a training run: the task, the agent, its posterior, and the learning options.

    **Arguments:**

    - `task`: the distribution over problems.
    - `agent`: sizes of the network.
    - `posterior`: the posterior on its memory, an instance of one of the posterior configurations.
    - `learning`: options of the objective and the optimiser.

    ```python
    config = rl.Config(task=rl.Gridworld(size=5), posterior=rl.LaplaceConfig())
    train = rl.make_train(config)
    ```
    """

    task: AbstractTask = dataclasses.field(default_factory=Gridworld)
    agent: AgentConfig = dataclasses.field(default_factory=AgentConfig)
    posterior: AbstractPosteriorConfig = dataclasses.field(default_factory=PointConfig)
    learning: LearningConfig = dataclasses.field(default_factory=LearningConfig)

    def check(self) -> None:
        """Refuse a configuration that cannot be run, with a one-sentence `ValueError`."""
        for section in (self.task, self.agent, self.posterior, self.learning):
            section.check()
        self.objective.check()

    @property
    def objective(self) -> AbstractObjective:
        """Objective named by the learning options, or the default of the task."""
        kind = find_objective(self.learning.objective or self.task.objective)
        return kind(self.task, self.agent, self.posterior, self.learning)

    @property
    def inactive_learning(self) -> tuple[str, ...]:
        """Options of `learning` without effect: in this objective, on its belief, or without training."""
        return (*self._inactive_of_belief, *self.objective.inactive)

    @property
    def _inactive_of_belief(self) -> tuple[str, ...]:
        of_training = ("beta", "training_samples", "kl_fraction")
        if self.posterior.family is None:
            return (*of_training, "acting_samples")
        if self.learning.updates == 0:
            # Predictions on test tasks are made at the mean after training at the mean.
            predicts_at_mean = not self.objective.acts and self.learning.training_samples == 0
            return tuple(name for name in of_training if name != "training_samples" or not predicts_at_mean)
        return () if isinstance(self.posterior, LaplaceConfig) else ("kl_fraction",)
