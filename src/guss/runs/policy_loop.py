"""A run of a baseline: play some episodes, let the policy learn from them, repeat; all seeds at once."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from guss.collect.exploration import explore_episodes
from guss.collect.host import Played, play, random_actor
from guss.collect.inputs import check_finite
from guss.errors import GussError
from guss.methods import make_baseline
from guss.methods.episodes import experience, one_by_one, play_compiled, policy_actor, stacked
from guss.models.evaluation import plain
from guss.runs.compile_clock import CompileClock
from guss.runs.config import RunConfig, spec_of_run
from guss.runs.loop import Loop, OnStep, Outcome

FIRST_STATE, LEARNING = 2**20, 2**20 + 1  # folded into a seed's key: no episode has the key of these


class PolicyLoop(Loop):
    """A baseline, turn by turn: as many episodes of every seed as it plays at once, then it learns."""

    every_trace = False

    def __init__(self, config: RunConfig, alone: bool = False) -> None:
        """`alone`: play one episode of a seed at a time, as when nothing is learned any more."""
        task = config.tasks(spec_of_run(config).make_task())[1]
        fields: dict[str, Any] = {"capacity": config.episodes * task.episode_length}
        if config.baseline is not None and config.baseline.model_based:
            fields |= {"model": config.model, "net": config.net, "fit": config.fit}
        self.method = make_baseline(config.method, task, config.planner, **fields)
        self.at_once = 1 if alone else self.method.at_once
        if config.episodes % self.method.at_once:
            each = self.method.at_once
            below = config.episodes // each * each
            near = f"{below} or {below + each}" if below else f"{each}"
            raise GussError(
                f"{config.method} plays {each} episodes of a seed at once, so their number is a multiple of that, as "
                f"--episodes {near}; got {config.episodes} (or choose another num_envs)"
            )
        super().__init__(config, self.at_once)
        self.states = jax.jit(jax.vmap(self.method.init))(self._fold(FIRST_STATE))

    def _fold(self, number: int) -> Key[Array, "S"]:
        return jax.vmap(lambda key: jax.random.fold_in(key, number))(self.keys)

    @property
    def state(self) -> Any:
        """The policies and all that belongs to them."""
        return self.states

    def about_state(self) -> dict[str, Any]:
        """Nothing but arrays."""
        return {}

    def take(self, state: Any, about: dict[str, Any]) -> None:
        """Go on with stored policies."""
        self.states = state

    @property
    def learned(self) -> Any:
        """Nothing: a policy has learned from its last episodes already."""
        return {}

    @property
    def ready(self) -> bool:
        """Whether the policy has learned at all."""
        return self.done > 0

    def play(self, number: int, keys: Array, random: bool, on_step: OnStep = None) -> Played:
        """One episode of every seed, as the policy acts when it does not learn."""
        return self._play(number, keys[:, None], random, True, on_step)[0]

    def _play(self, number: int, keys: Key[Array, "S E"], random: bool, best: bool, on_step: OnStep) -> Any:
        notes: list[Any] = []
        if self.fleets:
            flat = keys.reshape(-1)
            if random:
                actor = random_actor(self.task, flat, self.config.explores())
            else:
                actor = policy_actor(self.method, self.states, keys, best, notes)
            played = play([(self.fleets[0], actor)], number, on_step)
            note = stacked(notes, self.task.episode_length) if notes else ()
        elif random:
            moves = explore_episodes(self.task, keys.reshape(-1), self.task.episode_length, self.config.explores())
            played, note = Played.whole(self.task, jax.device_get(moves)), ()
        else:
            found, note = jax.device_get(play_compiled(self.method, self.states, self.task, keys, best))
            played = Played.whole(self.task, found)
        seeds = np.repeat(self.config.seeds, keys.shape[1]).tolist()
        check_finite(self.task, played.moves, number, seeds)
        return played, note

    def episode(self, on_step: OnStep = None) -> Outcome:
        """One turn."""
        started, first = time.perf_counter(), self.done
        numbers = jnp.arange(first, first + self.at_once, dtype=jnp.int32)
        keys = jax.vmap(lambda key: jax.vmap(lambda i: jax.random.fold_in(key, i))(numbers))(self.keys)
        random = self.is_random
        with CompileClock() as clock:
            played, note = self._play(first, keys, random, False, on_step)
            acted = time.perf_counter() - started
            seen = experience(played, note, self.at_once)
            turn = jax.vmap(lambda key: jax.random.fold_in(key, first))(self._fold(LEARNING))
            self.states, told = jax.block_until_ready(self.method.learn(self.states, seen, turn, first))
            told = jax.device_get(told)
        self._check(told, first)
        learned = time.perf_counter() - started - acted
        episodes = one_by_one(played, self.at_once)
        r2 = float(np.mean(told["model_r2"])) if "model_r2" in told else None
        news, timing = self.finish(episodes, "random" if random else "policy", r2, learned, acted, clock)
        return Outcome(episodes, news, timing | {"policy": {name: plain(value) for name, value in told.items()}})

    def _check(self, told: dict[str, Any], first: int) -> None:
        for name, values in told.items():
            unknown = np.isnan(values) & name.startswith("model_")  # too little was held out to evaluate the model
            broken = ~np.isfinite(np.asarray(values)) & ~unknown
            if broken.any():
                seeds = [seed for seed, bad in zip(self.config.seeds, broken, strict=True) if bad]
                raise GussError(
                    f"{self.config.method} diverged in episode {first} (seeds {seeds}: {name} is not finite); lower "
                    f"its learning rates with --set. Episodes before are kept."
                )
