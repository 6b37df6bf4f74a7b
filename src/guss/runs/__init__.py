"""Runs: what is kept of an experiment, and how it came about."""
