"""Training: objectives, rollouts, gradient steps."""

from recurrent_laplace.learning.config import Config as Config
from recurrent_laplace.learning.config import LearningConfig as LearningConfig
from recurrent_laplace.learning.objectives import PPO as PPO
from recurrent_laplace.learning.objectives import VMPO as VMPO
from recurrent_laplace.learning.objectives import AbstractObjective as AbstractObjective
from recurrent_laplace.learning.objectives import register_objective as register_objective
from recurrent_laplace.learning.train import Train as Train
from recurrent_laplace.learning.train import TrainState as TrainState
from recurrent_laplace.learning.train import make_train as make_train
