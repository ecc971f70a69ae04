"""Evaluation on fixed test tasks: metrics, exact-Bayes references, faithfulness, shifts, calibration."""

from recurrent_laplace.evaluation.evaluate import EvaluationConfig as EvaluationConfig
from recurrent_laplace.evaluation.evaluate import evaluate as evaluate
