"""Models: what will happen. The oracle is a task's own dynamics; the others are learned."""

from collections.abc import Callable
from typing import Any

from guss.registry import Registry

MODELS: Registry[Callable[..., Any]] = Registry(
    "model", "guss.models", ("guss.models.oracle", "guss.models.mdn", "guss.models.egocentric")
)
register_model = MODELS.register
