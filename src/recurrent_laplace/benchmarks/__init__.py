"""Benchmarks: time and memory of this package next to a reference."""
