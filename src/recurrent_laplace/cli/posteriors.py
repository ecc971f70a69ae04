"""Posterior flags: the options of all registered posteriors, whichever is selected."""

import dataclasses
import functools
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes

from recurrent_laplace.models import AbstractPosteriorConfig, PointConfig
from recurrent_laplace.models.posterior_config import POSTERIORS
from recurrent_laplace.runs.config import Run, posterior_from, posterior_table
from recurrent_laplace.runs.toml import Tables

KIND = (
    "The posterior: a plain RNN (point), a VRNN (variational), a Laplace-VRNN (laplace), a product of "
    "Gaussian factors (conjugate), or another registered one."
)


def with_posteriors(options: type) -> type:
    """Extend `options` by the posterior flags, in the field `posterior`."""
    return extended(options, "posterior", OmitArgPrefixes[_flags(tuple(POSTERIORS.values()))])


def posterior_flags(posterior: AbstractPosteriorConfig | None = None, unused: Tables | None = None) -> Any:
    """Flags with the values of a posterior, a plain RNN by default."""
    return _flags(tuple(POSTERIORS.values()))(**posterior_table(posterior or PointConfig(), unused or {}))


def flags_of(run: Run) -> Any:
    """Flags with the values of the posterior of a run."""
    return posterior_flags(run.config.posterior, run.unused)


def chosen_posterior(flags: Any) -> tuple[AbstractPosteriorConfig, Tables]:
    """The posterior that the flags describe, and the values that have no effect on it."""
    names = [field.name for field in dataclasses.fields(flags)]
    return posterior_from({"posterior": {name: getattr(flags, name) for name in names}})


def extended(options: type, name: str, group: Any) -> type:
    """Extend a dataclass of options by a group of flags, which replaces a field of the same name."""
    made = dataclasses.make_dataclass(
        options.__name__, [(name, group)], bases=(options,), frozen=True, kw_only=True
    )
    made.__doc__ = options.__doc__
    return made


@functools.cache
def _flags(posteriors: tuple[type[AbstractPosteriorConfig], ...]) -> type:
    """Dataclass with the kind and the options of all posteriors."""
    kinds = tuple(posterior.kind for posterior in posteriors)
    kind = Annotated[Literal[kinds], tyro.conf.arg(name="posterior", help=KIND)]
    made = dataclasses.make_dataclass(
        "Posterior",
        [("kind", kind)],
        bases=posteriors[::-1],  # A class may derive from one that was registered earlier.
        frozen=True,
        kw_only=True,
    )
    made.__doc__ = "Posterior over the features of the agent."
    return made
