"""Settings of learned models: those of all models, of networks, and those that a custom model declares."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from guss.errors import GussError
from guss.limits import MAX_WEIGHTS
from guss.models import MODELS
from guss.models.layers import Activation
from guss.types import Model, settings_of
from guss.validation import build, changed_fields, check_fields, check_ranges, received, types_of

ENSEMBLE = ("ensemble", "propagation")
"""Settings of the ensemble, not of its members."""


@dataclass(frozen=True)
class CommonSettings:
    """Settings that every learned model has."""

    hidden: tuple[int, ...] = (50, 50)
    """Units of the hidden layers of all networks, including those of a learned reward and cost."""
    activation: Activation = "silu"
    """silu, relu or tanh."""
    ensemble: int = 1
    """Members of the ensemble; 1: no ensemble."""
    propagation: Literal["member", "resampled"] = "member"
    """member: one member predicts all steps of a particle; resampled: a random member predicts each step."""

    def __post_init__(self) -> None:
        check_fields(self, "model")
        if not self.hidden or min(self.hidden) < 1:
            raise GussError(f"a model needs hidden layers of at least 1 unit, got {self.hidden}")
        check_ranges(self, "model", ensemble="[1, inf)")
        MAX_WEIGHTS.check(f"a model with hidden layers of {received(list(self.hidden))} units", self.num_weights)

    @property
    def num_outputs(self) -> int:
        """Lower bound of a network's outputs per predicted number."""
        return 1

    @property
    def num_weights(self) -> int:
        """Lower bound of the weights of all members: those for one input and one predicted number."""
        return self.ensemble * sum(a * b for a, b in pairwise((1, *self.hidden, self.num_outputs)))

    @property
    def num_particles(self) -> int:
        """Predictions per plan, as far as settings determine them."""
        return self.ensemble


@dataclass(frozen=True)
class ModelSettings(CommonSettings):
    """Settings of models that are mixture density networks.

    Raises:
        GussError: values contradict each other.

    Example:
        >>> guss.ModelSettings(ensemble=5, particles=4, deterministic=False).num_particles
        20
    """

    components: int = 1
    """K: Gaussians in the mixture."""
    deterministic: bool = True
    """Plan with the predicted mean; otherwise with samples."""
    particles: int = 1
    """Samples per plan, if not deterministic."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, "model", components="[1, inf)", particles="[1, inf)")
        if self.particles > 1 and self.deterministic:
            raise GussError(
                f"particles={self.particles} needs a stochastic model, but this model predicts its mean "
                f"(deterministic=true): also set deterministic=false (--model.no-deterministic)"
            )

    @property
    def num_outputs(self) -> int:
        """At least one per Gaussian."""
        return self.components

    @property
    def num_particles(self) -> int:
        return self.ensemble * (1 if self.deterministic else self.particles)


def model_class(name: str) -> type[Model]:
    """The registered model of that name."""
    item = MODELS[name].item
    if not (isinstance(item, type) and issubclass(item, Model)):
        raise GussError(f"model {name!r} must be a subclass of guss.Model, got {received(item)}")
    return item


def settings_class(model: type[Model]) -> type[CommonSettings]:
    """The dataclass of a model's settings: `Model.Settings`, or CommonSettings with a field for each `setting`."""
    if model.Settings is not None:
        return model.Settings
    return declared_settings(model, CommonSettings)


@functools.cache
def declared_settings(cls: type[Any], *bases: type[Any]) -> type[Any]:
    """A dataclass with the fields that a class declares with `guss.setting`, added to those of `bases`."""
    kinds = types_of(cls)
    fields = [
        (name, kinds[name], dataclasses.field(default=f.default, metadata=f.metadata))
        for name, f in settings_of(cls).items()
    ]
    about = {"__doc__": (cls.__doc__ or "").partition("\n")[0]}
    return dataclasses.make_dataclass(f"{cls.__name__}Settings", fields, bases=bases, namespace=about, frozen=True)


def num_particles(name: str, settings: CommonSettings) -> int | None:
    """Particles of the model `name` with these settings; None: a custom model determines them itself."""
    known = isinstance(settings, ModelSettings) or model_class(name).num_particles is Model.num_particles
    return settings.num_particles if known else None


def setting_types(name: str) -> dict[str, Any]:
    """The types of a model's settings, by name."""
    return types_of(settings_class(model_class(name)))


def settings_for(name: str, values: Any, what: str) -> CommonSettings:
    """Settings of the model `name`: from a dict, or from those settings of another model that are not defaults.

    `what` names the dict in errors.
    """
    cls = settings_class(model_class(name))
    if isinstance(values, CommonSettings) and type(values) is not cls:
        values = changed_fields(values)
    return values if isinstance(values, cls) else build(cls, values, what)


def own_settings(model: type[Model], settings: CommonSettings) -> dict[str, Any]:
    """Arguments of `Model.create`: the settings that the model declares."""
    names = settings_of(model) if model.Settings is None else [n for n in types_of(model.Settings) if n not in ENSEMBLE]
    return {name: getattr(settings, name) for name in names}
