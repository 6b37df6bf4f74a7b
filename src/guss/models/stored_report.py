"""The report of a fit as plain numbers, in checkpoints of runs and files of agents."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from guss.errors import GussError
from guss.models.evaluation import FitReport
from guss.models.outcomes import OutcomeReport
from guss.validation import received


def report_numbers(report: FitReport | None) -> list[Any] | None:
    """A report as plain data."""
    return [np.asarray(x, float).tolist() for x in jax.tree.leaves(report)] or None


def report_from(values: Any, lead: tuple[int, ...]) -> FitReport | None:
    """The inverse of `report_numbers`: numbers of the fit, then of learned outcomes; `lead`: leading axes."""
    if values is None:
        return None
    count, more = len(FitReport._fields) - 1, len(OutcomeReport._fields)
    try:
        own: Any = [np.asarray(x, float) for x in values]
    except (TypeError, ValueError) as error:
        raise GussError(f"a stored report must be lists of numbers, got {received(values)}") from error
    fits = [x.shape[: len(lead)] == lead and x.ndim <= len(lead) + 1 for x in own]
    if len(own) not in (count, count + more) or not all(fits):
        raise GussError(f"a stored report must be {count} or {count + more} numbers or lists, got {received(values)}")
    parts = [*own[:count], OutcomeReport(*own[count:]) if own[count:] else None]
    return FitReport(*parts)
