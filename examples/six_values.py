"""An environment with the interface of Safety-Gymnasium: `step` returns six values, the third is the cost.

guss check-env examples/six_values.py:make_env
guss run --env examples/six_values.py:make_env --seeds 3 --episodes 8 --against random
"""

import gymnasium
import numpy as np

BEND, LIMIT = (0.55, 0.85), 0.5  # position of the bend on the lap, and its speed limit


class Lap:
    """Drive laps: brake, roll or accelerate. The reward is the speed; the bend has a speed limit.

    The class is not a gymnasium.Env: spaces, reset and step suffice.
    """

    observation_space = gymnasium.spaces.Dict(  # flattened to three numbers
        {
            "place": gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32),
            "speed": gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32),
        }
    )
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        self.lap, self.speed, self.t = float(np.random.default_rng(seed).uniform()), 0.3, 0
        return self._observed(), {}

    def step(self, action):
        self.speed = float(np.clip(self.speed + 0.1 * (action - 1), 0.0, 1.0))
        self.lap = (self.lap + 0.08 * self.speed) % 1.0
        self.t += 1
        cost = float(BEND[0] <= self.lap <= BEND[1] and self.speed > LIMIT)
        return self._observed(), self.speed, cost, False, self.t >= 100, {}

    def _observed(self):
        angle = 2 * np.pi * self.lap
        place = np.asarray([np.cos(angle), np.sin(angle)], np.float32)
        return {"place": place, "speed": np.asarray([self.speed], np.float32)}


class Spec:
    max_episode_steps = 100


def make_env():
    env = Lap()
    env.spec = Spec()  # or pass --episode-length 100
    return env
