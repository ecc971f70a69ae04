"""From experience to parameters."""

from recurrent_laplace.learning.config import Config as Config
from recurrent_laplace.learning.config import LearningConfig as LearningConfig
from recurrent_laplace.learning.train import Train as Train
from recurrent_laplace.learning.train import TrainState as TrainState
from recurrent_laplace.learning.train import make_train as make_train
