"""Posteriors over the features of a memory: Laplace, variational, conjugate, point; predictions."""

from recurrent_laplace.posterior.base import AbstractPosterior as AbstractPosterior
from recurrent_laplace.posterior.base import AbstractScaledPosterior as AbstractScaledPosterior
from recurrent_laplace.posterior.conjugate import ConjugatePosterior as ConjugatePosterior
from recurrent_laplace.posterior.cost import Cost as Cost
from recurrent_laplace.posterior.inference import Inference as Inference
from recurrent_laplace.posterior.info import Info as Info
from recurrent_laplace.posterior.laplace import LaplacePosterior as LaplacePosterior
from recurrent_laplace.posterior.likelihood import LikelihoodPosterior as LikelihoodPosterior
from recurrent_laplace.posterior.point import PointPosterior as PointPosterior
from recurrent_laplace.posterior.predictive import Linearized as Linearized
from recurrent_laplace.posterior.predictive import Mixture as Mixture
from recurrent_laplace.posterior.predictive import predict_average as predict_average
from recurrent_laplace.posterior.predictive import predict_linearized as predict_linearized
from recurrent_laplace.posterior.predictive import predict_mixture as predict_mixture
from recurrent_laplace.posterior.predictor import Predictive as Predictive
from recurrent_laplace.posterior.predictor import Predictor as Predictor
from recurrent_laplace.posterior.targets import AbstractLikelihood as AbstractLikelihood
from recurrent_laplace.posterior.targets import BernoulliLikelihood as BernoulliLikelihood
from recurrent_laplace.posterior.targets import CategoricalLikelihood as CategoricalLikelihood
from recurrent_laplace.posterior.targets import GaussianLikelihood as GaussianLikelihood
from recurrent_laplace.posterior.targets import JointLikelihood as JointLikelihood
from recurrent_laplace.posterior.variational import VariationalPosterior as VariationalPosterior
