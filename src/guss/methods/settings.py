"""Settings of agents and runs: dataclass fields, from which flags, entries of presets and stored configs, and
documentation tables are derived."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from guss.collect.exploration import EXPLORE
from guss.errors import GussError, UnknownNameError
from guss.method import Method
from guss.methods import METHODS, method_class, method_entry
from guss.models.settings import (
    ENSEMBLE,
    ModelSettings,
    declared_settings,
    model_class,
    num_particles,
    settings_class,
    settings_for,
)
from guss.models.training import FitSettings
from guss.planners import check_plan_size, checked_settings
from guss.risk_measures import RiskMeasure
from guss.task import LEARNABLE, Task
from guss.types import settings_of
from guss.validation import changed_fields, check_fields, check_ranges, types_of

MOST_FIRST_STEPS = 200
"""Random steps at the start that are enough by default."""


SCORING = ("unknown_unsafe", "risk", "disagreement", "smoothness", "max_change")
"""Settings that are fields of the task that scores plans; None, False or 0: as the Task defines it."""
NESTED = ("method_settings", "model_settings", "fit")
"""Fields that hold a dataclass of settings."""


def unused_model_settings(name: str) -> list[str]:
    """Settings without effect on the model `name`, which learns nothing: those of networks and of their ensemble."""
    model = model_class(name)
    names = types_of(settings_class(model))
    own = settings_of(model) if model.Settings in (None, ModelSettings) else {*names} - {*ENSEMBLE}
    unused = [f"model_settings.{each}" for each in names if each not in own]
    return unused if len(unused) < len(names) else ["model_settings"]


def settings_of_method(name: str, values: Any) -> Any:
    """Settings of the method `name` as a dataclass: from a dict, or from another method's settings."""
    cls = method_entry(name).item
    declared = declared_settings(cls)
    if isinstance(values, declared):
        return values
    table = changed_fields(values) if dataclasses.is_dataclass(values) else values
    return declared(**checked_settings(name, cls, table))


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """All settings that determine an agent's behaviour, except its seed.

    Raises:
        GussError: a value is not allowed.

    Example:
        >>> settings = guss.AgentSettings(method="guss", horizon=10, method_settings={"num_new": 3})
        >>> settings.method_settings.num_new, settings.learns
        (3, True)
    """

    method: str = "guss"
    """The method: a planner, or a method that learns a policy instead of planning; `guss list` shows all."""
    model: str = "darmdn"
    """The model: one of `guss list`, such as darmdn, dmdn or oracle (the true dynamics, nothing is learned), or a
    custom one that a plugin registers."""
    horizon: int = 15
    """H: steps of a plan."""
    budget: int = 100
    """M: plans evaluated per step."""
    initial_episodes: int = 1
    """Random episodes at the start (3 if the reward is learned and no preset sets them); an Agent with an
    `initial_policy` uses this policy instead of random actions."""
    initial_steps: int | None = None
    """Minimum number of steps in the random episodes at the start: if episodes end early, more random episodes follow.
    None: the number of steps in `initial_episodes` full-length episodes, but at most 200."""
    explore: str = "smooth"
    """How random actions are drawn: smooth (temporally correlated) or iid (independent, as in the paper). The method
    random always draws independent actions."""
    planning_margin: float | dict[str, float] = 0.0
    """Plan with limits that are stricter by this much, in the unit of the constraint; steps are scored with the
    original limits. One number for all constraints, or a dict of names and numbers."""
    smoothness: float = 0.0
    """Price on the change of actions in plans, subtracted from the predicted reward: that of a change from one bound to
    the other, or to another discrete action, mean over dimensions; smaller changes cost less. 0: that of the Task."""
    max_change: float | None = None
    """Limit on the change of continuous actions: a planned action differs from the previous one by at most this share
    of the width of its bounds (more than 0, at most 1). None: that of the Task, by default no limit."""
    learned: tuple[str, ...] = ()
    """Outcomes to learn although the Task defines them: reward, cost, behaviour."""
    hard: tuple[str, ...] = ()
    """Constraints that are hard limits: a violation ends the episode, and plans with a predicted violation rank below
    all others."""
    unknown_unsafe: bool = False
    """Treat predicted states far from all training data as unsafe."""
    risk: str | None = None
    """How a plan's cost is aggregated over ensemble members and particles: worst (maximum), mean, cvar:0.4 (mean of the
    worst 40 %) or share:0.2 (the maximum without the worst 20 %). None: as the planner defines it, usually worst."""
    disagreement: float | None = None
    """Treat predicted steps as unsafe at which the predictions of ensemble members differ by more than this many
    standard deviations of the training data. None: that of the Task, by default never."""
    method_settings: Any = field(default_factory=dict)
    """Settings of the method itself: a dict, converted to a dataclass with the settings that the method declares."""
    model_settings: Any = field(default_factory=dict)
    """Settings of the model: a dict, converted to the dataclass of that model's settings."""
    fit: FitSettings = field(default_factory=FitSettings)
    """How the model is trained."""

    def __post_init__(self) -> None:
        check_fields(self, "settings")
        object.__setattr__(self, "method_settings", settings_of_method(self.method, self.method_settings))
        model_settings = settings_for(self.model, self.model_settings, "settings.model_settings")
        object.__setattr__(self, "model_settings", model_settings)
        check_ranges(self, "settings", horizon="[1, inf)", budget="[1, inf)", planning_margin="[0, inf)")
        check_ranges(self, "settings", initial_episodes="[0, inf)", initial_steps="[0, inf)")
        check_ranges(self, "settings", smoothness="[0, inf)", max_change="(0, 1]")
        check_plan_size(self.horizon, self.budget, model_settings.num_particles)
        if self.planning_margin == {}:
            raise GussError("settings.planning_margin must be a number, or numbers by constraint name; got {}")
        if self.risk is not None:
            object.__setattr__(self, "risk", str(RiskMeasure.parse(self.risk)))
        self._check_disagreement()
        if self.explore not in EXPLORE:
            raise UnknownNameError("way to explore", self.explore, EXPLORE)
        for name in self.learned:
            if name not in LEARNABLE:
                raise UnknownNameError("outcome to learn:", name, LEARNABLE)

    def _check_disagreement(self) -> None:
        """Check the threshold, and that several predictions of a plan can disagree."""
        check_ranges(self, "settings", disagreement="(0, inf)")
        if self.disagreement is None or "disagreement" in self.unused:
            return
        if num_particles(self.model, self.model_settings) == 1:
            raise GussError(
                f"settings.disagreement compares the predictions of several ensemble members, but these settings have "
                f"one {self.model}: set model_settings.ensemble to 2 or more (--model.ensemble 5), got disagreement="
                f"{self.disagreement:g}"
            )

    @property
    def method_class(self) -> type[Method]:
        """The class of the method."""
        return method_class(self.method)

    @property
    def is_policy(self) -> bool:
        """Whether the method is a policy, not a planner: it has no horizon and no budget."""
        return self.method in METHODS.names()

    @property
    def acts_randomly(self) -> bool:
        """Whether all actions are random, and nothing is learned."""
        return self.method_class.phase == "random"

    @property
    def plans(self) -> bool:
        return self.method_class.plans

    @property
    def learns(self) -> bool:
        """Whether there is a model to fit."""
        return self.plans and model_class(self.model).learns()

    def is_random(self, episode: int, steps: int, episode_length: int) -> bool:
        """Whether an episode's actions are random; `steps`: number of steps in the episodes before it."""
        whole = min(self.initial_episodes * episode_length, MOST_FIRST_STEPS)
        enough = whole if self.initial_steps is None else self.initial_steps
        first = episode < self.initial_episodes or steps < enough
        return self.acts_randomly or (self.method_class.explores_first and first)

    def explores(self) -> str:
        """How random actions are drawn: as `explore` specifies, but independently by the method random."""
        return "iid" if self.acts_randomly else self.explore

    def tasks(self, task: Task) -> tuple[Task, Task]:
        """The task that scores steps, and the task that scores plans."""
        task = task.with_hard(self.hard)
        if self.learns:
            task = task.with_end()
        elif self.plans and task.learns_end:  # the model learns nothing
            task = task.replace(learns_end=False)
        scoring = {name: getattr(self, name) for name in SCORING if name not in self.unused}
        changed = {name: value for name, value in scoring.items() if value}
        planned = task.forget(self.learned).with_margin(self.planning_margin)
        return task, planned.replace(**changed) if changed else planned

    def check_parameters_of(self, task: Task, name: str, parameters: dict[str, Any]) -> None:
        """Raise if there are no parameters, the name is unknown, or plans do not use the constraint's parameters."""
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

    @property
    def unused(self) -> dict[str, str]:
        """Settings without effect, each with the reason; `model_settings.hidden` is one of the model.

        They are not stored, and `guss run` refuses their flags.
        """
        cls, name, found = self.method_class, self.method, dict[str, str]()
        if not cls.plans:
            found |= dict.fromkeys(("horizon", "budget", *SCORING, "overlap"), f"{name} does not plan")
        elif method_entry(name).item.objective == "reward":
            found |= dict.fromkeys(("risk", "disagreement"), f"{name} ignores the cost")
        if not cls.model_based:
            found |= dict.fromkeys(("model", "model_settings", "fit"), f"{name} learns no model")
        elif cls.plans and not self.learns:
            unused = ("fit", "disagreement", *unused_model_settings(self.model))
            found |= dict.fromkeys(unused, f"the model {self.model} learns nothing")
        if self.acts_randomly:
            unused = ("method_settings", "initial_episodes", "initial_steps", "explore", "learned", "planning_margin")
            found |= dict.fromkeys((*unused, "target"), f"all actions of {name} are random")
        elif not cls.explores_first:
            unused = ("initial_episodes", "initial_steps", "explore")
            found |= dict.fromkeys(unused, f"{name} has no random episodes at the start")
        return found

    def arguments(self) -> dict[str, Any]:
        """As keyword arguments of `Agent`."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name in types_of(AgentSettings)}

    def to_json(self) -> dict[str, Any]:
        """The settings that the method uses, as plain data to be stored."""
        return self._plain(dataclasses.asdict(self))

    def changed(self) -> dict[str, Any]:
        """The settings without default values, so that settings added later do not change it."""
        return self._plain(changed_fields(self))

    def _plain(self, values: dict[str, Any]) -> dict[str, Any]:
        left_out = {*self.unused, *(each.name for each in dataclasses.fields(self) if not each.compare)}
        return json.loads(json.dumps(without(values, left_out)))


def without(values: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A table without the named entries; `fit.batch` names the entry `batch` of its table `fit`."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        inner = [each.removeprefix(f"{name}.") for each in names if each.startswith(f"{name}.")]
        if name not in names:
            found[name] = without(value, inner) if inner and isinstance(value, dict) else value
    return found


@dataclass(frozen=True, kw_only=True)
class RunSettings(AgentSettings):
    """All settings that determine a run's outcome, except its seeds and logged data.

    Raises:
        GussError: as AgentSettings does.

    Example:
        >>> guss.RunSettings(env="safe-pendulum", method="rs", episodes=20).episodes
        20
    """

    env: str
    """The environment: one of `guss list`, a Gymnasium id, or a custom one as module:function or file.py:function."""
    episodes: int = 50
    """Maximum number of episodes, including random ones. With --resume: extend the run to this total number."""
    target: float | None = None
    """Stop after a planned episode whose mean reward, over all seeds, reaches this value. With --resume: a new target,
    or inf for none."""
    episode_length: int | None = None
    """Steps of an episode, if a custom environment has no time limit."""
    without_cost: bool = False
    """The custom environment reports no cost: nothing is unsafe."""
    step_timeout: float = 60.0
    """Maximum duration of an environment's step in seconds; a longer step ends its episode, not the run."""
    env_process: bool = False
    """Run each environment in its own process, which is killed if a step hangs, and may crash without ending the run;
    otherwise in a thread. Results are the same."""
    overlap: bool = False
    """On a slow custom environment: plan for one half of the seeds while the environments of the other half step."""


RENAMED = {"planner": "method_settings", "net": "model_settings"}


def current_names(settings: dict[str, Any]) -> dict[str, Any]:
    """Stored settings under their current names."""
    return {RENAMED.get(name, name): value for name, value in settings.items()}
