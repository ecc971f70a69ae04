"""Exact beliefs and reference agents, the ground truth for learned beliefs."""

import importlib
import pkgutil
import warnings

from recurrent_laplace.oracles.bandits import UCB1 as UCB1
from recurrent_laplace.oracles.bandits import AbstractBanditBelief as AbstractBanditBelief
from recurrent_laplace.oracles.bandits import AbstractBanditOracle as AbstractBanditOracle
from recurrent_laplace.oracles.bandits import BayesUCB as BayesUCB
from recurrent_laplace.oracles.bandits import BetaBelief as BetaBelief
from recurrent_laplace.oracles.bandits import BetaOracle as BetaOracle
from recurrent_laplace.oracles.bandits import Gittins as Gittins
from recurrent_laplace.oracles.bandits import Greedy as Greedy
from recurrent_laplace.oracles.bandits import Planned as Planned
from recurrent_laplace.oracles.bandits import Thompson as Thompson
from recurrent_laplace.oracles.bandits import TwoArmBelief as TwoArmBelief
from recurrent_laplace.oracles.bandits import TwoArmOracle as TwoArmOracle
from recurrent_laplace.oracles.base import LEAST_PROBABILITY as LEAST_PROBABILITY
from recurrent_laplace.oracles.base import AbstractExactBelief as AbstractExactBelief
from recurrent_laplace.oracles.base import AbstractOracle as AbstractOracle
from recurrent_laplace.oracles.base import AbstractPredictiveBelief as AbstractPredictiveBelief
from recurrent_laplace.oracles.base import AbstractReference as AbstractReference
from recurrent_laplace.oracles.base import AbstractRegressionOracle as AbstractRegressionOracle
from recurrent_laplace.oracles.base import RandomAgent as RandomAgent
from recurrent_laplace.oracles.base import Targets as Targets
from recurrent_laplace.oracles.coin import CoinBelief as CoinBelief
from recurrent_laplace.oracles.coin import CoinOracle as CoinOracle
from recurrent_laplace.oracles.coin import Predictor as Predictor
from recurrent_laplace.oracles.dirichlet import DirichletBelief as DirichletBelief
from recurrent_laplace.oracles.dirichlet import DirichletOracle as DirichletOracle
from recurrent_laplace.oracles.dirichlet import convolution_mean as convolution_mean
from recurrent_laplace.oracles.dirichlet import importance_mean as importance_mean
from recurrent_laplace.oracles.gridworld import GridBelief as GridBelief
from recurrent_laplace.oracles.gridworld import GridOracle as GridOracle
from recurrent_laplace.oracles.gridworld import ToldWalker as ToldWalker
from recurrent_laplace.oracles.gridworld import Walker as Walker
from recurrent_laplace.oracles.gridworld import memoryless_return as memoryless_return
from recurrent_laplace.oracles.lqg import Controller as Controller
from recurrent_laplace.oracles.lqg import LQGBelief as LQGBelief
from recurrent_laplace.oracles.lqg import LQGOracle as LQGOracle
from recurrent_laplace.oracles.planning import TwoArmPlan as TwoArmPlan
from recurrent_laplace.oracles.planning import gittins_indices as gittins_indices
from recurrent_laplace.oracles.planning import plan_gridworld as plan_gridworld
from recurrent_laplace.oracles.planning import plan_two_arms as plan_two_arms
from recurrent_laplace.oracles.play import Played as Played
from recurrent_laplace.oracles.play import Replay as Replay
from recurrent_laplace.oracles.play import play as play
from recurrent_laplace.oracles.play import replay as replay
from recurrent_laplace.oracles.registry import make_oracle as make_oracle
from recurrent_laplace.oracles.registry import make_references as make_references
from recurrent_laplace.oracles.regression import BestLinear as BestLinear
from recurrent_laplace.oracles.regression import SeriesBelief as SeriesBelief
from recurrent_laplace.oracles.regression import SeriesOracle as SeriesOracle

# Every module of this folder registers its oracles when it is imported, also those not named above.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

_RENAMED = {"follow": "replay", "Followed": "Replay"}
"""Names of version 0.1, and those that replaced them."""


def __getattr__(name: str) -> object:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    message = f"oracles.{name} is deprecated: use oracles.{_RENAMED[name]}."
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return globals()[_RENAMED[name]]
