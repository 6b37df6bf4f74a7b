"""PyTorch planners on the pendulum: pytorch-mppi, pytorch-icem, mbrl-lib's CEM; with the model and weights of guss.

python -m benchmarks.peers.with_torch mppi|icem|mbrl CASE [compiled]

`compiled`: the model's step is compiled by torch.compile, which needs a C++ compiler; the planners themselves are not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeAlias

import torch

from benchmarks.cases import PLANS, Case, model_of, start_of, task_of
from benchmarks.peers.nets import TORQUE, Net, running_cost, to_torch, use_threads
from benchmarks.worker import serve

Step: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Plan: TypeAlias = Callable[[], torch.Tensor]


def mppi(case: Case, net: Step, obs: torch.Tensor) -> Plan:
    """pytorch-mppi: as many rollouts as random shooting in guss, in one batch."""
    from pytorch_mppi import MPPI

    planner = MPPI(
        net, running_cost, nx=3, noise_sigma=torch.eye(1), num_samples=case.budget, horizon=case.horizon,
        u_min=torch.tensor([-TORQUE]), u_max=torch.tensor([TORQUE]),
    )  # fmt: skip
    return torch.no_grad()(lambda: planner.command(obs))


def icem(case: Case, net: Step, obs: torch.Tensor) -> Plan:
    """pytorch-icem: as many rollouts and iterations as CEM in guss, also with white noise."""
    from pytorch_icem import iCEM

    rounds = case.settings["iterations"]
    bounded = lambda action: action.clamp(-TORQUE, TORQUE)  # noqa: E731 - iCEM has no action bounds
    planner = iCEM(
        lambda obs, action: net(obs, bounded(action)), lambda obs, action: running_cost(obs, bounded(action)).sum(-1),
        nx=3, nu=1, sigma=TORQUE, num_samples=case.budget // rounds, num_elites=case.settings["num_elites"],
        horizon=case.horizon, alpha=0.1, noise_beta=0.0, warmup_iters=rounds, online_iters=rounds,
    )  # fmt: skip

    @torch.no_grad()
    def plan() -> torch.Tensor:
        planner.reset()  # as in guss, each plan starts from scratch
        return planner.command(obs)

    return plan


def mbrl(case: Case, net: Step, obs: torch.Tensor) -> Plan:
    """mbrl-lib's CEM optimiser over action sequences: as many rollouts and iterations as CEM in guss."""
    from mbrl.planning.trajectory_opt import CEMOptimizer

    rounds, horizon = case.settings["iterations"], case.horizon
    count = case.budget // rounds
    planner = CEMOptimizer(
        num_iterations=rounds, elite_ratio=case.settings["num_elites"] / count, population_size=count,
        lower_bound=[[-TORQUE]] * horizon, upper_bound=[[TORQUE]] * horizon, alpha=0.1, device=torch.device("cpu"),
        return_mean_elites=True,
    )  # fmt: skip

    def values(actions: torch.Tensor) -> torch.Tensor:
        states = [obs.expand(len(actions), -1)]
        for action in actions.unbind(dim=1):
            states.append(net(states[-1], action))
        return -running_cost(torch.stack(states[1:], dim=1), actions).sum(dim=1)

    return torch.no_grad()(lambda: planner.optimize(values, x0=torch.zeros(horizon, 1))[0])


if __name__ == "__main__":
    use_threads()
    case = PLANS[sys.argv[2]]
    task = task_of(case)
    make = {"mppi": mppi, "icem": icem, "mbrl": mbrl}[sys.argv[1]]
    net = Net(model_of(case, task))
    step = torch.compile(net.__call__, dynamic=False) if "compiled" in sys.argv[3:] else net
    serve(make(case, step, to_torch(start_of(task))))
