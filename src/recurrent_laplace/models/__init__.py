"""From a belief to behaviour."""

from recurrent_laplace.models.agent import Agent as Agent
from recurrent_laplace.models.agent import Behaviour as Behaviour
from recurrent_laplace.models.config import AgentConfig as AgentConfig
from recurrent_laplace.models.config import PosteriorConfig as PosteriorConfig
from recurrent_laplace.models.posterior import with_posterior as with_posterior
from recurrent_laplace.models.regressor import Prediction as Prediction
from recurrent_laplace.models.regressor import Regressor as Regressor
