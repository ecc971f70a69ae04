"""Is it good."""

from recurrent_laplace.evaluation.calibration import Calibration as Calibration
from recurrent_laplace.evaluation.calibration import calibrate as calibrate
from recurrent_laplace.evaluation.evaluate import EvaluationConfig as EvaluationConfig
from recurrent_laplace.evaluation.evaluate import evaluate as evaluate
