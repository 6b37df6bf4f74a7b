"""Models predict next states. The oracle is a task's true dynamics; all other models are learned.

Custom models: subclass `guss.Model` and decorate the class with `@register_model("my-model")`.
"""

from typing import Any

from guss.registry import Registry

MODELS: Registry[type[Any]] = Registry(
    "model", "guss.models", ("guss.models.oracle", "guss.models.mdn", "guss.models.egocentric")
)
register_model = MODELS.register
