"""A custom stochastic model in one file: Bayesian linear regression on random Fourier features (Rahimi and Recht 2007).

guss run --plugin examples/random_feature_model.py --model random-features --seed 1000 --seeds 3 --episodes 6
guss run --plugin examples/random_feature_model.py --model random-features --model.particles 5 --model.length-scale 4
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from guss import Model, Scaling, encoded, evaluate_model, register_model, setting, split_rows


@register_model("random-features", paper="not in the paper")
class RandomFeatureModel(Model):
    """Approximates a Gaussian process with a squared exponential kernel by random Fourier features."""

    frequencies: jax.Array  # [inputs, features]; random, not learned: members of an ensemble have different ones
    phases: jax.Array  # [features]
    weights: jax.Array  # [features, D]: posterior mean
    covariance: jax.Array  # [features, features]: posterior covariance in units of the noise variance
    noise: jax.Array  # [D]: standard deviation of the residuals, of standardised changes
    obs_scaling: Scaling
    change_scaling: Scaling
    actions: object = eqx.field(static=True)

    features: int = setting(100, "random features")
    length_scale: float = setting(3.0, "length scale of the kernel, in standard deviations of the observations")
    ridge: float = setting(1e-2, "noise variance over prior variance of the weights")
    particles: int = setting(0, "samples per plan; 0: plan with the mean")

    @classmethod
    def create(cls, task, key, **settings):
        size, num = task.observations.size, settings["features"]
        action = jax.ShapeDtypeStruct(task.actions.shape, task.actions.dtype)
        inputs = size + jax.eval_shape(lambda a: encoded(task.actions, a), action).shape[0]
        key_frequencies, key_phases = jax.random.split(key)
        return cls(
            frequencies=jax.random.normal(key_frequencies, (inputs, num)) / settings["length_scale"],
            phases=jax.random.uniform(key_phases, (num,), maxval=2.0 * jnp.pi),
            weights=jnp.zeros((num, size)),
            covariance=jnp.eye(num) / settings["ridge"],
            noise=jnp.ones(size),
            obs_scaling=Scaling.identity(size),
            change_scaling=Scaling.identity(size),
            actions=task.actions,
            **settings,
        )

    @property
    def num_particles(self):
        return max(self.particles, 1)

    def row(self, obs, action):
        x = jnp.concatenate([self.obs_scaling(obs), encoded(self.actions, action)])
        return jnp.sqrt(2.0 / self.features) * jnp.cos(x @ self.frequencies + self.phases)

    def std(self, row):
        """Predictive standard deviation of the change: noise and uncertainty of the weights."""
        return self.change_scaling.std * self.noise * jnp.sqrt(1.0 + row @ self.covariance @ row)

    def predict(self, state, action, key, particle):
        row = self.row(state, action)
        mean = state + self.change_scaling.undo(row @ self.weights)
        return mean if self.particles == 0 else mean + self.std(row) * jax.random.normal(key, mean.shape)

    def mean_model(self):
        return dataclasses.replace(self, particles=0)

    def fit(self, fresh, data, key, settings, pace):
        training, held_out = split_rows(data, settings)
        change = data.next_obs - data.obs
        scalings = (Scaling.of(data.obs, training), Scaling.of(change, training))
        model = eqx.tree_at(lambda m: (m.obs_scaling, m.change_scaling), self, scalings)
        everything = jax.vmap(model.row)(data.obs, data.action)
        rows = jnp.where(training[:, None], everything, 0.0)
        targets = jax.vmap(scalings[1])(change)
        covariance = jnp.linalg.inv(rows.T @ rows + self.ridge * jnp.eye(self.features))
        weights = covariance @ (rows.T @ targets)
        errors = jnp.where(training[:, None], targets - rows @ weights, 0.0)
        count = jnp.maximum(jnp.sum(training), 1).astype(jnp.float32)
        noise = jnp.sqrt(jnp.sum(errors**2, axis=0) / count)
        model = eqx.tree_at(lambda m: (m.weights, m.covariance, m.noise), model, (weights, covariance, noise))
        return model, evaluate_model(model, data, held_out, std=jax.vmap(model.std)(everything))

    def policy_inputs(self):
        return self.obs_scaling.mean, self.obs_scaling.std
