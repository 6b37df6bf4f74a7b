"""A custom planner in one file: plans of two constant actions, ranked by cost, then reward.

guss plan --plugin examples/own_planner.py --method hold
guss reproduce toy --plugin examples/own_planner.py --methods guss hold --seeds 2
"""

import jax.numpy as jnp

from guss import Planner, best_index, register_planner, setting


@register_planner("hold", paper="not in the paper")
class Hold(Planner):
    """Constant random actions: lowest cost, then highest reward."""

    objective = "cost"  # ranked by cost, then reward; the contract tests of safe planners apply

    repeats: int = setting(1, "steps for which the first action is held, before the second")

    def schedule(self, budget):
        return (budget,)  # one generation

    def init(self, key, obs, memory):
        actions = self.interface.actions
        return jnp.zeros((2, *actions.shape), actions.dtype)

    def ask(self, state, key, num):
        return self.interface.actions.sample(key, (num, 2))

    def act(self, candidate, obs, t):
        return jnp.where(t < self.repeats, candidate[0], candidate[1])

    def tell(self, state, candidates, scores):
        return candidates[best_index(scores)]

    def best(self, state):
        return state
