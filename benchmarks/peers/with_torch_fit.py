"""Training in PyTorch of the networks of guss.models.training: Adam on random batches, the same likelihood.

python -m benchmarks.peers.with_torch_fit dmdn|dmdn-small|darmdn BATCH STEPS ROWS [plain] [compiled]

The sizes are the car's for `dmdn` and the pendulum's for the others. `plain`: a module for each net, one after the
other, with default Adam: the obvious first implementation. Otherwise the fastest variant that was tried: stacked nets,
fused Adam. Both draw all batches at once. `compiled`: loss and gradient are compiled by torch.compile, which
needs a C++ compiler. There is no validation, only gradient steps.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import silu, softplus

from benchmarks.peers.nets import use_threads
from benchmarks.worker import serve

HIDDEN = (50, 50)
LOW, HIGH = -7.0, 2.0  # of log std
RATE = 1e-3


class Kind(NamedTuple):
    """Sizes of a model."""

    obs: int
    actions: int
    autoregressive: bool

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units per layer of a net: the nets of a DARMDN receive every dimension, with later ones set to zero."""
        features = self.obs + self.actions
        return (features + self.obs, *HIDDEN, 2) if self.autoregressive else (features, *HIDDEN, 2 * self.obs)

    @property
    def nets(self) -> int:
        """Number of nets: one, or one per dimension."""
        return self.obs if self.autoregressive else 1


KINDS = {"dmdn": Kind(22, 2, False), "dmdn-small": Kind(3, 1, False), "darmdn": Kind(3, 1, True)}


class Rows(NamedTuple):
    """Inputs and targets of L nets."""

    fed: torch.Tensor  # [L, rows, features]
    target: torch.Tensor  # [L, rows, outputs]


class Nets(nn.Module):
    """L stacked nets: a layer of all nets is one product."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        layers = list(pairwise(kind.sizes))
        self.weights = nn.ParameterList(torch.randn(kind.nets, a, b) / math.sqrt(a) for a, b in layers)
        self.biases = nn.ParameterList(torch.zeros(kind.nets, 1, b) for _, b in layers)

    def forward(self, fed: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Negative log likelihood of a batch, mean over its rows."""
        first, *rest = zip(self.weights, self.biases, strict=True)
        units = torch.baddbmm(first[1], fed, first[0])
        for weight, bias in rest:
            units = torch.baddbmm(bias, silu(units), weight)
        return likelihood(units, target)


class PlainNets(nn.Module):
    """A module for each net."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        a, b, c, d = kind.sizes
        make = lambda: nn.Sequential(nn.Linear(a, b), nn.SiLU(), nn.Linear(b, c), nn.SiLU(), nn.Linear(c, d))  # noqa: E731
        self.nets = nn.ModuleList(make() for _ in range(kind.nets))

    def forward(self, fed: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Negative log likelihood of a batch, mean over its rows."""
        return likelihood(torch.stack([net(rows) for net, rows in zip(self.nets, fed, strict=True)]), target)


def likelihood(units: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Negative log likelihood of [L, rows, outputs] under means and spreads, mean over the rows."""
    mean, raw = units.chunk(2, dim=2)
    log_std = LOW + softplus(HIGH - softplus(HIGH - raw) - LOW)
    z = (target - mean) * torch.exp(-log_std)
    dimensions = target.shape[0] * target.shape[2]
    return (0.5 * z.square() + log_std).sum() / target.shape[1] + dimensions * 0.5 * math.log(2.0 * math.pi)


def arrange(kind: Kind, inputs: torch.Tensor, change: torch.Tensor) -> Rows:
    """Standardised rows as inputs: net ℓ of a DARMDN receives (s, a, change of the dimensions before ℓ)."""
    if not kind.autoregressive:
        return Rows(inputs[None], change[None])
    fed = [torch.cat([inputs, change * (torch.arange(kind.obs) < net)], dim=1) for net in range(kind.nets)]
    return Rows(torch.stack(fed), change.T[:, :, None].contiguous())


def training(kind: Kind, batch: int, steps: int, rows: int, plain: bool, compiled: bool) -> Callable[[], float]:
    """A fit from the same fresh weights every time; returns the last loss."""
    rng = np.random.default_rng(0)
    obs, change = (torch.from_numpy(rng.normal(size=(rows, kind.obs)).astype(np.float32)) for _ in range(2))
    action = torch.from_numpy(rng.uniform(-1.0, 1.0, (rows, kind.actions)).astype(np.float32))
    data = arrange(kind, torch.cat([obs, action], dim=1), change)
    torch.manual_seed(0)
    nets = PlainNets(kind) if plain else Nets(kind)
    start = copy.deepcopy(nets.state_dict())
    loss_of = torch.compile(nets, dynamic=False) if compiled else nets

    def work() -> float:
        nets.load_state_dict(start)
        adam = torch.optim.Adam(nets.parameters(), lr=RATE, fused=None if plain else True)
        loss = torch.zeros(())
        for draw in torch.randint(rows, (steps, batch)).unbind():
            loss = loss_of(data.fed.index_select(1, draw), data.target.index_select(1, draw))
            adam.zero_grad()
            loss.backward()
            adam.step()
        return loss.item()

    return work


if __name__ == "__main__":
    use_threads()
    batch, steps, rows = map(int, sys.argv[2:5])
    serve(training(KINDS[sys.argv[1]], batch, steps, rows, *(word in sys.argv[5:] for word in ("plain", "compiled"))))
