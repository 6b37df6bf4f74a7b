"""The Gymnasium ids of the bundled environments. Importing guss.envs registers them."""

from __future__ import annotations

import gymnasium

_CAR = "guss.envs.car_env:SafeCarGoal"
_GYM_IDS: dict[str, tuple[str, int, str | None]] = {  # class, episode length, vector class
    "guss/SafeToy-v0": ("guss.envs.toy:SafeToyEnv", 100, None),
    "guss/SafePendulum-v0": ("guss.envs.pendulum:SafePendulumEnv", 200, None),
    "guss/SafeAcrobot-v0": ("guss.envs.acrobot:SafeAcrobotEnv", 200, None),
    "guss/SafeCarGoal-v0": (f"{_CAR}Env", 1000, f"{_CAR}VectorEnv"),
    "guss/SafeCarGoalFull-v0": (f"{_CAR}FullEnv", 1000, f"{_CAR}FullVectorEnv"),
}


def register_gym_ids() -> None:
    """Add the ids to Gymnasium's registry, unless they are there."""
    for gym_id, (env, episode_length, vector_env) in _GYM_IDS.items():
        if gym_id not in gymnasium.registry:
            gymnasium.register(gym_id, env, max_episode_steps=episode_length, vector_entry_point=vector_env)
