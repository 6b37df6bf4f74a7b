"""Models predict what will happen. The oracle is a task's own dynamics; the others are learned.

Write your own: subclass `guss.Model`, decorate it with `@register_model("my-model")`.
"""

from typing import Any

from guss.registry import Registry

MODELS: Registry[type[Any]] = Registry(
    "model", "guss.models", ("guss.models.oracle", "guss.models.mdn", "guss.models.egocentric")
)
register_model = MODELS.register
