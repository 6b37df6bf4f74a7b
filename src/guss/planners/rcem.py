"""The robust cross-entropy method (Liu 2020): elites are ranked by feasibility, then by reward."""

from __future__ import annotations

from guss.planners import register_planner
from guss.planners.cem import CrossEntropyPlanner
from guss.planners.sequences import FeasibleFirst


@register_planner("rcem", paper="Sec. 5.1, baseline RCEM")
class RobustCrossEntropy(FeasibleFirst, CrossEntropyPlanner):
    """Robust cross-entropy method: refits to the best feasible samples, or to the least costly if few are feasible."""
