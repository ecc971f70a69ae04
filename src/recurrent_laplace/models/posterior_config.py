"""Configurations of posteriors: each class builds, checks and names its posterior."""

import abc
import dataclasses
import typing
import warnings
from typing import Any, ClassVar, Literal

from jaxtyping import Array

from recurrent_laplace.cells import Memory
from recurrent_laplace.errors import check_choice
from recurrent_laplace.posterior import (
    AbstractPosterior,
    ConjugatePosterior,
    LaplacePosterior,
    PointPosterior,
    VariationalPosterior,
)
from recurrent_laplace.posterior.conjugate import ConjugateScales, check_conjugate
from recurrent_laplace.posterior.laplace import check_laplace, effective_scales
from recurrent_laplace.posterior.variational import check_variational


@dataclasses.dataclass(frozen=True, kw_only=True)
class AbstractPosteriorConfig(abc.ABC):
    """Interface of the configuration of a posterior: a frozen dataclass whose fields are its options.

    A subclass defines `kind`, `build` and `label`; the rest has defaults. `rl.register_posterior` makes it
    available to files, sweeps and the command line, and shows how to define one.

    ```python
    config = rl.LaplaceConfig(accumulate="none", window=10)
    posterior = config.build(rl.Memory(rl.GRU(3, 8, key=jax.random.key(0))), key=jax.random.key(1))
    config.label, config.inactive  # ("Laplace-VRNN, none, diagonal", ("forgetting",))
    ```
    """

    kind: ClassVar[str]
    """Name in files (`[posterior] kind`), on the command line, and in names of run directories."""
    labelled: ClassVar[tuple[str, ...]] = ()
    """Options whose values are part of the label."""

    @abc.abstractmethod
    def build(self, memory: Memory, *, key: Array) -> AbstractPosterior:
        """Build the posterior on a memory; `key` initialises weights that the memory does not have."""

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """Name in tables and legends, for models trained with this posterior."""

    @property
    def posthoc_label(self) -> str:
        """Name in tables and legends, for networks that got this posterior after training."""
        return f"{self.label}, post hoc"

    @property
    def method(self) -> str:
        """Name of the method in the tables of a report; it also determines the colour of its lines."""
        return self.kind

    @property
    def legend(self) -> str:
        """Name of the method in the figures of a report, without its covariance."""
        return self.label

    @property
    def family(self) -> str | None:
        """Covariance of the belief, `"diagonal"` or `"dense"`; None for a belief without a density."""
        return None

    @property
    def inactive(self) -> tuple[str, ...]:
        """Options that have no effect, given the values of the others."""
        return ()

    @property
    def effective_scales(self) -> tuple[str, ...]:
        """Names of the options that calibration can fit: those of an `AbstractScaledPosterior`."""
        return ()

    @property
    def details(self) -> tuple[str, ...]:
        """Descriptions of active options that differ from their defaults and are not in the label."""
        defaults, chosen = type(self)().options(), self.canonical().options()
        names = [name for name in chosen if name not in self.labelled and chosen[name] != defaults[name]]
        return tuple(f"{name} {chosen[name]}" for name in names)

    @staticmethod
    def check_options(**options: Any) -> None:
        """Refuse invalid values of any subset of the options; accepts all by default."""
        del options

    def check(self) -> None:
        """Refuse invalid options."""
        self.check_options(**self.options())

    def options(self) -> dict[str, Any]:
        """Options by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def canonical(self) -> typing.Self:
        """Copy with inactive options at their defaults."""
        defaults = type(self)().options()
        return dataclasses.replace(self, **{name: defaults[name] for name in self.inactive})


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointConfig(AbstractPosteriorConfig):
    """Configuration of `rl.PointPosterior`, the plain RNN; it has no options.

    ```python
    config = rl.Config(posterior=rl.PointConfig())
    ```
    """

    kind: ClassVar[str] = "point"

    def build(self, memory: Memory, *, key: Array) -> PointPosterior:
        del key
        return PointPosterior(memory)

    @property
    def label(self) -> str:
        return "RNN"

    @property
    def method(self) -> str:
        return "rnn"


@dataclasses.dataclass(frozen=True, kw_only=True)
class VariationalConfig(AbstractPosteriorConfig):
    """Configuration of `rl.VariationalPosterior`, the VRNN, with the same options.

    ```python
    config = rl.Config(posterior=rl.VariationalConfig(covariance="dense"))
    ```
    """

    kind: ClassVar[str] = "variational"
    labelled: ClassVar[tuple[str, ...]] = ("covariance",)

    covariance: Literal["diagonal", "dense"] = "diagonal"
    """Covariance of the belief. No effect on a point posterior."""
    prior_stddev: float = 1.0
    """Standard deviation of the belief before any input."""

    @staticmethod
    def check_options(**options: Any) -> None:
        check_variational(**options)

    def build(self, memory: Memory, *, key: Array) -> VariationalPosterior:
        return VariationalPosterior(memory, **self.options(), key=key)

    @property
    def label(self) -> str:
        return f"VRNN, {self.covariance}"

    @property
    def method(self) -> str:
        return "vrnn"

    @property
    def legend(self) -> str:
        return "VRNN"

    @property
    def family(self) -> str:
        return self.covariance


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceConfig(AbstractPosteriorConfig):
    """Configuration of `rl.LaplacePosterior`, the Laplace-VRNN, with the same options.

    ```python
    config = rl.Config(posterior=rl.LaplaceConfig(accumulate="none", window=10))
    ```
    """

    kind: ClassVar[str] = "laplace"
    labelled: ClassVar[tuple[str, ...]] = ("covariance", "accumulate")

    covariance: Literal["diagonal", "dense"] = "diagonal"
    """Covariance of the belief. No effect on a point posterior."""
    accumulate: Literal["none", "precision", "mean_and_precision"] = "precision"
    """Quantities summed over time (Laplace)."""
    window: int | Literal["all"] = 1
    """Number of inputs in the curvature of a step (Laplace); 'all' only with accumulate none."""
    forgetting: float = 1.0
    """Fraction of the precision kept at each step (conjugate; Laplace, if precisions accumulate)."""
    prior_stddev: float = 1.0
    """Standard deviation of the belief before any input."""
    damping_precision: float = 1.0
    """Precision added to the curvature (Laplace, without accumulation)."""
    temperature: float = 1.0
    """Divisor of every precision (Laplace, conjugate); above 1 the belief is wider."""
    space: Literal["features", "state"] = "features"
    """Space of the curvature (Laplace): the features, or the hidden state, then read out."""

    @staticmethod
    def check_options(**options: Any) -> None:
        check_laplace(**options)

    def build(self, memory: Memory, *, key: Array) -> LaplacePosterior:
        del key
        return LaplacePosterior(memory, **self.options())

    @property
    def label(self) -> str:
        return f"Laplace-VRNN, {self._variant}"

    @property
    def posthoc_label(self) -> str:
        return f"Laplace post hoc, {self._variant}"

    @property
    def _variant(self) -> str:
        sums = "" if self.accumulate == "precision" else f"{self.accumulate.replace('_', ' ')}, "
        return f"{sums}{self.covariance}"

    @property
    def method(self) -> str:
        return "stationary" if self.accumulate == "none" else self.accumulate

    @property
    def legend(self) -> str:
        return {
            "none": "stationary Laplace",
            "precision": "sum of precisions",
            "mean_and_precision": "sum of means and precisions",
        }[self.accumulate]

    @property
    def family(self) -> str:
        return self.covariance

    @property
    def inactive(self) -> tuple[str, ...]:
        return ("forgetting",) if self.accumulate == "none" else ("damping_precision",)

    @property
    def effective_scales(self) -> tuple[str, ...]:
        return effective_scales(self.accumulate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConjugateConfig(AbstractPosteriorConfig):
    """Configuration of `rl.ConjugatePosterior`, a product of Gaussian factors, with the same options.

    ```python
    config = rl.Config(posterior=rl.ConjugateConfig(forgetting=0.99))
    ```
    """

    kind: ClassVar[str] = "conjugate"

    forgetting: float = 1.0
    """Fraction of the precision kept at each step (conjugate; Laplace, if precisions accumulate)."""
    prior_stddev: float = 1.0
    """Standard deviation of the belief before any input."""
    temperature: float = 1.0
    """Divisor of every precision (Laplace, conjugate); above 1 the belief is wider."""

    @staticmethod
    def check_options(**options: Any) -> None:
        check_conjugate(**options)

    def build(self, memory: Memory, *, key: Array) -> ConjugatePosterior:
        return ConjugatePosterior(memory, **self.options(), key=key)

    @property
    def label(self) -> str:
        return "conjugate"

    @property
    def family(self) -> str:
        return "diagonal"

    @property
    def effective_scales(self) -> tuple[str, ...]:
        return ConjugateScales._fields


POSTERIORS: dict[str, type[AbstractPosteriorConfig]] = {
    config.kind: config for config in (PointConfig, VariationalConfig, LaplaceConfig, ConjugateConfig)
}
"""Configuration classes by kind."""


def register_posterior(config: type[AbstractPosteriorConfig]) -> type[AbstractPosteriorConfig]:
    """Register a posterior's configuration class by its `kind`, for files and the command line.

    Usable as a decorator.

    **Arguments:** `config`, a frozen dataclass derived from `rl.AbstractPosteriorConfig`, with a default for
    every option.

    ```python
    import dataclasses

    @rl.register_posterior
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class FixedConfig(rl.AbstractPosteriorConfig):
        kind = "fixed"
        label = "fixed Laplace"

        def build(self, memory, *, key):
            return rl.LaplacePosterior(memory, window=3)
    ```
    """
    if not (isinstance(config, type) and issubclass(config, AbstractPosteriorConfig)):
        raise ValueError(f"posterior must be a subclass of AbstractPosteriorConfig; got {config!r}.")
    # A subclass of a dataclass inherits its fields without becoming a dataclass itself.
    if "__dataclass_fields__" not in vars(config):
        raise ValueError(f"posterior must be a frozen dataclass; got {config!r}.")
    if not isinstance(getattr(config, "kind", None), str):
        raise ValueError(f"posterior must have a kind; {config!r} has none.")
    for field in dataclasses.fields(config):
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"every option of a posterior must have a default; {field.name!r} has none.")
    taken = POSTERIORS.get(config.kind, config)
    if taken is not config:
        raise ValueError(f"posterior kind {config.kind!r} is taken by {taken.__qualname__}.")
    hints = typing.get_type_hints(config)
    for name in set(option_names(config)) & set(all_options()):
        # One command-line flag serves all posteriors that have the option.
        expected = typing.get_type_hints(owner_of(name))[name]
        if hints[name] != expected:
            raise ValueError(f"option {name!r} must be of type {expected}, as elsewhere; got {hints[name]}.")
    POSTERIORS[config.kind] = config
    return config


def posterior_class(kind: Any) -> type[AbstractPosteriorConfig]:
    """Configuration class of a kind."""
    check_choice("posterior", kind, tuple(POSTERIORS))
    return POSTERIORS[kind]


def option_names(config: type[AbstractPosteriorConfig]) -> list[str]:
    """Names of the options of a configuration class."""
    return [field.name for field in dataclasses.fields(config)]


def check_calibrated(config: AbstractPosteriorConfig) -> None:
    """Refuse a posterior that has no scales to be fitted."""
    if not config.effective_scales:
        known = ", ".join(repr(kind) for kind, known in POSTERIORS.items() if known().effective_scales)
        raise ValueError(
            f"posterior must be one of {known} to be calibrated, which have scales; got {config.kind!r}."
        )


def owner_of(option: str) -> type[AbstractPosteriorConfig]:
    """First configuration class that has the option."""
    check_choice("option of the posterior", option, all_options())
    return next(config for config in POSTERIORS.values() if option in option_names(config))


def all_options() -> list[str]:
    """Names of the options of all posteriors."""
    return list(dict.fromkeys(name for config in POSTERIORS.values() for name in option_names(config)))


def PosteriorConfig(*, kind: str = "point", **options: Any) -> AbstractPosteriorConfig:  # noqa: N802
    """Deprecated: use `rl.PointConfig`, `rl.VariationalConfig` or `rl.LaplaceConfig`.

    **Arguments:** `kind`, a registered kind of posterior; `options`, its options. Options that a posterior of
    that kind does not have are ignored.
    """
    config = posterior_class(kind)
    warnings.warn(
        f"PosteriorConfig(kind={kind!r}) is deprecated: use {config.__name__}.",
        DeprecationWarning,
        stacklevel=2,
    )
    for name in options:
        check_choice("option of the posterior", name, all_options())
    return config(**{name: value for name, value in options.items() if name in option_names(config)})
