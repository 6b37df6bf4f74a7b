"""The model of guss and the pendulum in PyTorch, with the same weights, for the PyTorch planners."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import torch
from torch.nn.functional import silu

LOW, HIGH = math.radians(20.0), math.radians(30.0)  # unsafe angles
TORQUE = 2.0
PENALTY = 1000.0  # per unsafe step: these planners have no second criterion


def use_threads() -> None:
    """As many threads as BENCH_THREADS, by default 2."""
    torch.set_num_threads(int(os.environ.get("BENCH_THREADS", "2")))


def to_torch(x: Any) -> torch.Tensor:
    """A copy of a JAX array."""
    return torch.from_numpy(np.array(x))


class Net:
    """A DARMDN's mean for batches of states and actions, in guss's layout: first layers as one product, separate nets.

    Only the mean is computed: no logits, no spreads.
    """

    def __init__(self, model: Any) -> None:
        count = model.obs_size
        first, *hidden, last = [(to_torch(layer.weight), to_torch(layer.bias)) for layer in model.layers]
        self.first = (torch.cat(list(first[0]), dim=1), first[1].reshape(-1))  # of all nets
        self.before = [[row.contiguous() for row in to_torch(model.before)[i, :i]] for i in range(count)]
        self.hidden = [[(weight[i].contiguous(), bias[i]) for weight, bias in hidden] for i in range(count)]
        self.last = [(last[0][i, :, 1:2].contiguous(), last[1][i, 1:2]) for i in range(count)]  # logit, mean, spread
        self.obs_mean, self.obs_std = to_torch(model.obs_scaling.mean), to_torch(model.obs_scaling.std)
        self.mean, self.std = to_torch(model.change_scaling.mean), to_torch(model.change_scaling.std)

    @torch.no_grad()
    def __call__(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """The next observations."""
        inputs = torch.cat([(obs - self.obs_mean) / self.obs_std, action / TORQUE], dim=1)
        weight, bias = self.first
        changes: list[torch.Tensor] = []
        for i, units in enumerate(torch.addmm(bias, inputs, weight).chunk(len(self.last), dim=1)):
            for change, row in zip(changes, self.before[i], strict=True):
                units = torch.addcmul(units, change, row)
            for weight, bias in (*self.hidden[i], self.last[i]):
                units = torch.addmm(bias, silu(units), weight)
            changes.append(units)
        return obs + torch.addcmul(self.mean, torch.cat(changes, dim=1), self.std)


@torch.no_grad()
def running_cost(obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """−reward + penalty of an unsafe angle, for states [..., 3] and actions [..., 1]."""
    angle = torch.atan2(obs[..., 1], obs[..., 0])
    unsafe = (angle >= LOW) & (angle <= HIGH)
    return angle**2 + 0.1 * obs[..., 2] ** 2 + 0.001 * action[..., 0] ** 2 + PENALTY * unsafe
