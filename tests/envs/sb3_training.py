"""Run by `test_sb3.py` in an environment that has torch: Stable-Baselines3 on a Gymnasium id; prints JSON."""

import json
import sys

import gymnasium
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env

import guss.envs


def main(gym_id: str, steps: int) -> None:
    check_env(gymnasium.make(gym_id).unwrapped, warn=True)
    env = gymnasium.make(gym_id)
    model = PPO("MlpPolicy", env, n_steps=128, batch_size=64, n_epochs=2, seed=0, device="cpu")
    model.learn(steps)
    obs, _ = env.reset(seed=0)
    rewards, actions = [], []
    for _ in range(100):
        action, _ = model.predict(obs)
        obs, reward, _, _, _ = env.step(action)
        rewards.append(float(reward))
        actions.append(np.asarray(action).tolist())
        assert env.observation_space.contains(obs)
    low, high = np.min(actions, axis=0).tolist(), np.max(actions, axis=0).tolist()
    told = {"guss": guss.__version__, "steps": model.num_timesteps, "mean_reward": float(np.mean(rewards))}
    print(json.dumps(told | {"lowest_action": low, "highest_action": high}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
