"""How fast guss is: the cases, our side of them, the clock, and the peers' side (`peers/`).

`make bench` measures everything (`run.py`); docs/performance.md shows the outcome.
"""
