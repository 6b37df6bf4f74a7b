"""How an agent learns and plans, as plain settings; presets and flags become these."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from guss.collect.exploration import EXPLORE
from guss.errors import GussError, UnknownNameError
from guss.method import Method
from guss.methods import METHODS, check_method, method_class
from guss.models.settings import model_class, setting_types, settings_for
from guss.models.training import FitSettings
from guss.planners import PLANNERS, check_plan_size, checked_settings
from guss.task import LEARNABLE, Task
from guss.validation import build, check_fields, check_ranges, checked, convert, types_of

T = TypeVar("T", bound="AgentSettings")
KINDS = ("planners", "baselines")
"""Tables of a preset with what it says of single methods."""
UNKNOWN_EPISODES = 3
"""Random episodes at the start where reward and cost are not known: what is safe must have been met, too."""
MOST_FIRST_STEPS = 200
"""Random steps at the start that are enough where a user does not say how many."""


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
    net: Any = field(default_factory=dict)
    """The model's settings: a table, which becomes the dataclass of that model's settings."""
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
        check_fields(self, "settings")
        object.__setattr__(self, "net", settings_for(self.model, self.net, "settings.net"))
        check_method(self.method)
        kind, cls = ("method", self.method_class) if self.is_policy else ("planner", PLANNERS[self.method].item)
        checked_settings(kind, self.method, cls, self.planner)
        check_ranges(self, "settings", horizon="[1, inf)", budget="[1, inf)", planning_margin="[0, inf)")
        check_ranges(self, "settings", initial_episodes="[0, inf)", initial_steps="[0, inf)")
        check_plan_size(self.horizon, self.budget, self.net.num_particles)
        if self.explore not in EXPLORE:
            raise UnknownNameError("way to explore", self.explore, EXPLORE)
        for name in self.learned:
            if name not in LEARNABLE:
                raise UnknownNameError("thing to learn:", name, LEARNABLE)

    @property
    def method_class(self) -> type[Method]:
        """The class of the method."""
        return method_class(self.method)

    @property
    def is_policy(self) -> bool:
        """Whether the method is not a planner: it has no horizon and no budget."""
        return self.method in METHODS.names()

    @property
    def acts_randomly(self) -> bool:
        """Whether all actions are random, and nothing is learned."""
        return self.method_class.phase == "random"

    @property
    def plans(self) -> bool:
        """Whether the method plans."""
        return self.method_class.plans

    @property
    def learns(self) -> bool:
        """Whether there is a model to fit."""
        return self.plans and model_class(self.model).learns()

    def is_random(self, episode: int, steps: int, episode_length: int) -> bool:
        """Whether an episode's actions are random ones, after so many `steps` in the episodes before it."""
        whole = min(self.initial_episodes * episode_length, MOST_FIRST_STEPS)
        enough = whole if self.initial_steps is None else self.initial_steps
        first = episode < self.initial_episodes or steps < enough
        return self.acts_randomly or (self.method_class.explores_first and first)

    def explores(self) -> str:
        """How random actions follow each other: the random method draws each on its own."""
        return "iid" if self.acts_randomly else self.explore

    def tasks(self, task: Task) -> tuple[Task, Task]:
        """The task by which steps are judged, and the one by which plans are."""
        task = task.with_hard(self.hard)
        if self.learns:
            task = task.with_end()
        elif self.plans and task.learns_end:  # the model learns nothing
            task = task.replace(learns_end=False)
        planned = task.forget(self.learned).with_margin(self.planning_margin)
        return task, planned.replace(unknown_unsafe=True) if self.unknown_unsafe else planned

    def check_parameters_of(self, task: Task, name: str, parameters: dict[str, Any]) -> None:
        """Whether there are parameters, and plans use those of the constraint; an unknown name is an error too."""
        if not parameters:
            raise GussError(f"set_constraint({name!r}) changes nothing: give parameters, such as limit=0.4")
        known = {c.name: c for c in task.constraints}
        if name not in known:
            raise UnknownNameError(f"constraint of task {task.name!r}", name, known)
        if "cost" in self.learned and not known[name].learned:
            raise GussError(
                f"the cost of constraint {name!r} is learned from data (learned={self.learned}), so plans do not use "
                f"its parameters; leave `cost` out of `learned` to plan with them"
            )

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


PRESET: dict[str, Any] = {"env": str, "episodes": int, "target": float} | types_of(AgentSettings)
"""What a preset may hold: settings by name, and tables."""
for _name in ("method", "planner", "model", "net", "fit"):
    del PRESET[_name]
PRESET_KEYS = tuple(PRESET)
PRESET |= dict.fromkeys(("model", "fit"), dict[str, Any]) | dict.fromkeys(KINDS, dict[str, dict[str, Any]])


def checked_preset(preset: Any) -> dict[str, Any]:
    """A preset (the tables of a TOML file) with the types it must have; whatever else it holds raises GussError."""
    found = checked(PRESET, preset, "preset", "the preset")
    for name in found.get("planners", {}):
        PLANNERS[name]  # raises on unknown names
    return found


def settings_from(
    cls: type[T],
    preset: Any,
    method: str,
    *,
    planner: Any = None,
    net: Any = None,
    fit: Any = None,
    **overrides: Any,
) -> T:
    """Settings of a method from a preset (the tables of a TOML file); what is given and not None overrides it."""
    preset = checked_preset(preset)
    names = types_of(cls)
    for name in overrides:
        if name not in names:
            raise UnknownNameError("setting", name, names)
    values = {name: preset[name] for name in PRESET_KEYS if name in preset and name in names}
    own = _method_table(preset, method)
    tables = [preset.get("model", {}), own.pop("model", {})]  # a method's own come first
    tables += [{"name": overrides["model"]}] if overrides.get("model") is not None else []
    model, chosen = _model([*tables, _table(net, "net")], cls.model)
    schooling = preset.get("fit", {}) | own.pop("fit", {})
    mine = [name for name in PRESET_KEYS if name not in ("env", "target", "learned", "hard")]
    values |= {name: own.pop(name) for name in mine if name in own}
    values |= {name: value for name, value in overrides.items() if value is not None}
    values |= {
        "method": method,
        "planner": own | _table(planner, "planner"),
        "model": model,
        "net": settings_for(model, chosen, "model"),
        "fit": build(FitSettings, schooling | _table(fit, "fit"), "fit"),
    }
    return build(cls, values, "settings")


def _model(tables: Iterable[dict[str, Any]], name: str) -> tuple[str, dict[str, Any]]:
    """The model that tables name, and its settings; later tables come first.

    A table that names another model drops the settings of the one before that the new one does not have.
    """
    found: dict[str, Any] = {}
    for table in tables:
        name = convert(table.get("name", name), str, "settings.model")
        kinds = setting_types(name)
        own = {key: value for key, value in table.items() if key != "name"}
        found = {key: value for key, value in found.items() if key in kinds} | checked(kinds, own, "model")
    return name, found


def _table(values: Any, what: str) -> dict[str, Any]:
    """What is given as a dict of settings; None: nothing."""
    return {} if values is None else convert(values, dict[str, Any], what)


def _method_table(preset: dict[str, Any], method: str) -> dict[str, Any]:
    """What a preset says of one method, its `model` and `fit` as tables."""
    own: dict[str, Any] = {}
    for kind in KINDS:
        own |= preset.get(kind, {}).get(method, {})
        for name in ("model", "fit"):
            if name in own:
                own[name] = _table(own[name], f"preset.{kind}.{method}.{name}")
    return own
