"""Runs: training, stored records, evaluation and replays."""
