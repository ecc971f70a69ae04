"""Sweeps of many runs: plan, leases, executors on this machine or on a Ray cluster."""
