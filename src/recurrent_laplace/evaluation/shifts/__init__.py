"""Shift detection: scores along episodes, and the benchmark that compares them."""
