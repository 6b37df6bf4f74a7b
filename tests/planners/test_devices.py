"""A plan's candidates over several devices: forced host devices, in a process of its own."""

import os
import subprocess
import sys

SCRIPT = """
import jax, jax.numpy as jnp, numpy as np
import guss
from guss.envs import make_task
from guss.models.factory import ModelSettings, make_model
from guss.models.oracle import Oracle
from guss.planners.engine import plan
from guss.planners.rollouts import Particles, evaluate

assert jax.device_count() == 4
mesh = jax.make_mesh((4,), ("plans",))
key = jax.random.key(3)

# Whole numbers: exactly the same search, elite by elite. 31 plans in generations of 10 and 7 do not divide by 4.
toy = make_task("safe-toy")
planner = guss.make_planner("guss", toy, horizon=8, budget=31, num_initial=10, num_new=7)
obs = toy.reset(key)
one, many = (plan(planner, Oracle.of(toy), toy, obs, key, mesh=m) for m in (None, mesh))
assert jax.tree.all(jax.tree.map(lambda a, b: bool(np.array_equal(a, b)), one, many)), (one, many)

# A learned model: the same rollouts and scores, and the same plan of CEM, up to rounding.
task = make_task("safe-pendulum")
model = jax.jit(lambda key: make_model("darmdn", task, key, ModelSettings(hidden=(8, 8), ensemble=2)))(key)
cem = guss.make_planner("cem", task, horizon=4, budget=60, num_elites=5)
start = jnp.asarray(task.reset(key))
sequences = task.actions.sample(key, (13, 4))
score = lambda mesh: jax.jit(lambda m: evaluate(cem, Particles.of(m), task, start, key, sequences, mesh))
divided = score(mesh).lower(model).compile()
assert "num_partitions=4" in divided.as_text(), "the program is one for four devices"
close = lambda a, b: jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), a, b)
close(score(None)(model), divided(model))
close(*(plan(cem, model, task, start, key, mesh=m).action for m in (None, mesh)))
print("same")
"""


def test_candidates_divided_among_devices_give_the_same_plan():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True
    )
    assert done.stdout.endswith("same\n"), done.stderr
