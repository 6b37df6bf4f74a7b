"""How fast guss is: the cases, our side of them, and the clock. The peers' side is in `benchmarks/` of the repository.

`guss bench` measures ours alone, against the limit; `make bench` adds the peers. docs/performance.md shows the outcome.
"""
