"""Laplace posteriors over the hidden state of recurrent networks.

Names are imported on first use, so that `import recurrent_laplace` and the command line's help are fast.
"""

import importlib
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recurrent_laplace import interop as interop
    from recurrent_laplace.cells import GRU as GRU
    from recurrent_laplace.cells import LSTM as LSTM
    from recurrent_laplace.cells import AbstractCell as AbstractCell
    from recurrent_laplace.cells import AbstractGatedCell as AbstractGatedCell
    from recurrent_laplace.cells import Affine as Affine
    from recurrent_laplace.cells import Autodiff as Autodiff
    from recurrent_laplace.cells import Elman as Elman
    from recurrent_laplace.cells import Linear as Linear
    from recurrent_laplace.cells import Memory as Memory
    from recurrent_laplace.evaluation import EvaluationConfig as EvaluationConfig
    from recurrent_laplace.evaluation import evaluate as evaluate
    from recurrent_laplace.gaussians import AbstractBelief as AbstractBelief
    from recurrent_laplace.gaussians import AbstractGaussian as AbstractGaussian
    from recurrent_laplace.gaussians import DenseGaussian as DenseGaussian
    from recurrent_laplace.gaussians import DiagonalGaussian as DiagonalGaussian
    from recurrent_laplace.gaussians import PointBelief as PointBelief
    from recurrent_laplace.gaussians import SpectralGaussian as SpectralGaussian
    from recurrent_laplace.gaussians import cayley_basis as cayley_basis
    from recurrent_laplace.learning import PPO as PPO
    from recurrent_laplace.learning import VMPO as VMPO
    from recurrent_laplace.learning import AbstractObjective as AbstractObjective
    from recurrent_laplace.learning import Config as Config
    from recurrent_laplace.learning import LearningConfig as LearningConfig
    from recurrent_laplace.learning import Train as Train
    from recurrent_laplace.learning import TrainState as TrainState
    from recurrent_laplace.learning import make_train as make_train
    from recurrent_laplace.learning import register_objective as register_objective
    from recurrent_laplace.models import AbstractActionSpace as AbstractActionSpace
    from recurrent_laplace.models import AbstractPolicy as AbstractPolicy
    from recurrent_laplace.models import AbstractPosteriorConfig as AbstractPosteriorConfig
    from recurrent_laplace.models import Agent as Agent
    from recurrent_laplace.models import AgentConfig as AgentConfig
    from recurrent_laplace.models import Behaviour as Behaviour
    from recurrent_laplace.models import Box as Box
    from recurrent_laplace.models import Categorical as Categorical
    from recurrent_laplace.models import ConjugateConfig as ConjugateConfig
    from recurrent_laplace.models import Discrete as Discrete
    from recurrent_laplace.models import GaussianMixture as GaussianMixture
    from recurrent_laplace.models import GaussianPolicy as GaussianPolicy
    from recurrent_laplace.models import LaplaceConfig as LaplaceConfig
    from recurrent_laplace.models import PointConfig as PointConfig
    from recurrent_laplace.models import PosteriorConfig as PosteriorConfig
    from recurrent_laplace.models import Prediction as Prediction
    from recurrent_laplace.models import Regressor as Regressor
    from recurrent_laplace.models import VariationalConfig as VariationalConfig
    from recurrent_laplace.models import register_posterior as register_posterior
    from recurrent_laplace.models import with_posterior as with_posterior
    from recurrent_laplace.monitoring import Diagnosis as Diagnosis
    from recurrent_laplace.monitoring import Forecast as Forecast
    from recurrent_laplace.monitoring import Monitor as Monitor
    from recurrent_laplace.monitoring import PredictorFit as PredictorFit
    from recurrent_laplace.monitoring import Reading as Reading
    from recurrent_laplace.monitoring import Recording as Recording
    from recurrent_laplace.monitoring import ShiftAlarm as ShiftAlarm
    from recurrent_laplace.monitoring import diagnose as diagnose
    from recurrent_laplace.monitoring import diagnose_episodes as diagnose_episodes
    from recurrent_laplace.monitoring import export as export
    from recurrent_laplace.monitoring import fit_predictor as fit_predictor
    from recurrent_laplace.monitoring import load as load
    from recurrent_laplace.monitoring import register_serializable as register_serializable
    from recurrent_laplace.monitoring import save as save
    from recurrent_laplace.posterior import AbstractLikelihood as AbstractLikelihood
    from recurrent_laplace.posterior import AbstractPosterior as AbstractPosterior
    from recurrent_laplace.posterior import AbstractScaledPosterior as AbstractScaledPosterior
    from recurrent_laplace.posterior import BernoulliLikelihood as BernoulliLikelihood
    from recurrent_laplace.posterior import CategoricalLikelihood as CategoricalLikelihood
    from recurrent_laplace.posterior import ConjugatePosterior as ConjugatePosterior
    from recurrent_laplace.posterior import Cost as Cost
    from recurrent_laplace.posterior import GaussianLikelihood as GaussianLikelihood
    from recurrent_laplace.posterior import Inference as Inference
    from recurrent_laplace.posterior import Info as Info
    from recurrent_laplace.posterior import JointLikelihood as JointLikelihood
    from recurrent_laplace.posterior import LaplacePosterior as LaplacePosterior
    from recurrent_laplace.posterior import LikelihoodPosterior as LikelihoodPosterior
    from recurrent_laplace.posterior import Linearized as Linearized
    from recurrent_laplace.posterior import Mixture as Mixture
    from recurrent_laplace.posterior import PointPosterior as PointPosterior
    from recurrent_laplace.posterior import Predictive as Predictive
    from recurrent_laplace.posterior import Predictor as Predictor
    from recurrent_laplace.posterior import VariationalPosterior as VariationalPosterior
    from recurrent_laplace.posterior import predict_average as predict_average
    from recurrent_laplace.posterior import predict_linearized as predict_linearized
    from recurrent_laplace.posterior import predict_mixture as predict_mixture
    from recurrent_laplace.scoring import Calibration as Calibration
    from recurrent_laplace.scoring import calibrate as calibrate
    from recurrent_laplace.tasks import LQG as LQG
    from recurrent_laplace.tasks import AbstractBandit as AbstractBandit
    from recurrent_laplace.tasks import AbstractControlTask as AbstractControlTask
    from recurrent_laplace.tasks import AbstractRegressionTask as AbstractRegressionTask
    from recurrent_laplace.tasks import AbstractTask as AbstractTask
    from recurrent_laplace.tasks import BetaBandit as BetaBandit
    from recurrent_laplace.tasks import DirichletBandit as DirichletBandit
    from recurrent_laplace.tasks import Gridworld as Gridworld
    from recurrent_laplace.tasks import PiecewiseCoin as PiecewiseCoin
    from recurrent_laplace.tasks import Regression as Regression
    from recurrent_laplace.tasks import Shift as Shift
    from recurrent_laplace.tasks import Step as Step
    from recurrent_laplace.tasks import TaskSupport as TaskSupport
    from recurrent_laplace.tasks import TwoArmBandit as TwoArmBandit
    from recurrent_laplace.tasks import Vocabulary as Vocabulary
    from recurrent_laplace.tasks import make_task as make_task
    from recurrent_laplace.tasks import register_support as register_support
    from recurrent_laplace.tasks import register_task as register_task

__version__ = "0.1.0"

_NAMES = {
    "cells": "GRU LSTM AbstractCell AbstractGatedCell Affine Autodiff Elman Linear Memory",
    "gaussians": "AbstractBelief AbstractGaussian DenseGaussian DiagonalGaussian PointBelief "
    "SpectralGaussian cayley_basis",
    "posterior": "AbstractLikelihood AbstractPosterior AbstractScaledPosterior BernoulliLikelihood "
    "CategoricalLikelihood ConjugatePosterior Cost GaussianLikelihood Inference Info JointLikelihood "
    "LaplacePosterior LikelihoodPosterior Linearized Mixture PointPosterior Predictive Predictor "
    "VariationalPosterior predict_average predict_linearized predict_mixture",
    "models": "AbstractActionSpace AbstractPolicy AbstractPosteriorConfig Agent AgentConfig Behaviour Box "
    "Categorical ConjugateConfig Discrete GaussianMixture GaussianPolicy LaplaceConfig PointConfig "
    "PosteriorConfig Prediction Regressor VariationalConfig register_posterior with_posterior",
    "tasks": "AbstractBandit AbstractControlTask AbstractRegressionTask AbstractTask "
    "Vocabulary BetaBandit DirichletBandit Gridworld LQG PiecewiseCoin Regression Shift Step "
    "TaskSupport TwoArmBandit make_task register_support register_task",
    "learning": "PPO VMPO AbstractObjective Config LearningConfig Train TrainState make_train "
    "register_objective",
    "scoring": "Calibration calibrate",
    "evaluation": "EvaluationConfig evaluate",
    "monitoring": "Diagnosis Forecast Monitor PredictorFit Reading Recording ShiftAlarm diagnose "
    "diagnose_episodes export "
    "fit_predictor load register_serializable save",
}
_RENAMED = {"Alphabet": "Vocabulary"}
"""Deprecated names of version 0.1 and their replacements."""
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name == "interop":
        return importlib.import_module(f"{__name__}.interop")
    if name in _RENAMED:
        warnings.warn(f"rl.{name} is deprecated: use rl.{_RENAMED[name]}.", DeprecationWarning, stacklevel=2)
        return __getattr__(_RENAMED[name])
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, "interop"})
