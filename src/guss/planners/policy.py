"""Small neural-network policies as flat parameter vectors: the candidates of MAP-Elites and GuSS (Sec. 4.2).

Hidden layers are sigmoid; the action space converts outputs to actions (tanh onto bounds, argmax, rounding).
"""

from __future__ import annotations

from itertools import pairwise

import jax
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from guss.types import Interface


def layer_sizes(interface: Interface, hidden: tuple[int, ...]) -> tuple[int, ...]:
    """Units per layer, from observations to outputs."""
    return (interface.obs_size, *hidden, interface.actions.num_outputs)


def num_parameters(sizes: tuple[int, ...]) -> int:
    """Weights and biases of a network with these layers: 3-5-1 has 26, 6-5-5-3 has 83, 22-3-2 has 77."""
    return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(sizes))


def sample(key: PRNGKeyArray, sizes: tuple[int, ...], num: int, std: float) -> Float[Array, "N params"]:
    """SAMPLE(Φ, n): independent N(0, std²) for all weights and biases."""
    return std * jax.random.normal(key, (num, num_parameters(sizes)))


def act(
    params: Float[Array, "params"], obs: Float[Array, "D"], interface: Interface, sizes: tuple[int, ...]
) -> Shaped[Array, "..."]:
    """φ(s): the action of one policy in one state."""
    x = (obs - interface.obs_shift) / interface.obs_scale
    start = 0
    last = len(sizes) - 2
    for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        weights = params[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        start += fan_in * fan_out
        # Products added one by one: every candidate has its own weights, so matrix products or reductions would be
        # many tiny operations, while this sum fuses into one loop over all candidates.
        x = sum((x[j] * weights[j] for j in range(fan_in)), start=params[start : start + fan_out])
        start += fan_out
        if i < last:
            x = jax.nn.sigmoid(x)
    return interface.actions.from_outputs(x)
