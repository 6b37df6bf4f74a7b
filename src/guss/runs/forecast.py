"""How long a run will take, roughly: enough to do the cheap ones first, and to say how much is left.

The figures are seconds of one core, rounded from the records in `results/`. What a run has taken so far corrects them.
"""

from __future__ import annotations

import numpy as np

from guss.runs.config import RunConfig, spec_of_run

COMPILE = 15.0  # a run
STEP, HOSTED_STEP = 1e-5, 4e-4  # a real step of a seed, compiled or in a simulator
PLAN, PREDICTED_STEP = 2e-3, 1.5e-6  # a plan of a seed, and each step of each of its candidates
FIT_STEP = 5e-4  # a gradient step of a seed's model
ON_POLICY_STEP = 4e-5  # learning from a step
UPDATE = 5e-3  # an update of SAC's nets


def expected_seconds(config: RunConfig) -> np.ndarray:
    """Of every episode of a run, all seeds together, without compiling."""
    task = spec_of_run(config).make_task()
    steps, step = task.episode_length, HOSTED_STEP if task.reset is None else STEP
    episode = np.arange(config.episodes)
    random = np.asarray([config.is_random(int(i), int(i) * steps, steps) for i in episode])
    per_seed = np.full(config.episodes, steps * step)
    if config.plans:
        per_seed += np.where(random, 0.0, steps * (PLAN + PREDICTED_STEP * config.horizon * config.budget))
    if config.learns or (config.is_policy and config.method_class.model_based):
        per_seed += np.where(random, 0.0, FIT_STEP * _fit_steps(config, steps * episode))
    if config.is_policy:
        updates = config.planner.get("updates", getattr(config.method_class, "updates", None))
        per_seed += steps * (ON_POLICY_STEP if updates is None else UPDATE * updates)
    return per_seed * len(config.seeds)


def _fit_steps(config: RunConfig, rows: np.ndarray) -> np.ndarray:
    """Gradient steps of the fit to so many transitions. It ends four patiences after its best epoch, or sooner."""
    fit = config.fit
    epochs = min(fit.epochs, 6 * fit.patience)
    steps = np.ceil(epochs * rows * (1.0 - fit.validation) / fit.batch)
    most = fit.warm_steps or fit.max_steps
    return np.minimum(steps, most) if most else steps
