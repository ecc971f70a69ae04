"""Distributions over problems."""

from recurrent_laplace.tasks.bandits import AbstractBandit as AbstractBandit
from recurrent_laplace.tasks.bandits import BetaBandit as BetaBandit
from recurrent_laplace.tasks.bandits import DirichletBandit as DirichletBandit
from recurrent_laplace.tasks.bandits import TwoArmBandit as TwoArmBandit
from recurrent_laplace.tasks.base import AbstractControlTask as AbstractControlTask
from recurrent_laplace.tasks.base import AbstractRegressionTask as AbstractRegressionTask
from recurrent_laplace.tasks.base import AbstractTask as AbstractTask
from recurrent_laplace.tasks.base import Alphabet as Alphabet
from recurrent_laplace.tasks.base import Step as Step
from recurrent_laplace.tasks.coin import PiecewiseCoin as PiecewiseCoin
from recurrent_laplace.tasks.gridworld import Gridworld as Gridworld
from recurrent_laplace.tasks.registry import TASKS as TASKS
from recurrent_laplace.tasks.registry import make_task as make_task
from recurrent_laplace.tasks.registry import register_task as register_task
from recurrent_laplace.tasks.regression import Regression as Regression
