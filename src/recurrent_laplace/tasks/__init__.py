"""Tasks: distributions over problems, their registry, and distribution shifts."""

import importlib
import pkgutil

from recurrent_laplace.tasks.bandits import AbstractBandit as AbstractBandit
from recurrent_laplace.tasks.bandits import BetaBandit as BetaBandit
from recurrent_laplace.tasks.bandits import DirichletBandit as DirichletBandit
from recurrent_laplace.tasks.bandits import TwoArmBandit as TwoArmBandit
from recurrent_laplace.tasks.base import AbstractControlTask as AbstractControlTask
from recurrent_laplace.tasks.base import AbstractRegressionTask as AbstractRegressionTask
from recurrent_laplace.tasks.base import AbstractTask as AbstractTask
from recurrent_laplace.tasks.base import Step as Step
from recurrent_laplace.tasks.base import Vocabulary as Vocabulary
from recurrent_laplace.tasks.coin import PiecewiseCoin as PiecewiseCoin
from recurrent_laplace.tasks.gridworld import Gridworld as Gridworld
from recurrent_laplace.tasks.lqg import LQG as LQG
from recurrent_laplace.tasks.references import load_task as load_task
from recurrent_laplace.tasks.registry import TASKS as TASKS
from recurrent_laplace.tasks.registry import check_task as check_task
from recurrent_laplace.tasks.registry import make_task as make_task
from recurrent_laplace.tasks.registry import register_task as register_task
from recurrent_laplace.tasks.regression import Regression as Regression
from recurrent_laplace.tasks.shifts import Shift as Shift
from recurrent_laplace.tasks.support import TaskSupport as TaskSupport
from recurrent_laplace.tasks.support import register_support as register_support
from recurrent_laplace.tasks.support import require_support as require_support
from recurrent_laplace.tasks.support import support_of as support_of

# Every module of this folder registers its tasks when it is imported, also those not named above.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
