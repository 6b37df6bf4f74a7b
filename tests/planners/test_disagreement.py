"""Disagreement of particles counts as a violation: against plain NumPy, in plans, and which models it needs."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task, numbers
from hypothesis import given
from hypothesis import strategies as st

from guss import Agent
from guss.constraint import Constraint
from guss.errors import GussError, GussWarning
from guss.methods.settings import AgentSettings
from guss.models.oracle import Oracle
from guss.planners import make_planner
from guss.planners.engine import plan
from guss.planners.rollouts import Particles, disagreeing, predict_outcomes, roll_out
from guss.types import Model, Rollout, Transition

KEY = jax.random.key(0)
SCALE = jnp.asarray([1.0, 10.0])
KINDS = ("continuous", "discrete")


class Divided(Model):
    """Three particles, whose predictions differ the more, the larger the action is."""

    scaled: bool = eqx.field(static=True, default=True)

    @property
    def num_particles(self):
        return 3

    def predict(self, obs, action, key, particle):
        apart = particle.astype(jnp.float32) * (0.1 * jnp.sum(numbers(action)) + 0.001)
        return obs + apart + 0.01

    def policy_inputs(self):
        return (jnp.zeros(2), SCALE) if self.scaled else None


def never(obs, action, next_obs):
    return False


def task_of(kind, **fields):
    constraints = (Constraint("never", never), Constraint("nor", never))
    return make_task(ACTIONS[kind], constraints=constraints).replace(**fields)


@given(st.integers(0, 10_000), st.sampled_from([0.01, 0.3, 1.0, 3.0]))
def test_a_step_disagrees_if_any_dimension_varies_more_than_the_threshold(seed, threshold):
    random = np.random.default_rng(seed)
    obs = random.normal(size=(3, 4, 2)) * random.choice([0.1, 1.0, 10.0], 2)
    expected, clear = [], []
    for step in range(4):
        ratios = [
            np.sqrt(np.mean((obs[:, step, d] - np.mean(obs[:, step, d])) ** 2)) / float(SCALE[d]) for d in range(2)
        ]
        expected.append(max(ratios) > threshold)
        clear.append(abs(max(ratios) - threshold) > 1e-4)
    path = jnp.asarray(obs, jnp.float32)
    found = disagreeing(Particles.of(Divided()), threshold, Rollout(path, jnp.zeros((3, 4, 2)), path))
    np.testing.assert_array_equal(np.asarray(found > 0)[clear], np.asarray(expected)[clear])


@pytest.mark.parametrize("kind", KINDS)
def test_every_constraint_is_violated_for_every_particle_at_these_steps(kind):
    task, particles = task_of(kind, disagreement=0.2), Particles.of(Divided())
    planner = make_planner("s-rs", task, horizon=5, budget=10)
    action = jnp.asarray([[0.5, 0.5]] * 5 if kind == "continuous" else [1] * 5, task.actions.dtype)
    rollout = jax.tree.map(lambda x: x[0], roll_out(planner, particles, jnp.zeros(2), KEY, action[None]))
    spread = np.asarray(rollout.next_obs)[..., 0].std(axis=0)  # the first dimension has the smaller scale
    expected = (spread > 0.2).astype(float)
    assert 0 < expected.sum() < 5
    cost = predict_outcomes(particles, task, rollout).cost
    np.testing.assert_array_equal(cost, np.broadcast_to(expected[None, :, None], (3, 5, 2)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["s-rs", "guss"])
def test_plans_avoid_disagreement(kind, name):
    free, task = task_of(kind), task_of(kind, disagreement=0.05)
    planner = make_planner(name, free, horizon=2, budget=100)
    bold, careful = (plan(planner, Divided(), each, np.zeros(2), KEY) for each in (free, task))
    spread = lambda done: np.asarray(done.trajectory.next_obs).std(axis=0)[:, 0].max()  # noqa: E731
    assert spread(bold) > 0.05 >= spread(careful)
    assert float(careful.diagnostics.cost) == 0.0
    lenient = plan(planner, Divided(), task_of(kind, disagreement=1e6), np.zeros(2), KEY)
    jax.tree.map(np.testing.assert_array_equal, bold, lenient)
    nothing_agrees = plan(planner, Divided(), task_of(kind, disagreement=1e-9, risk="share:0.9"), np.zeros(2), KEY)
    assert float(nothing_agrees.diagnostics.cost) >= 2.0, "it is a violation for all particles, whatever the measure"


def without_disagreement(particles, task, rollout):
    each = jax.vmap(lambda model, one: model.outcomes(task, one), (particles.axis, 0))(particles.model, rollout)
    return each._replace(descriptor=jnp.mean(each.descriptor, axis=0))


def test_without_a_threshold_the_program_has_no_trace_of_it():
    task, particles = task_of("continuous"), Particles.of(Divided())
    rollout = Rollout(jnp.zeros((3, 4, 2)), jnp.zeros((3, 4, 2)), jnp.zeros((3, 4, 2)))
    program = lambda fn, task: str(jax.make_jaxpr(fn)(particles, task, rollout))  # noqa: E731
    assert program(predict_outcomes, task) == program(without_disagreement, task)
    assert program(predict_outcomes, task.replace(disagreement=1.0)) != program(without_disagreement, task)


def test_models_that_cannot_disagree_are_refused():
    task = make_task(ACTIONS["continuous"]).replace(disagreement=0.5)
    planner = make_planner("s-rs", task, horizon=2, budget=10)
    with pytest.raises(GussError, match=r"the model Oracle predicts a plan once: use an ensemble.*--model.ensemble 5"):
        plan(planner, Oracle.of(task), task, np.zeros(2), KEY)
    with pytest.raises(GussError, match="Divided has none: define its `policy_inputs`"):
        plan(planner, Divided(scaled=False), task, np.zeros(2), KEY)


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_a_threshold_is_a_positive_number(value):
    with pytest.raises(GussError, match="disagreement must be"):
        make_task(ACTIONS["continuous"]).replace(disagreement=value)
    with pytest.raises(GussError, match=r"settings\.disagreement must be"):
        AgentSettings(disagreement=value, model_settings={"ensemble": 2})


def test_a_task_without_constraints_has_nothing_to_violate():
    with pytest.raises(GussError, match=r"needs at least one constraint; got disagreement=0\.5 and 0 constraints"):
        make_task(ACTIONS["continuous"], constraints=()).replace(disagreement=0.5)


def test_an_agent_with_one_network_is_refused_at_once():
    with pytest.raises(GussError, match=r"settings\.disagreement .* one darmdn: set .* \(--model\.ensemble 5\)"):
        AgentSettings(disagreement=0.5)
    with pytest.raises(GussError, match="one dmdn"):
        Agent("safe-pendulum", disagreement=0.5, model="dmdn", model_settings={"ensemble": 1})
    assert AgentSettings(disagreement=0.5, model_settings={"ensemble": 2}).disagreement == 0.5
    AgentSettings(disagreement=0.5, model_settings={"deterministic": False, "particles": 3})
    for method, model in (("random", "darmdn"), ("ppo", "darmdn"), ("rs", "darmdn"), ("guss", "oracle")):
        AgentSettings(disagreement=0.5, method=method, model=model)  # without effect


@pytest.mark.parametrize("learned", [(), ("cost",)])
def test_an_agent_counts_disagreement_of_its_learned_members(learned):
    random = np.random.default_rng(0)
    obs = random.uniform(-1.0, 1.0, (100, 2)).astype(np.float32)
    action = random.uniform((-2.0, 0.0), (1.0, 0.5), (100, 2)).astype(np.float32)
    rows = Transition(obs, action, obs.sum(axis=1), np.zeros((100, 2)), obs + 0.1 * action.sum(axis=1, keepdims=True))
    settings = {"model": "dmdn", "model_settings": {"ensemble": 3, "hidden": (8,)}, "fit": {"max_steps": 100}}
    settings |= {"method": "s-rs", "horizon": 3, "budget": 40, "preset": {}, "initial_episodes": 0, "learned": learned}
    plans = {}
    for threshold in (1e-9, 1e9):
        agent = Agent(task_of("continuous", step=None, reset=None), disagreement=threshold, **settings)
        agent.remember(rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GussWarning)  # no unsafe examples
            agent.act(np.zeros(2))
        plans[threshold] = agent.last_plan
        assert (agent.task.disagreement, agent.planning_task.disagreement) == (None, threshold)
    assert float(plans[1e-9].safe_share) == 0.0
    assert float(plans[1e-9].cost) == 6.0, "three steps violate two constraints"
    assert float(plans[1e9].safe_share) == 1.0
