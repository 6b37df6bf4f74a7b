"""How an agent learns and plans, as plain settings; presets and flags become these."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, TypeVar

from guss.agent.exploration import EXPLORE
from guss.errors import GussError, UnknownNameError
from guss.models import MODELS
from guss.models.fitting import FitSettings
from guss.models.learned import ModelSettings
from guss.planners import PLANNERS, as_settings
from guss.task import LEARNABLE, Task

T = TypeVar("T", bound="AgentSettings")
PRESET_KEYS = (
    "env",
    "episodes",
    "target",
    "horizon",
    "budget",
    "initial_episodes",
    "initial_steps",
    "explore",
    "planning_margin",
    "learned",
    "hard",
    "unknown_unsafe",
)
UNKNOWN_EPISODES = 3
"""Random episodes at the start where reward and cost are not known: what is safe must have been met, too."""
MOST_FIRST_STEPS = 200
"""Random steps at the start that are enough where a user does not say how many."""
PRESET_TABLES = ("model", "fit", "planners", "baselines")


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Everything that decides how an agent behaves, but for its seed."""

    method: str = "guss"
    """The planner."""
    horizon: int = 15
    """H: steps of a plan."""
    budget: int = 100
    """M: plans evaluated per step."""
    planner: dict[str, Any] = field(default_factory=dict)
    """The planner's own settings."""
    model: str = "darmdn"
    """The model's name; "oracle" plans with the true dynamics and learns nothing."""
    net: ModelSettings = field(default_factory=ModelSettings)
    """What the model looks like."""
    fit: FitSettings = field(default_factory=FitSettings)
    """How it is trained."""
    initial_episodes: int = 1
    """Episodes with random actions (or the user's own controller) at the start."""
    initial_steps: int | None = None
    """Steps that these episodes have at least, in all: more of them are played where they end early. None: as many as
    `initial_episodes` episodes of full length have, but at most 200."""
    explore: str = "smooth"
    """How random actions follow each other: smooth or iid."""
    planning_margin: float | dict[str, float] = 0.0
    """By how much stricter plans are judged than steps: for all constraints, or for those named."""
    learned: tuple[str, ...] = ()
    """What is learned although the Task knows it: reward, cost, behaviour."""
    hard: tuple[str, ...] = ()
    """Constraints that are hard limits: a violation ends the episode, and no plan may count on one."""
    unknown_unsafe: bool = False
    """Whether predicted states far from all training data count as unsafe."""

    def __post_init__(self) -> None:
        MODELS[self.model]  # unknown names are told here
        self.check_method()
        if self.initial_episodes < 0:
            raise GussError(f"initial_episodes must not be negative, got {self.initial_episodes}")
        if self.initial_steps is not None and self.initial_steps < 0:
            raise GussError(f"initial_steps must not be negative, got {self.initial_steps}")
        if self.explore not in EXPLORE:
            raise UnknownNameError("way to explore", self.explore, EXPLORE)
        for name in self.learned:
            if name not in LEARNABLE:
                raise UnknownNameError("thing to learn:", name, LEARNABLE)

    def check_method(self) -> None:
        """An unknown method is told."""
        PLANNERS[self.method]

    @property
    def plans(self) -> bool:
        """Whether the method plans at all: the random one does not, and needs no model."""
        return PLANNERS[self.method].item.judges != "nothing"

    @property
    def learns(self) -> bool:
        """Whether there is a model to fit."""
        return self.plans and self.model != "oracle"

    def is_random(self, episode: int, steps: int, episode_length: int) -> bool:
        """Whether an episode's actions are random ones, after so many `steps` in the episodes before it."""
        return not self.plans or self.begins(episode, steps, episode_length)

    def begins(self, episode: int, steps: int, episode_length: int) -> bool:
        """Whether an episode is one of the first, before there are enough data to learn from."""
        whole = min(self.initial_episodes * episode_length, MOST_FIRST_STEPS)
        return episode < self.initial_episodes or steps < (whole if self.initial_steps is None else self.initial_steps)

    def explores(self) -> str:
        """How random actions follow each other: the random method draws each on its own."""
        return self.explore if self.plans else "iid"

    def tasks(self, task: Task) -> tuple[Task, Task]:
        """The task by which steps are judged, and the one by which plans are."""
        task = task.with_hard(self.hard)
        if self.learns:
            task = task.with_end()
        elif self.plans and task.learns_end:  # the oracle learns nothing
            task = task.replace(learns_end=False)
        planned = task.forget(self.learned).with_margin(self.planning_margin)
        return task, planned.replace(unknown_unsafe=True) if self.unknown_unsafe else planned

    def arguments(self) -> dict[str, Any]:
        """As keyword arguments of `Agent`."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(AgentSettings)}
        return own | {name: dataclasses.asdict(own[name]) for name in ("net", "fit")}

    def to_json(self) -> dict[str, Any]:
        """As plain data; what was added later and is not used is not mentioned."""
        late = ("planning_margin", "learned", "hard", "unknown_unsafe")
        silent = [name for name in late if not getattr(self, name)]
        silent += ["initial_steps"] if self.initial_steps is None else []
        plain = {k: v for k, v in json.loads(json.dumps(dataclasses.asdict(self))).items() if k not in silent}
        for name in ("cost_blur", "reward_margin", "reach"):
            if getattr(self.fit, name) == getattr(FitSettings, name):
                del plain["fit"][name]
        return plain


def settings_from(
    cls: type[T],
    preset: dict[str, Any],
    method: str,
    *,
    planner: dict[str, Any] | None = None,
    net: dict[str, Any] | None = None,
    fit: dict[str, Any] | None = None,
    **overrides: Any,
) -> T:
    """Settings of a method from a preset (the tables of a TOML file); what is given and not None overrides it."""
    known = (*PRESET_KEYS, *PRESET_TABLES)
    for name in preset:
        if name not in known:
            raise UnknownNameError("entry of the preset", name, known)
    model = dict(preset.get("model", {}))
    names = {f.name for f in dataclasses.fields(cls)}
    values: dict[str, Any] = {name: preset[name] for name in PRESET_KEYS if name in preset and name in names}
    values |= {name: tuple(values[name]) for name in ("learned", "hard") if name in values}
    own = dict(preset.get("planners", {}).get(method, {}) | preset.get("baselines", {}).get(method, {}))
    model |= own.pop("model", {})  # a method's own come first
    schooling = preset.get("fit", {}) | own.pop("fit", {})
    values |= {"model": model.pop("name")} if "name" in model else {}
    mine = [name for name in PRESET_KEYS if name not in ("env", "target", "learned", "hard")]
    values |= {name: own.pop(name) for name in mine if name in own}
    values |= {name: value for name, value in overrides.items() if value is not None}
    return cls(
        method=method,
        planner=own | (planner or {}),
        net=as_settings("the model", ModelSettings, model | (net or {})),
        fit=as_settings("fit", FitSettings, schooling | (fit or {})),
        **values,
    )


def settings_from_json(cls: type[T], values: dict[str, Any]) -> T:
    """Settings as they were stored by `to_json`."""
    names = {f.name for f in dataclasses.fields(cls)}
    for name in values:
        if name not in names:
            raise UnknownNameError("stored setting", name, names)
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    plain["net"] = as_settings("the model", ModelSettings, values.get("net", {}))  # not stored where there is none
    plain["fit"] = as_settings("fit", FitSettings, values.get("fit", {}))
    return cls(**plain)
