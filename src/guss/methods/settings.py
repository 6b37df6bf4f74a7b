"""Settings of agents and runs: each is a field of a dataclass, from which its flag, its entry in a preset and in a
stored config, and its row in a table follow."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from guss.collect.exploration import EXPLORE
from guss.errors import GussError, UnknownNameError
from guss.method import Method
from guss.methods import METHODS, check_method, method_class
from guss.models.settings import declared_settings, model_class, settings_for
from guss.models.training import FitSettings
from guss.planners import PLANNERS, check_plan_size, checked_settings
from guss.task import LEARNABLE, Task
from guss.validation import changed_fields, check_fields, check_ranges, types_of

MOST_FIRST_STEPS = 200
"""Random steps at the start that are enough where a user does not say how many."""


NESTED = ("method_settings", "model_settings", "fit")
"""Fields that hold a dataclass of settings."""


def settings_of_method(name: str, values: Any) -> Any:
    """Settings of the method `name` as a dataclass: from a table, or from another method's settings."""
    check_method(name)
    cls: Any = METHODS[name].item if name in METHODS.names() else PLANNERS[name].item
    declared = declared_settings(cls)
    if isinstance(values, declared):
        return values
    table = changed_fields(values) if dataclasses.is_dataclass(values) else values
    return declared(**checked_settings(name, cls, table))


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Everything that decides how an agent behaves, but for its seed.

    Raises:
        GussError: a value is not allowed.

    Example:
        >>> settings = guss.AgentSettings(method="guss", horizon=10, method_settings={"num_new": 3})
        >>> settings.method_settings.num_new, settings.learns
        (3, True)
    """

    method: str = "guss"
    """The planner, or a policy that learns without planning; `guss list` shows all."""
    model: str = "darmdn"
    """The model: one of `guss list`, such as darmdn, dmdn or oracle (the true dynamics, nothing is learned), or a
    custom one that a plugin registers."""
    horizon: int = 15
    """H: steps of a plan."""
    budget: int = 100
    """M: plans evaluated per step."""
    initial_episodes: int = 1
    """Random episodes at the start (3 where the reward is learned and no preset says otherwise); an Agent with an
    `initial_policy` acts with that instead."""
    initial_steps: int | None = None
    """Least number of steps in these episodes: where episodes end early, more of them are random. None: as many as
    full-length episodes have, but at most 200."""
    explore: str = "smooth"
    """How random actions are drawn: smooth (temporally correlated) or iid (independent, as in the paper). The method
    random always draws independent ones."""
    planning_margin: float | dict[str, float] = 0.0
    """Plan with limits that are stricter by this much, in the unit of the constraint; steps are scored with the limits
    as they are. One number for all constraints, or a name and a number for each."""
    learned: tuple[str, ...] = ()
    """What to learn although the Task knows it: reward, cost, behaviour."""
    hard: tuple[str, ...] = ()
    """Constraints that are hard limits: a violation ends the episode, and is worse than any soft one in a plan."""
    unknown_unsafe: bool = False
    """Count predicted states far from all training data as unsafe."""
    method_settings: Any = field(default_factory=dict)
    """Settings of the method itself: a table, which becomes a dataclass with the settings that the method declares."""
    model_settings: Any = field(default_factory=dict)
    """Settings of the model: a table, which becomes the dataclass of that model's settings."""
    fit: FitSettings = field(default_factory=FitSettings)
    """How the model is trained."""

    def __post_init__(self) -> None:
        check_fields(self, "settings")
        object.__setattr__(self, "method_settings", settings_of_method(self.method, self.method_settings))
        model_settings = settings_for(self.model, self.model_settings, "settings.model_settings")
        object.__setattr__(self, "model_settings", model_settings)
        check_ranges(self, "settings", horizon="[1, inf)", budget="[1, inf)", planning_margin="[0, inf)")
        check_ranges(self, "settings", initial_episodes="[0, inf)", initial_steps="[0, inf)")
        check_plan_size(self.horizon, self.budget, model_settings.num_particles)
        if self.planning_margin == {}:
            raise GussError("settings.planning_margin must be a number, or names of constraints and numbers; got none")
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

    @property
    def unused(self) -> set[str]:
        """Settings that the method does not use: they are not stored."""
        if not self.is_policy:
            return set()
        unused = {"horizon", "budget"}
        if not self.method_class.model_based:
            unused |= {"model", "model_settings", "fit"}
        if not self.method_class.explores_first:
            unused |= {"initial_episodes", "initial_steps", "explore"}
        return unused

    def arguments(self) -> dict[str, Any]:
        """As keyword arguments of `Agent`."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name in types_of(AgentSettings)}

    def to_json(self) -> dict[str, Any]:
        """As plain data, to be stored: all that the method uses."""
        return self._plain(dataclasses.asdict(self))

    def changed(self) -> dict[str, Any]:
        """The same without what has its default value: settings that are added later do not change it."""
        return self._plain(changed_fields(self))

    def _plain(self, values: dict[str, Any]) -> dict[str, Any]:
        left_out = self.unused | {each.name for each in dataclasses.fields(self) if not each.compare}
        return json.loads(json.dumps({name: value for name, value in values.items() if name not in left_out}))


@dataclass(frozen=True, kw_only=True)
class RunSettings(AgentSettings):
    """Everything that decides a run's outcome, but for its seeds and logged data.

    Raises:
        GussError: as AgentSettings does.

    Example:
        >>> guss.RunSettings(env="safe-pendulum", method="rs", episodes=20).episodes
        20
    """

    env: str
    """The environment: one of `guss list`, a Gymnasium id, or a custom one as module:function or file.py:function."""
    episodes: int = 50
    """At most this many episodes, random ones included. With --resume: extend the run to this many in all."""
    target: float | None = None
    """Stop after a planned episode whose mean reward, over all seeds, reaches this. With --resume: another target, or
    inf for none."""
    episode_length: int | None = None
    """Steps of an episode, where a custom environment has no time limit."""
    without_cost: bool = False
    """A custom environment reports no cost: nothing is unsafe."""
    step_timeout: float = 60.0
    """Seconds that a step of an environment may take; beyond that its episode is abandoned, not the run."""
    env_process: bool = False
    """Each environment in its own process, which is killed where a step hangs, and may crash without ending the run;
    otherwise in a thread. Results are the same."""
    overlap: bool = False
    """On a slow custom environment: plan for one half of the seeds while the environments of the other half step."""


RENAMED = {"planner": "method_settings", "net": "model_settings"}


def current_names(settings: dict[str, Any]) -> dict[str, Any]:
    """Stored settings under the names that they have now."""
    return {RENAMED.get(name, name): value for name, value in settings.items()}
