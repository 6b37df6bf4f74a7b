"""Arguments and result of `Model.fit`: data in buffers, length of training, report."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Float, Int, Shaped


class Data(NamedTuple):
    """Transitions of one seed in buffers of fixed size R, from which `Model.fit` learns.

    `obs` [R, D], `action` [R, A] and `next_obs` [R, D]; the first `filled` rows hold data, and rows that are false in
    `use` [R] are skipped. `outcomes` [R, 2 + C] has reward, costs and end of the episode if any of them is learned.

    Example:
        >>> rows = jnp.zeros((8, 2))
        >>> data = guss.Data(rows, rows, rows, use=jnp.arange(8) < 5, filled=jnp.int32(5))
        >>> int(data.use.sum())
        5
    """

    obs: Float[Array, "rows D"]
    action: Shaped[Array, "rows ..."]
    next_obs: Float[Array, "rows D"]
    use: Bool[Array, "rows"]
    filled: Int[Array, ""]
    outcomes: Float[Array, "rows O"] | None = None  # reward, costs, end of the episode, if any is learned


class Pace(NamedTuple):
    """Length of gradient training, the same for all seeds that are fitted together (`guss.models.training`)."""

    epochs: Int[Array, ""]
    steps: Int[Array, ""]  # per epoch
    blocks: Int[Array, ""]  # of held-out rows


class FitReport(NamedTuple):
    """Quality of a fit, measured on rows held out of training.

    `train_loss` []; `nll` [] of observations in nats; `r2` [D] of the predicted change; `ks` [D], the distance of the
    predicted cumulative distribution from uniform; `held_out` rows; `best_epoch`; `diverged`: no epoch had a finite
    loss on the held-out rows. `outcome` has the errors of a learned reward and learned costs, or is None.

    Example:
        >>> numbers = [jnp.zeros(())] * 2 + [jnp.array([1.0, 0.5])] * 2 + [jnp.int32(5), jnp.int32(1), jnp.array(False)]
        >>> float(guss.FitReport(*numbers).r2.mean())
        0.75
    """

    train_loss: Float[Array, ""]
    nll: Float[Array, ""]  # of observations, in nats
    r2: Float[Array, "D"]  # of the predicted change, per dimension
    ks: Float[Array, "D"]  # distance of the predicted cumulative distribution from uniform
    held_out: Int[Array, ""]
    best_epoch: Int[Array, ""]
    diverged: Bool[Array, ""]  # no epoch had a finite loss on the held-out rows: the weights are those before the fit
    outcome: Any = None  # OutcomeReport, if reward or costs are learned
