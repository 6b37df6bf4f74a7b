"""Checks that the PyTorch side computes the same as guss, for the same weights and random inputs.

python -m benchmarks.peers.check

Prints the largest differences, relative to values above 1; fails if one is larger than LIMIT.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks.cases import PLANS, Case, model_of, task_of
from benchmarks.peers.nets import PENALTY, Net, running_cost, to_torch
from benchmarks.peers.with_torch_fit import KINDS, Nets, arrange
from guss.models.mixtures import nll_of
from guss.models.scaling import Scaling

LIMIT = 1e-5
ROWS = 500


def lively(model: Any, rng: np.random.Generator) -> Any:
    """The model with random biases and scalings instead of zeros and ones."""
    normal = lambda x: jnp.asarray(0.3 * rng.normal(size=x.shape), jnp.float32)  # noqa: E731
    scaling = lambda x: Scaling(normal(x.mean), jnp.exp(normal(x.std)))  # noqa: E731
    where = lambda m: (*(layer.bias for layer in m.layers), m.obs_scaling, m.change_scaling)  # noqa: E731
    *biases, obs_scaling, change_scaling = where(model)
    return eqx.tree_at(where, model, (*map(normal, biases), scaling(obs_scaling), scaling(change_scaling)))


def transitions(task: Any, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random rows: observations, actions within their bounds, next observations."""
    obs, next_obs = (rng.normal(size=(ROWS, task.observations.size)).astype(np.float32) for _ in range(2))
    low, high = task.actions.low, task.actions.high
    return obs, rng.uniform(low, high, (ROWS, len(low))).astype(np.float32), next_obs


def difference(ours: Any, theirs: torch.Tensor) -> float:
    """The largest difference, relative to values above 1."""
    ours, theirs = np.asarray(ours), theirs.detach().numpy()
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    return float(np.max(np.abs(ours - theirs) / np.maximum(np.abs(ours), 1.0)))


def of_prediction(case: Case, rng: np.random.Generator) -> float:
    """The network that planners roll out, against `predict`."""
    task = task_of(case)
    model = lively(model_of(case, task), rng)
    obs, action, _ = transitions(task, rng)
    key, particle = jax.random.key(0), jnp.zeros((), jnp.int32)
    ours = jax.vmap(lambda o, a: model.predict(o, a, key, particle))(jnp.asarray(obs), jnp.asarray(action))
    return difference(ours, Net(model)(torch.from_numpy(obs), torch.from_numpy(action)))


def of_running_cost(case: Case, rng: np.random.Generator) -> float:
    """The cost that planners minimise, against the task's reward and costs in the same state."""
    task = task_of(case)
    obs, action, _ = transitions(task, rng)

    def one(obs: Any, action: Any) -> Any:
        return PENALTY * jnp.sum(task.costs(obs, action, obs)) - task.reward(obs, action, obs)

    ours = jax.vmap(one)(jnp.asarray(obs), jnp.asarray(action))
    return difference(ours, running_cost(torch.from_numpy(obs), torch.from_numpy(action)))


def of_loss(kind: str, case: Case, rng: np.random.Generator) -> float:
    """The training loss, against that of guss on the same standardised rows."""
    task = task_of(case)
    model = lively(model_of(case, task), rng)
    obs, action, next_obs = (jnp.asarray(x) for x in transitions(task, rng))
    inputs, change = jax.vmap(model.inputs)(obs, action), jax.vmap(model.standardised_change)(obs, next_obs)
    ours = jnp.mean(jax.vmap(nll_of)(model.densities(inputs, change), change))

    weights = [to_torch(layer.weight) for layer in model.layers]
    biases = [to_torch(layer.bias)[:, None] for layer in model.layers]
    weights[0] = torch.cat([weights[0], to_torch(model.before)], dim=1)
    weights[-1], biases[-1] = weights[-1][..., 1:], biases[-1][..., 1:]  # one Gaussian needs no logit
    nets = Nets(KINDS[kind])
    with torch.no_grad():
        for mine, given in zip((*nets.weights, *nets.biases), (*weights, *biases), strict=True):
            assert mine.shape == given.shape, (mine.shape, given.shape)
            mine.copy_(given)
    return difference(ours, nets(*arrange(KINDS[kind], to_torch(inputs), to_torch(change))))


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    pendulum, car = PLANS["pendulum"], PLANS["car"]
    found = {
        "prediction, darmdn": of_prediction(pendulum, rng),
        "running cost": of_running_cost(pendulum, rng),
        "loss, darmdn": of_loss("darmdn", pendulum, rng),
        "loss, dmdn-small": of_loss("dmdn-small", dataclasses.replace(pendulum, model="dmdn"), rng),
        "loss, dmdn": of_loss("dmdn", car, rng),
    }
    for name, value in found.items():
        print(f"{name}: {value:.1e}")
    print(f"largest difference: {max(found.values()):.1e}")
    sys.exit(0 if max(found.values()) <= LIMIT else 1)
