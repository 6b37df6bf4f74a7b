"""The system to control. Replace it with your own: a plant, a robot, a simulator.

guss needs a Gymnasium environment that says in `info` what is unsafe. Everything else it learns.
"""

import gymnasium
import numpy as np

LIMIT = 8.0  # the level that the tank must not exceed


class Tank(gymnasium.Env):
    """A water tank. A pump fills it, a valve of its own empties it; the fuller it is, the more it earns."""

    # What is observed: level and inflow. Give bounds where there are some, np.inf where there are none.
    observation_space = gymnasium.spaces.Box(0.0, np.inf, (2,), np.float32)
    # What can be done: the pump, from 0 to 1. Discrete(3) would be three speeds.
    action_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # draw chance from self.np_random only, so that runs can be repeated
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
    """Called once for every seed. Episodes need a length: here 100 steps."""
    return gymnasium.wrappers.TimeLimit(Tank(), 100)
