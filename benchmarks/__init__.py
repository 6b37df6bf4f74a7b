"""Speed of guss: the cases, their implementation in guss and in other libraries (`peers/`), and the clock.

`make bench` measures everything (`run.py`); docs/performance.md shows the results.
"""
