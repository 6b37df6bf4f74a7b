"""The system to control. Replace it with your plant, robot or simulator.

guss needs a Gymnasium environment that reports unsafe steps in `info`. It learns everything else.
"""

import gymnasium
import numpy as np

LIMIT = 8.0  # the level that the tank must not exceed


class Tank(gymnasium.Env):
    """A water tank, filled by a pump and emptied by a drain. The reward is the level."""

    # Observation: level and inflow. Use np.inf for dimensions without bounds.
    observation_space = gymnasium.spaces.Box(0.0, np.inf, (2,), np.float32)
    # Action: speed of the pump, from 0 to 1. Discrete(3) would be three speeds.
    action_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # use only self.np_random for randomness, so that runs are repeatable
        self.level, self.inflow = self.np_random.uniform(2.0, 5.0), 0.0
        return self._observed(), {}

    def step(self, action):
        self.inflow = 0.8 * self.inflow + 0.2 * float(action[0])  # the pump is slow
        self.level = max(0.0, self.level + self.inflow - 0.06 * self.level)
        cost = float(self.level > LIMIT)  # 1: this step was unsafe. Several costs: info["costs"] = {"name": 0.0, …}
        return self._observed(), self.level, False, False, {"cost": cost}

    def _observed(self):
        return np.asarray([self.level, self.inflow], np.float32)


def make_env():
    """Called once per seed. Episodes need a time limit: here 100 steps."""
    return gymnasium.wrappers.TimeLimit(Tank(), 100)
