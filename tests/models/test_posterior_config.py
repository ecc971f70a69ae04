"""Configurations of posteriors: built, named and checked by their classes, and found by their kinds."""

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import ClassVar, Literal
from unittest import mock

import jax
import pytest

import recurrent_laplace as rl
from recurrent_laplace import cli
from recurrent_laplace.cli import train as train_verb
from recurrent_laplace.models.posterior_config import POSTERIORS, posterior_class
from recurrent_laplace.report.methods import Variant
from recurrent_laplace.runs.config import Run

KEY = jax.random.key(0)


@pytest.fixture
def registry():
    """What is registered is forgotten again."""
    with mock.patch.dict(POSTERIORS):
        yield


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharpConfig(rl.AbstractPosteriorConfig):
    """A Laplace posterior of low temperature, as somebody else would add it."""

    kind: ClassVar[str] = "sharp"
    sharpness: float = 4.0
    """Every precision is multiplied by this (sharp)."""
    covariance: Literal["diagonal", "dense"] = "dense"
    """Covariance of the belief."""

    @staticmethod
    def check_options(**options):
        if not options.get("sharpness", 1.0) > 1:
            raise ValueError(f"sharpness must be above 1; got {options['sharpness']}.")

    def build(self, memory, *, key):
        del key
        return rl.LaplacePosterior(memory, covariance=self.covariance, temperature=1 / self.sharpness)

    @property
    def label(self):
        return f"sharp Laplace, {self.covariance}"

    @property
    def family(self):
        return self.covariance


SMALL = rl.AgentConfig(cell="elman", hidden_size=3, features=2, embedding_sizes=(2,), head_sizes=(2,))


def test_posterior_of_somebody_else_is_trained_and_named(registry):
    assert rl.register_posterior(SharpConfig) is SharpConfig
    config = rl.Config(
        task=rl.TwoArmBandit(),
        agent=SMALL,
        posterior=posterior_class("sharp")(sharpness=2.0),
        learning=rl.LearningConfig(updates=1, steps=2, batch=2),
    )
    train = rl.make_train(config)
    state, metrics = jax.jit(train)(KEY)
    assert state.model.posterior.temperature == 0.5
    assert metrics["loss"].shape == (1,)
    assert config.posterior.label == "sharp Laplace, dense"
    assert config.posterior.posthoc_label == "sharp Laplace, dense, post hoc"
    assert config.posterior.details == ("sharpness 2.0", )  # fmt: skip
    assert Variant(config.posterior.method, config.posterior.family).label == "sharp dense"


def test_posterior_of_somebody_else_is_stored_and_offered_on_the_command_line(registry, monkeypatch, capsys):
    rl.register_posterior(SharpConfig)
    run = Run(config=rl.Config(posterior=SharpConfig(sharpness=2.0)))
    assert run.id.startswith("gridworld-sharp-")
    assert tomllib.loads(run.to_toml())["posterior"] == {
        "kind": "sharp",
        "sharpness": 2.0,
        "covariance": "dense",
    }
    assert Run.from_toml(run.to_toml(), Path("config.toml")) == run
    # The tables of the package's own posteriors, which are hashed, do not change.
    assert "sharpness" not in Run(config=rl.Config()).tables()["posterior"]

    trained = mock.Mock(return_value=mock.Mock(path="out"))
    monkeypatch.setattr(train_verb, "train_run", trained)
    cli.main(["train", "--posterior", "sharp", "--sharpness", "3", "--covariance", "diagonal"])
    assert trained.call_args.args[0].config.posterior == SharpConfig(sharpness=3.0, covariance="diagonal")
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "{point,variational,laplace,conjugate,sharp}" in text
    assert "Every precision is multiplied by this (sharp)." in text


def test_kind_is_registered_once(registry):
    rl.register_posterior(SharpConfig)
    rl.register_posterior(SharpConfig)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class OtherConfig(SharpConfig):
        pass

    with pytest.raises(ValueError, match=r"^posterior kind 'sharp' is taken by SharpConfig\.$"):
        rl.register_posterior(OtherConfig)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamelessConfig(rl.AbstractPosteriorConfig):
    """Without a kind."""


class PlainConfig(rl.LaplaceConfig):
    """No dataclass of its own."""

    kind: ClassVar[str] = "plain"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequiredConfig(rl.AbstractPosteriorConfig):
    """With an option that has no default."""

    kind: ClassVar[str] = "required"
    width: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClashingConfig(rl.AbstractPosteriorConfig):
    """With an option that means something else elsewhere."""

    kind: ClassVar[str] = "clashing"
    forgetting: bool = True


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (rl.LaplacePosterior, "must be a subclass of AbstractPosteriorConfig; got"),
        (PlainConfig, "must be a frozen dataclass; got"),
        (NamelessConfig, "must have a kind; .* has none"),
        (RequiredConfig, "every option of a posterior must have a default; 'width' has none"),
        (
            ClashingConfig,
            "option 'forgetting' must be of type <class 'float'>, as elsewhere; got <class 'bool'>",
        ),
    ],
)
def test_what_is_no_configuration_is_not_registered(config, message, registry):
    with pytest.raises(ValueError, match=rf"^.*{message}.*\.$"):
        rl.register_posterior(config)
    assert config not in POSTERIORS.values()


@pytest.mark.parametrize(
    ("kind", "hint"), [("vrnn", ""), ("laplacian", " (did you mean 'laplace'?)"), (3, "")]
)
def test_unknown_kind_lists_the_known_ones(kind, hint):
    message = f"posterior must be one of 'point', 'variational', 'laplace', 'conjugate'{hint}; got {kind!r}."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        posterior_class(kind)


LABELS = {
    rl.PointConfig(): ("RNN", "RNN, post hoc", ()),
    rl.VariationalConfig(prior_stddev=0.3): (
        "VRNN, diagonal",
        "VRNN, diagonal, post hoc",
        ("prior_stddev 0.3",),
    ),
    rl.LaplaceConfig(covariance="dense"): ("Laplace-VRNN, dense", "Laplace post hoc, dense", ()),
    rl.LaplaceConfig(accumulate="none", window=10, forgetting=0.5): (
        "Laplace-VRNN, none, diagonal",
        "Laplace post hoc, none, diagonal",
        ("window 10",),
    ),
    rl.LaplaceConfig(accumulate="mean_and_precision", forgetting=0.5, damping_precision=3.0): (
        "Laplace-VRNN, mean and precision, diagonal",
        "Laplace post hoc, mean and precision, diagonal",
        ("forgetting 0.5",),
    ),
}


@pytest.mark.parametrize("config", LABELS, ids=lambda config: config.label)
def test_labels_name_what_has_an_effect(config):
    assert (config.label, config.posthoc_label, config.details) == LABELS[config]


def test_canonical_resets_inactive_options_alone():
    other = {"forgetting": 0.5, "damping_precision": 3.0, "temperature": 2.0}
    sums, stationary = rl.LaplaceConfig(**other), rl.LaplaceConfig(accumulate="none", **other)
    assert sums.canonical() == dataclasses.replace(sums, damping_precision=1.0)
    assert stationary.canonical() == dataclasses.replace(stationary, forgetting=1.0)
    assert rl.VariationalConfig(prior_stddev=2.0).canonical() == rl.VariationalConfig(prior_stddev=2.0)


def test_flat_class_is_deprecated():
    with pytest.warns(
        DeprecationWarning, match=r"PosteriorConfig\(kind='laplace'\) is deprecated: use LaplaceC"
    ):
        assert rl.PosteriorConfig(kind="laplace", window=3) == rl.LaplaceConfig(window=3)
    with pytest.warns(DeprecationWarning, match="use PointConfig"):
        assert rl.PosteriorConfig(window=3) == rl.PointConfig()
    with pytest.warns(match="use PointConfig"), pytest.raises(ValueError, match="got 'windows'"):
        rl.PosteriorConfig(windows=3)
