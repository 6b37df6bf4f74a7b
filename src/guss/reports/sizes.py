"""Sentences on the seeds and episodes of the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from guss.reports.inventory import Record, grouped
from guss.reports.labels import seed_numbers


def sizes_of(records: Iterable[Record]) -> list[str]:
    """Whether the runs of an environment have the same seeds, and its planners the same number of episodes.

    Runs that differ are named. Methods that do not plan need other numbers of episodes, which are listed.
    """
    records = list(records)
    plans = grouped(records, lambda record: None if record.kind is None else record.kind.plans)
    texts = [_compared(records, _seeds, "All rows have", "The rows have different seeds")]
    if True in plans:
        texts.append(
            _compared(plans[True], _episodes, "All planners have", "The planners have different numbers of episodes")
        )
    if False in plans:
        texts.append(f"Methods that do not plan: {_named(_labels_by(plans[False], _episodes))}.")
    if None in plans:
        texts.append(f"Other methods: {_named(_labels_by(plans[None], _episodes))}.")
    return texts


def _compared(records: list[Record], text: Callable[[Record], str], same: str, different: str) -> str:
    """A sentence with the one text that all runs have, or with each text and its runs."""
    found = _labels_by(records, text)
    return f"{same} {next(iter(found))}." if len(found) == 1 else f"{different}: {_named(found)}."


def _labels_by(records: list[Record], text: Callable[[Record], str]) -> dict[str, str]:
    """The labels of the runs with each text."""
    return {key: ", ".join(record.label for record in mine) for key, mine in grouped(records, text).items()}


def _named(found: dict[str, str]) -> str:
    return "; ".join(f"{text} ({labels})" for text, labels in found.items())


def _seeds(record: Record) -> str:
    return f"{len(record.seeds)} seed{'s' * (len(record.seeds) != 1)}: {seed_numbers(record.seeds)}"


def _episodes(record: Record) -> str:
    return f"{record.done:,} episode{'s' * (record.done != 1)}"
