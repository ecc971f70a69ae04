"""Objectives of training: recurrent PPO and V-MPO, and the regression bound."""

from recurrent_laplace.learning.objectives.base import AbstractObjective as AbstractObjective
from recurrent_laplace.learning.objectives.ppo import PPO as PPO
from recurrent_laplace.learning.objectives.registry import find_objective as find_objective
from recurrent_laplace.learning.objectives.registry import register_objective as register_objective
from recurrent_laplace.learning.objectives.regression import RegressionBound as RegressionBound
from recurrent_laplace.learning.objectives.vmpo import VMPO as VMPO
