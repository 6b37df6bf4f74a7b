"""Whole episodes of an agent on its system: compiled as one program, or step by step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from guss.collect.compiled import EPISODES, CompiledCollector
from guss.collect.episode_metrics import summarise
from guss.collect.inputs import HostSystem, check_steps
from guss.errors import GussError
from guss.history import Episode, OnEpisode
from guss.methods.planning import EVALUATION
from guss.progress import EpisodeSummary, learning_progress
from guss.validation import convert


def learn(
    agent: Any, episodes: int, target: float | None, on_episode: OnEpisode, progress: bool | None
) -> list[Episode]:
    """See `Agent.learn`."""
    target = convert(target, float | None, "the target")
    if convert(episodes, int, "episodes") < 1:
        raise GussError(f"learn at least 1 episode, got {episodes}")
    check_steps(agent.task, agent.env)
    agent.reset()
    agent._compile_ahead(episodes=agent.env is None and agent.initial_policy is None)
    before = len(agent.history)
    with learning_progress(episodes, progress) as shown:
        for number in range(episodes):
            if agent.env is None and agent.phase != "initial_policy":
                _compiled_episode(agent)
            else:
                _host_episode(agent, shown.step)
            last = agent.history[-1]
            shown.episode(_summary(agent, last, number))
            if on_episode is not None:
                on_episode(last)
            if target is not None and last.phase == agent.method.phase and last.mean_reward >= target:
                break
    return agent.history[before:]


def _summary(agent: Any, last: Episode, number: int) -> EpisodeSummary:
    """The last episode for display, as episode `number`."""
    length, r2 = agent.task.episode_length, last.model.get("r2")
    return summarise(
        agent.task,
        [agent.last_metrics],
        {"fit_seconds": last.fit_seconds, "plan_seconds": last.plan_seconds},
        episode=number,
        phase=last.phase,
        ends_early=any(episode.steps != length for episode in agent.history),
        model_r2=None if r2 is None else float(np.mean([np.nan if x is None else x for x in r2])),
        trouble=("a hard limit was violated",) if last.hard_stop else (),
    )


def _compiled_episode(agent: Any) -> None:
    """One episode of a compiled task: one program."""
    collector, keys = CompiledCollector(agent.task, [agent.seed]), agent._keys.episode[None, None]
    if agent.phase == "random":
        found, _ = collector.explore(keys, agent.settings.explores(), agent.episode)
    else:
        agent.fit()
        started = time.perf_counter()
        agent._ahead.wait(EVALUATION, EPISODES)
        found, _ = collector.collect(agent.method, agent.method.acting(agent.state), keys, agent.episode)
        agent._open.plan_seconds += time.perf_counter() - started
    steps = int(found.valid.sum())
    agent._close(jax.tree.map(lambda x: x[:, :, :steps], found))


def _host_episode(agent: Any, on_step: Callable[[int], Any]) -> None:
    """One episode of a Gymnasium environment, or of a compiled task step by step."""
    system, episode = HostSystem(agent.task, agent.env), agent.episode
    obs = system.reset(agent._keys.reset, agent.seed, episode)
    while agent.episode == episode:
        transition, ended, over, use = system.step(obs, agent.act(obs), agent._keys.steps, len(agent._open.steps))
        agent.observe(transition, end=over, terminated=ended, use=use)
        obs = np.asarray(transition.next_obs)
        on_step(len(agent._open.steps))
