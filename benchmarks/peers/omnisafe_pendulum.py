"""OmniSafe's PPO-Lagrangian on Safe Pendulum: reward, unsafe steps and time of one training. Python 3.11.

In the root of the repository:

    python3.11 -m venv .venv-omnisafe
    .venv-omnisafe/bin/python -m pip install torch==2.13.0
    .venv-omnisafe/bin/python -m pip install --no-deps -r benchmarks/peers/requirements-omnisafe.txt
    OMP_NUM_THREADS=1 .venv-omnisafe/bin/python benchmarks/peers/omnisafe_pendulum.py [--seed 0] [--steps 201600]

OmniSafe's own output goes to stderr; stdout is one line of JSON. The task is copied from guss.envs.pendulum,
because guss and OmniSafe need different versions of Gymnasium. Nothing of OmniSafe is changed or replaced.

16 episodes run in one process: the environment is vectorised and resets itself, as OmniSafe requires of environments
with `vector_env_nums` above 1, because its TimeLimit and AutoReset wrappers support only one environment. Its
ActionScale wrapper converts the actor's [−1, 1] to torques; the pendulum clips actions beyond.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np
import omnisafe
import torch
from gymnasium.spaces import Box
from omnisafe.envs.core import CMDP, env_register

GRAVITY, MASS, LENGTH, DT = 10.0, 1.0, 1.0, 0.05
MAX_SPEED, MAX_TORQUE = 8.0, 2.0
LOW, HIGH = math.radians(20.0), math.radians(30.0)  # unsafe angles
EPISODE_LENGTH = 200
ENVS = 16
EPOCH = ENVS * EPISODE_LENGTH  # one episode of each
STEPS = 63 * EPOCH
LAST = 0.1  # share of episodes that measure the trained policy


def wrapped(angle: torch.Tensor) -> torch.Tensor:
    """Into [−π, π)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi


@env_register
class SafePendulum(CMDP):
    """A batch of pendulums that reset together; a single one has no batch axis."""

    _support_envs: ClassVar[list[str]] = ["SafePendulum-v0"]
    need_auto_reset_wrapper = False
    need_time_limit_wrapper = False
    episodes: ClassVar[list[tuple[float, float]]] = []
    """Return and cost of every episode that was finished, in order."""

    def __init__(self, env_id: str, num_envs: int = 1, device: Any = "cpu", **kwargs: Any) -> None:
        super().__init__(env_id)
        self._num_envs = num_envs
        self._shape = (num_envs,) if num_envs > 1 else ()
        self._action_space = Box(-MAX_TORQUE, MAX_TORQUE, (1,), np.float32)
        top = np.asarray([1.0, 1.0, MAX_SPEED], np.float32)
        self._observation_space = Box(-top, top, dtype=np.float32)
        self._metadata = {}
        self._random = torch.Generator()
        self._start()

    @property
    def max_episode_steps(self) -> int:
        """Steps of an episode."""
        return EPISODE_LENGTH

    def _start(self) -> None:
        draws = torch.rand((2, *self._shape), generator=self._random, dtype=torch.float64) * 2 - 1
        self._angle, self._speed = draws[0] * math.pi, draws[1]
        self._time = 0
        self._return, self._cost = torch.zeros_like(self._angle), torch.zeros_like(self._angle)

    def _obs(self) -> torch.Tensor:
        return torch.stack([self._angle.cos(), self._angle.sin(), self._speed], dim=-1).float()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[torch.Tensor, dict]:
        """Reset all pendulums."""
        if seed is not None:
            self.set_seed(seed)
        self._start()
        return self._obs(), {}

    def step(self, action: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """One step of 0.05 s; after the last step the observation is that of the new episode, as OmniSafe expects."""
        torque = action.double()[..., 0].clamp(-MAX_TORQUE, MAX_TORQUE)
        reward = -(wrapped(self._angle) ** 2 + 0.1 * self._speed**2 + 0.001 * torque**2)
        push = 3 * GRAVITY / (2 * LENGTH) * self._angle.sin() + 3.0 / (MASS * LENGTH**2) * torque
        self._speed = (self._speed + push * DT).clamp(-MAX_SPEED, MAX_SPEED)
        self._angle = self._angle + self._speed * DT
        reached = wrapped(self._angle)
        cost = ((reached >= LOW) & (reached <= HIGH)).double()

        self._time += 1
        self._return, self._cost = self._return + reward, self._cost + cost
        over = torch.full(self._shape, self._time == EPISODE_LENGTH)
        obs, info = self._obs(), {}
        if self._time == EPISODE_LENGTH:
            info = {"final_observation": obs, "_final_observation": over}
            self.episodes.extend(zip(self._return.reshape(-1).tolist(), self._cost.reshape(-1).tolist(), strict=True))
            self._start()
            obs = self._obs()
        return obs, reward.float(), cost.float(), torch.zeros_like(over), over, info

    def set_seed(self, seed: int) -> None:
        """Seed the initial states."""
        self._random.manual_seed(seed)

    def render(self) -> None:
        """Rendering is not supported."""

    def close(self) -> None:
        """Nothing to close."""


def settings(seed: int, steps: int, threads: int, log_dir: str) -> dict[str, Any]:
    """Differences from OmniSafe's PPOLag.yaml."""
    return {
        "seed": seed,
        "train_cfgs": {"total_steps": steps, "vector_env_nums": ENVS, "torch_threads": threads},
        "algo_cfgs": {
            "steps_per_epoch": EPOCH,
            "gamma": 0.99,
            "cost_gamma": 0.99,
            "lam": 0.97,
            "lam_c": 0.97,
            "clip": 0.2,
            "kl_early_stop": True,
            "target_kl": 0.01,
        },
        "model_cfgs": {
            "actor": {"hidden_sizes": [64, 64], "activation": "tanh"},
            "critic": {"hidden_sizes": [64, 64], "activation": "tanh", "lr": 0.001},
        },
        "lagrange_cfgs": {"cost_limit": 5.0, "lambda_lr": 0.05},  # 25 per 1000 steps
        "logger_cfgs": {"use_wandb": False, "use_tensorboard": False, "log_dir": log_dir},
    }


def train(seed: int, steps: int, threads: int) -> dict[str, Any]:
    """Train once and return the measures."""
    SafePendulum.episodes.clear()
    with tempfile.TemporaryDirectory() as log_dir, contextlib.redirect_stdout(sys.stderr):
        agent = omnisafe.Agent("PPOLag", "SafePendulum-v0", custom_cfgs=settings(seed, steps, threads, log_dir))
        start = time.perf_counter()
        agent.learn()
        seconds = time.perf_counter() - start
    returns, costs = np.asarray(SafePendulum.episodes).T
    last = max(1, round(LAST * len(returns)))
    return {
        "algorithm": "PPOLag",
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("omnisafe", "torch", "numpy", "gymnasium", "safety-gymnasium")},
        "seed": seed,
        "threads": threads,
        "envs": ENVS,
        "steps": len(returns) * EPISODE_LENGTH,
        "episodes": len(returns),
        "seconds": round(seconds, 2),
        "steps_per_second": round(len(returns) * EPISODE_LENGTH / seconds, 1),
        "last_episodes": last,
        "last_reward_per_step": round(float(returns[-last:].mean()) / EPISODE_LENGTH, 4),
        "last_unsafe_percent": round(float(costs[-last:].mean()) / EPISODE_LENGTH * 100, 3),
        "all_reward_per_step": round(float(returns.mean()) / EPISODE_LENGTH, 4),
        "all_unsafe_percent": round(float(costs.mean()) / EPISODE_LENGTH * 100, 3),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS, help=f"whole epochs of {EPOCH} are trained")
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch")
    args = parser.parse_args()
    if args.steps < EPOCH:
        parser.error(f"--steps must be at least {EPOCH}, one epoch")
    print(json.dumps(train(args.seed, args.steps, args.threads)))
