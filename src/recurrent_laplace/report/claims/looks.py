"""Numbers of seeds at which comparisons are made, and the confidence of each look."""

LOOKS = (5, 10, 20)
"""Numbers of seeds at which comparisons are made."""
CONFIDENCE = 1 - 0.01 / len(LOOKS)
"""Confidence of the two-sided interval at a look, so that all looks together have 99%."""
LEVEL = (1 - CONFIDENCE) / 2
"""Significance level of a one-sided test at a look, which is one end of the interval."""
