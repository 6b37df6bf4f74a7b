"""A custom model in one file: ridge regression in closed form, on the observation, the action and their products.

guss run --plugin examples/linear_model.py --model linear --seed 1000 --seeds 3 --episodes 6
guss run --plugin examples/linear_model.py --model linear --model.ridge 0.1 --model.degree 1 --model.ensemble 1
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from guss import Model, Scaling, encoded, evaluate_model, register_model, setting, split_rows


@register_model("linear", paper="not in the paper")
class LinearModel(Model):
    """Ridge regression of the change s' − s on [s, a], with squares and products."""

    weights: jax.Array  # [features, D]
    obs_scaling: Scaling
    change_scaling: Scaling
    actions: object = eqx.field(static=True)

    ridge: float = setting(1e-2, "penalty on the squared weights, in units of one transition")
    degree: int = setting(2, "1: linear in [s, a]; 2: also squares and products")

    @classmethod
    def create(cls, task, key, **settings):
        scalings = [Scaling.identity(task.observations.size)] * 2
        model = cls(jnp.zeros(()), *scalings, task.actions, **settings)
        obs, action = jnp.zeros(task.observations.size), jnp.zeros(task.actions.shape, task.actions.dtype)
        size = jax.eval_shape(model.features, obs, action).shape[0]
        return eqx.tree_at(lambda m: m.weights, model, jnp.zeros((size, task.observations.size)))

    def features(self, obs, action):
        x = jnp.concatenate([jnp.ones(1), self.obs_scaling(obs), encoded(self.actions, action)])
        return x if self.degree == 1 else jnp.outer(x, x)[jnp.triu_indices(x.shape[0])]

    def predict(self, state, action, key, particle):
        return state + self.change_scaling.undo(self.features(state, action) @ self.weights)

    def fit(self, fresh, data, key, settings, pace):  # a closed form needs no `pace` and no weights to start from
        training, held_out = split_rows(data, settings)
        change = data.next_obs - data.obs
        scalings = (Scaling.of(data.obs, training), Scaling.of(change, training))
        model = eqx.tree_at(lambda m: (m.obs_scaling, m.change_scaling), self, scalings)
        rows = jnp.where(training[:, None], jax.vmap(model.features)(data.obs, data.action), 0.0)
        normal = rows.T @ rows + self.ridge * jnp.eye(rows.shape[1])
        weights = jax.scipy.linalg.solve(normal, rows.T @ jax.vmap(scalings[1])(change), assume_a="pos")
        model = eqx.tree_at(lambda m: m.weights, model, weights)
        return model, evaluate_model(model, data, held_out)

    def policy_inputs(self):
        return self.obs_scaling.mean, self.obs_scaling.std
