"""Safe-MBPO: SAC in a learned model, where unsafe states have a lower value than all others (Thomas, Luo and Ma 2021,
"Safe reinforcement learning by imagining the near future", alg. 1).

After every episode a Gaussian ensemble is fitted to all transitions, and SAC learns from branches of up to H steps that
start at observed states and follow the policy in the model. A transition that ends in an unsafe state gets the target

    −C / (1 − γ),    C = (r_max − r_min) / γ^H − r_max    (their eq. 3 and theorem 3.3; bounds of r: observed)

as if every later reward were −C; a branch stops there. With that C, a policy that can stay safe for H more steps has a
higher value than one that cannot.

Deviations: here a violation is soft, so the real episode continues after it (as in the GuSS paper). Branches are
recreated with the current policy every `updates_per_round` updates; there is no buffer of older ones. A branch stays
with one member of the ensemble. For updates after whole episodes and units of reward, see sac.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from guss import keys as streams
from guss.limits import MAX_PLAN_STEPS
from guss.method import Learned, for_all_seeds
from guss.methods import register_method
from guss.methods.base import unsafe_of
from guss.methods.nets import Running
from guss.methods.sac import Rewards, Sac, SacNets, SacState, drawn, minibatch
from guss.models.evaluation import FitReport
from guss.models.factory import ModelSettings, fit_all, fit_programs, make_model
from guss.models.layers import encoded
from guss.models.settings import CommonSettings
from guss.models.training import Data, FitSettings
from guss.planners.rollouts import Particles
from guss.types import Model, Rollout, Trajectory, setting


class SafeMbpoState(NamedTuple):
    """The state of SAC, and the model; `fresh`: the untrained model."""

    nets: SacNets
    scale: Running
    data: Data
    model: Model
    fresh: Model


def penalty(rewards: Rewards, gamma: float, horizon: int) -> Float[Array, ""]:
    """C of eq. 3."""
    return (rewards.high - rewards.low) / gamma**horizon - rewards.high


@register_method("safe-mbpo", paper="Sec. 5.2, app. C")
class SafeMbpo(Sac):
    """SAC in a learned ensemble; an unsafe state has a lower value than any safe one."""

    name = "safe-mbpo"
    model_based = True
    safe = True
    defaults = {"episodes": 50, "model": {"name": "dmdn", "ensemble": 5, "deterministic": False}}  # noqa: RUF012

    model: str = eqx.field(static=True, kw_only=True, default="dmdn")
    model_settings: CommonSettings = eqx.field(
        static=True, kw_only=True, default=ModelSettings(ensemble=5, deterministic=False)
    )
    fit: FitSettings = eqx.field(static=True, kw_only=True, default=FitSettings())
    batch: int = setting(128, "Transitions in an update.")
    updates: float = setting(10.0, "Updates per step.")
    horizon: int = setting(10, "H: steps of a branch, also in the penalty C.")
    branches: int = setting(200, "Parallel branches.")
    updates_per_round: int = setting(20, "Updates with the same branches.")
    real_share: float = setting(0.1, "Share of a batch that are transitions of the real system.")

    def __check_init__(self) -> None:
        whole = {name: "[1, inf)" for name in ("horizon", "branches", "updates_per_round")}
        self.check_ranges(**whole, real_share="[0, 1)")
        what = f"{self.name} with {self.branches} branches of {self.horizon} steps"
        MAX_PLAN_STEPS.check(what, self.horizon * self.branches)

    def init(self, key: PRNGKeyArray) -> Any:
        """Untrained nets, an untrained model, an empty replay buffer."""
        first: SacState = super().init(key)
        model = make_model(self.model, self.task, jax.random.fold_in(key, streams.POLICY_MODEL), self.model_settings)
        return SafeMbpoState(*first, model, model)

    def violation_value(self, rewards: Rewards) -> Float[Array, ""]:
        """−C / (1 − γ), in units of reward."""
        return -penalty(rewards, self.gamma, self.horizon) / (1.0 - self.gamma)

    def imagine(self, state: SafeMbpoState, nets: SacNets, unit: Float[Array, ""], key: PRNGKeyArray) -> Trajectory:
        """Branches from observed states, by the policy in the model; steps after a violation are not valid."""
        particles = Particles.of(state.model)
        each = -(-self.branches // particles.count)
        key_starts, key_model, key_policy = jax.random.split(key, 3)
        starts = state.data.obs[drawn(key_starts, each * particles.count, state.data.filled)]
        starts = starts.reshape(particles.count, each, -1)
        noise = jax.random.normal(key_policy, (particles.count, self.horizon, each, *self.task.actions.shape))

        def member(model: Model, index: Int[Array, ""], first: Array, noise: Array, key: PRNGKeyArray) -> Any:
            def step(now: PyTree, coming: tuple[Array, PRNGKeyArray]) -> tuple[PyTree, tuple[Array, Array, Array]]:
                noise, key_step = coming
                obs = jax.vmap(model.decode)(now)
                action = jax.vmap(lambda o, n: self.draw(nets, state.scale, o, n))(obs, noise)
                keys = jax.random.split(key_step, each)
                after = jax.vmap(model.predict, (0, 0, 0, None))(now, action, keys, index)
                return after, (obs, action, jax.vmap(model.decode)(after))

            begin = jax.vmap(model.encode)(first)
            _, parts = jax.lax.scan(step, begin, (noise, jax.random.split(key, self.horizon)))
            rollout = Rollout(*(jnp.swapaxes(x, 0, 1) for x in parts))  # [each, H, …]
            outcomes = jax.vmap(lambda one: model.outcomes(self.task, one))(rollout)
            return rollout, outcomes.reward, outcomes.cost

        keys = jax.random.split(key_model, particles.count)
        rollout, reward, cost = jax.vmap(member, (particles.axis, 0, 0, 0, 0))(
            particles.model, particles.numbers, starts, noise, keys
        )
        unsafe = jnp.any(cost > 0.0, axis=-1)
        before = jnp.cumsum(unsafe.astype(jnp.int32), axis=-1) - unsafe.astype(jnp.int32)
        broken = ~(jnp.all(jnp.isfinite(rollout.next_obs), axis=-1) & jnp.isfinite(reward))
        alive = (before == 0) & (jnp.cumsum(broken.astype(jnp.int32), axis=-1) == 0)
        whole = lambda x, axes: x.reshape(-1, *x.shape[x.ndim - axes :])  # noqa: E731
        clean = lambda x: jnp.nan_to_num(x, posinf=0.0, neginf=0.0)  # noqa: E731
        return minibatch(
            obs=state.scale.standardised(clean(whole(rollout.obs, 1))),
            action=clean(jax.vmap(lambda a: encoded(self.task.actions, a))(whole(rollout.action, 1))),
            reward=clean(whole(reward, 0)) / unit,
            next_obs=state.scale.standardised(clean(whole(rollout.next_obs, 1))),
            ended=jnp.zeros(reward.size, bool),
            unsafe=whole(unsafe, 0),
            valid=whole(alive, 0),
        )

    def train(self, state: SafeMbpoState, key: PRNGKeyArray) -> Learned:
        """Rounds of branches, each with a few updates of SAC."""
        rewards = self.rewards(state.data)
        unit = rewards.unit
        violation_value = self.violation_value(rewards) / unit
        real = round(self.real_share * self.batch)

        def learn_round(nets: SacNets, key: PRNGKeyArray) -> tuple[SacNets, dict[str, Array]]:
            key_branches, key_steps = jax.random.split(key)
            imagined = self.imagine(state, nets, unit, key_branches)

            def step(nets: SacNets, key: PRNGKeyArray) -> tuple[SacNets, dict[str, Array]]:
                key_real, key_rows, key_noise = jax.random.split(key, 3)
                rows = drawn(key_rows, self.batch - real, jnp.asarray(imagined.valid.size, jnp.int32))
                batch = jax.tree.map(lambda x: x[rows], imagined)
                if real:
                    real_part = self.real_batch(state, drawn(key_real, real, state.data.filled), unit)
                    batch = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), real_part, batch)
                return self.learn_from(nets, batch, violation_value, key_noise)

            nets, metrics = jax.lax.scan(step, nets, jax.random.split(key_steps, self.updates_per_round))
            unsafe = (unsafe_of(imagined) > 0.0) & imagined.valid
            metrics |= {"unsafe_branches": jnp.mean(unsafe.astype(jnp.float32))}
            return nets, jax.tree.map(jnp.mean, metrics)

        rounds = max(1, round(self.num_updates / self.updates_per_round))
        nets, metrics = jax.lax.scan(learn_round, state.nets, jax.random.split(key, rounds))
        metrics = jax.tree.map(jnp.mean, metrics)
        return state._replace(nets=nets), metrics | {"penalty": penalty(rewards, self.gamma, self.horizon)}

    def acting(self, state: Any) -> Any:
        """Without the replay buffer and the model."""
        return state._replace(data=(), model=(), fresh=())

    def update(self, state: Any, trajectory: Trajectory, key: PRNGKeyArray) -> Learned:
        """`update_all` for one seed."""
        return self.update_alone(state, trajectory, key)

    def update_all(self, states: SafeMbpoState, trajectory: Trajectory, keys: Key[Array, "S"]) -> Learned:
        """Store the transitions, fit the models of all seeds, then train in them."""
        again = jnp.any(states.data.filled > 0)
        states = _remember_all(self, states, trajectory)
        unknown = self.task if self.task.unknown else None
        keys_fit, keys_train = jax.vmap(lambda key: jax.random.split(key), out_axes=1)(keys)
        programs = fit_programs(states.model, states.fresh, states.data, keys_fit, self.fit, again, unknown)
        models, report = fit_all(programs)
        states, metrics = for_all_seeds(self, "train", states._replace(model=models), keys_train)
        return states, metrics | model_errors(report)


def model_errors(report: FitReport) -> dict[str, Any]:
    """The model's error on held-out transitions, of every seed: NaN if none were held out, infinite if it diverged."""
    broken = (report.held_out > 0) & ~jnp.isfinite(report.nll)
    return {"model_r2": jnp.mean(report.r2, axis=-1), "model_nll": jnp.where(broken, jnp.inf, report.nll)}


@jax.jit
def _remember_all(method: SafeMbpo, states: SafeMbpoState, trajectory: Trajectory) -> SafeMbpoState:
    return jax.vmap(method.remember)(states, trajectory)
