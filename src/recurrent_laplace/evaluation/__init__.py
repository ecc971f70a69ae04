"""Is it good."""

from recurrent_laplace.evaluation.evaluate import EvaluationConfig as EvaluationConfig
from recurrent_laplace.evaluation.evaluate import evaluate as evaluate
