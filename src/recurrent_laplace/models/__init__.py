"""Agents and regressors that act on a belief, and the configurations that build them."""

from recurrent_laplace.models.actions import AbstractActionSpace as AbstractActionSpace
from recurrent_laplace.models.actions import Box as Box
from recurrent_laplace.models.actions import Discrete as Discrete
from recurrent_laplace.models.agent import Agent as Agent
from recurrent_laplace.models.agent import Behaviour as Behaviour
from recurrent_laplace.models.config import AgentConfig as AgentConfig
from recurrent_laplace.models.policies import AbstractPolicy as AbstractPolicy
from recurrent_laplace.models.policies import Categorical as Categorical
from recurrent_laplace.models.policies import GaussianMixture as GaussianMixture
from recurrent_laplace.models.policies import GaussianPolicy as GaussianPolicy
from recurrent_laplace.models.posterior import with_posterior as with_posterior
from recurrent_laplace.models.posterior_config import AbstractPosteriorConfig as AbstractPosteriorConfig
from recurrent_laplace.models.posterior_config import ConjugateConfig as ConjugateConfig
from recurrent_laplace.models.posterior_config import LaplaceConfig as LaplaceConfig
from recurrent_laplace.models.posterior_config import PointConfig as PointConfig
from recurrent_laplace.models.posterior_config import PosteriorConfig as PosteriorConfig
from recurrent_laplace.models.posterior_config import VariationalConfig as VariationalConfig
from recurrent_laplace.models.posterior_config import register_posterior as register_posterior
from recurrent_laplace.models.regressor import Prediction as Prediction
from recurrent_laplace.models.regressor import Regressor as Regressor
