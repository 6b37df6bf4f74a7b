"""Sweeps: studies of many runs, executed by any number of workers that share a folder."""
