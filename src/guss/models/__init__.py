"""Models: what will happen. For now the oracle, a task's own dynamics; learned models stand beside it by name."""

from guss.registry import Registry
from guss.types import Model

MODELS: Registry[type[Model]] = Registry("model", "guss.models", ("guss.models.oracle",))
register_model = MODELS.register
