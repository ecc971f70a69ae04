"""Runs: one configuration in, one run directory out."""
