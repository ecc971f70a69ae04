"""The choices that make an agent, in words and numbers."""

import dataclasses
from typing import Annotated, Literal

import tyro

from recurrent_laplace.errors import check_choice, check_number, check_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class PosteriorConfig:
    """What the agent believes: the posterior over its features."""

    kind: Annotated[Literal["point", "variational", "laplace"], tyro.conf.arg(name="posterior")] = "point"
    """The posterior: a plain RNN (point), the VRNN (variational), or the Laplace-VRNN (laplace)."""
    covariance: Literal["diagonal", "dense"] = "diagonal"
    """Covariance of the belief. No effect on a point posterior."""
    accumulate: Literal["none", "precision", "mean_and_precision"] = "precision"
    """What a Laplace posterior sums over time."""
    window: int | Literal["all"] = 1
    """Inputs whose Jacobians make the curvature of a step (Laplace); 'all' is for accumulate none."""
    forgetting: float = 1.0
    """Share of the accumulated precision kept at each step (Laplace, where precisions accumulate)."""
    prior_stddev: float = 1.0
    """Standard deviation of the belief before any input."""
    damping_precision: float = 1.0
    """Precision added to the curvature (Laplace, without accumulation)."""
    temperature: float = 1.0
    """Every precision is divided by this (Laplace): above 1 the belief is wider."""
    space: Literal["features", "state"] = "features"
    """Where the curvature is taken (Laplace): over the features, or over the state and read out."""

    def check(self) -> None:
        """Refuse what makes no posterior."""
        check_choice("posterior", self.kind, ("point", "variational", "laplace"))
        check_choice("covariance", self.covariance, ("diagonal", "dense"))
        check_choice("accumulate", self.accumulate, ("none", "precision", "mean_and_precision"))
        check_number("forgetting", self.forgetting, above=0, most=1)
        check_number("prior_stddev", self.prior_stddev, above=0)
        check_number("damping_precision", self.damping_precision, least=0)
        check_number("temperature", self.temperature, above=0)
        check_choice("space", self.space, ("features", "state"))
        if self.window != "all":
            check_size("window", self.window)
        elif self.kind == "laplace" and self.accumulate != "none":
            raise ValueError(
                f"window 'all' needs accumulate 'none'; got {self.accumulate!r}, "
                "which would count all history again at every step."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """What the agent is made of."""

    cell: Literal["lstm", "gru", "elman"] = "lstm"
    """The recurrent cell."""
    hidden_size: int = 128
    """Width of the cell: H."""
    features: int = 64
    """Size of the belief: F."""
    embedding_sizes: tuple[int, ...] = (256, 256)
    """Layers of each embedder (observation, previous action, previous reward)."""
    head_sizes: tuple[int, ...] = (256, 256, 64)
    """Hidden layers of each head (policy, value, prediction)."""
    layer_norm: bool = True
    """Normalise each embedder's output and each head's input."""
    policy_input: Literal["task", "belief", "belief_and_observation", "belief_and_hidden"] = "task"
    """What policy and value see; 'task' is the task's own choice."""
    reward_model: bool = False
    """A head that predicts the reward of each action, trained beside the policy."""

    def check(self) -> None:
        """Refuse what makes no network."""
        check_choice("cell", self.cell, ("lstm", "gru", "elman"))
        check_size("hidden_size", self.hidden_size)
        check_size("features", self.features)
        for name in ("layer_norm", "reward_model"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false; got {getattr(self, name)!r}.")
        for name in ("embedding_sizes", "head_sizes"):
            sizes = getattr(self, name)
            if not isinstance(sizes, tuple):
                raise ValueError(f"{name} must be a list of sizes; got {sizes!r}.")
            if not sizes:
                raise ValueError(f"{name} must name at least one layer; got none.")
            for size in sizes:
                check_size(name, size)
        choices = ("task", "belief", "belief_and_observation", "belief_and_hidden")
        check_choice("policy_input", self.policy_input, choices)
