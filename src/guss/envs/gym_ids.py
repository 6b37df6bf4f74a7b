"""The Gymnasium ids of the bundled environments. Importing guss.envs registers them."""

from __future__ import annotations

from typing import Any

import gymnasium

_CAR = ("guss.envs.car_env:SafeCarGoalEnv", 1000, "guss.envs.car_env:SafeCarGoalVectorEnv")
_GYM_IDS: dict[str, tuple[str, int, str | None]] = {  # class, episode length, vector class
    "guss/SafeToy-v0": ("guss.envs.toy:SafeToyEnv", 100, None),
    "guss/SafePendulum-v0": ("guss.envs.pendulum:SafePendulumEnv", 200, None),
    "guss/SafeAcrobot-v0": ("guss.envs.acrobot:SafeAcrobotEnv", 200, None),
    "guss/SafeCarGoal-v0": _CAR,
    "guss/SafeCarGoalFull-v0": _CAR,
}


def register_gym_ids() -> None:
    """Add the ids to Gymnasium's registry, unless they are there."""
    for gym_id, (env, episode_length, vector_env) in _GYM_IDS.items():
        if gym_id not in gymnasium.registry:
            how: Any = {"kwargs": {"full": True}} if "Full" in gym_id else {}
            gymnasium.register(gym_id, env, max_episode_steps=episode_length, vector_entry_point=vector_env, **how)
