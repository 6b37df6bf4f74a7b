import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task

from guss.errors import GussError
from guss.models.oracle import Oracle
from guss.planners import make_planner
from guss.planners.engine import Monitor, plan, plan_within
from guss.planners.rollouts import Particles, roll_out, score
from guss.planners.rs import RandomShooting
from guss.runs.compile_clock import CompileClock
from guss.types import Model

TASK = make_task(ACTIONS["continuous"])
ORACLE = Oracle.of(TASK)
KEY = jax.random.key(0)


def planner(name="guss", **settings):
    return make_planner(name, TASK, horizon=5, budget=60, **settings)


def equal(a, b):
    return jax.tree.all(jax.tree.map(np.array_equal, a, b))


def test_with_time_enough_a_plan_in_chunks_is_the_same_plan():
    whole = plan(planner(), ORACLE, TASK, np.zeros(2), KEY)
    chunks = plan_within(planner(), ORACLE, TASK, np.zeros(2), KEY, seconds=600, chunk=3)
    assert equal(whole, chunks)


def test_a_deadline_cuts_the_search_short_and_still_gives_a_plan():
    result = plan_within(planner(), ORACLE, TASK, np.zeros(2), KEY, seconds=0, chunk=1)
    assert int(result.diagnostics.evaluated) == 25  # the first chunk: the initial policies
    assert 0 < int(result.diagnostics.occupancy) <= 25


def test_a_second_plan_compiles_nothing():
    plan(planner(), ORACLE, TASK, np.zeros(2), KEY)
    with CompileClock() as clock:
        again = plan(planner(), ORACLE, TASK, np.ones(2), KEY)
        jax.block_until_ready(again)
    assert clock.programs == 0


def test_a_first_plan_is_seen_by_the_compile_clock():
    fresh = make_planner("rs", TASK, horizon=7, budget=11)
    with CompileClock() as clock:
        plan(fresh, ORACLE, TASK, np.zeros(2), KEY)
    assert clock.programs >= 1
    assert clock.seconds > 0


def test_observations_are_checked():
    with pytest.raises(GussError, match=r"must have shape \(2,\), got \(3,\)"):
        plan(planner(), ORACLE, TASK, np.zeros(3), KEY)
    with pytest.raises(GussError, match=r"not finite in dimension 1"):
        plan(planner(), ORACLE, TASK, np.asarray([0.0, np.nan]), KEY)


class Watch(Monitor):
    """Counts what it is shown."""

    def init(self):
        return jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)

    def update(self, seen, rollouts, scores):
        return seen[0] + rollouts.next_obs.shape[0], seen[1] + jnp.sum(scores.safe, dtype=jnp.int32)


def test_a_monitor_sees_every_plan_and_changes_nothing():
    plain = plan(planner(), ORACLE, TASK, np.zeros(2), KEY)
    watched = plan(planner(), ORACLE, TASK, np.zeros(2), KEY, monitor=Watch())
    assert equal(plain._replace(aux=()), watched._replace(aux=()))
    count, safe = (int(x) for x in watched.aux)
    assert count == 60
    np.testing.assert_allclose(safe / 60, float(watched.diagnostics.safe_share), rtol=1e-6)


class Crowd(Model):
    """Three particles that disagree: particle i drifts by i, with a little noise."""

    @property
    def num_particles(self):
        return 3

    def predict(self, obs, action, key, particle):
        return obs + particle.astype(jnp.float32) * 0.1 + 1e-6 * jax.random.normal(key, obs.shape)


class ByTheMean(RandomShooting):
    over_particles = "mean"


def test_particles_are_judged_by_their_worst_cost_and_mean_reward_and_meet_the_same_noise():
    sequences = ACTIONS["continuous"].sample(KEY, (2, 5))
    roll = jax.jit(lambda actions: roll_out(planner("rs"), Particles.of(Crowd()), jnp.zeros(2), KEY, actions))
    rollouts = roll(sequences)
    assert rollouts.next_obs.shape == (2, 3, 5, 2)
    np.testing.assert_array_equal(rollouts.next_obs[0], rollouts.next_obs[1])
    first = jax.tree.map(lambda x: x[0], rollouts)
    scores = jax.jit(lambda x: score(planner("rs"), Particles.of(Crowd()), TASK, x))(first)
    # Particle 0 stays at 0, particle 1 passes 0.3 after step 3, particle 2 after step 1 (of 5).
    assert float(scores.cost) == 4.0
    np.testing.assert_allclose(scores.reward, (0 + 2 * 1.5 + 2 * 3.0) / 3, rtol=1e-3)
    by_the_mean = ByTheMean(TASK.interface(), horizon=5, budget=1)
    lenient = jax.jit(lambda x: score(by_the_mean, Particles.of(Crowd()), TASK, x))(first)
    np.testing.assert_allclose(lenient.cost, (0 + 2 + 4) / 3)


def test_the_share_of_descriptors_beyond_the_bounds_is_told():
    far = plan(planner("rs"), ORACLE, TASK, np.asarray([100.0, 0.0]), KEY)
    assert float(far.diagnostics.outside_share) == 1.0
    near = plan(planner("rs"), ORACLE, TASK, np.zeros(2), KEY)
    assert float(near.diagnostics.outside_share) == 0.0


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("guss", {"horizon": 0}, "horizon must be at least 1 step, got 0"),
        ("rs", {"budget": 0}, "budget must be at least 1 plan, got 0"),
        ("guss", {"budget": 10}, "budget of 10 plans is smaller than the 25 initial policies"),
        ("cem", {"budget": 30}, "6 samples each, fewer than the 10 elites"),
        ("guss", {"num_new": 0}, "num_new must be at least 1"),
        ("guss", {"num_nwe": 3}, "Did you mean 'num_new'"),
        ("guss", {"num_new": 2.5}, "must be an integer, got 2.5"),
        ("guss", {"num_new": True}, "must be an integer, got True"),
        ("guss", {"policy_hidden": [5, 0]}, "policy_hidden must be at least 1, got"),
        ("guss", {"mutation_variance": -1}, "mutation_variance must be at least 0, got"),
        ("cem", {"smoothing": 1.0}, "smoothing must be at least 0 and less than 1, got"),
        ("rcem", {"minimal_elites": 0}, "minimal_elites must be at least 1"),
        ("gus", {}, "unknown planner 'gus'. Did you mean 'guss'"),
        ("map_elites", {}, "Did you mean 'map-elites'"),
    ],
)
def test_bad_planner_settings_are_told(name, options, words):
    with pytest.raises(GussError, match=words):
        make_planner(name, TASK, **{"horizon": 5, "budget": 60, **options})


def test_a_schedule_that_does_not_spend_the_budget_is_refused():
    from guss.planners.rs import RandomShooting

    class Spendthrift(RandomShooting):
        def schedule(self, budget):
            return (budget, 1)

    with pytest.raises(GussError, match="sum to the budget, got"):
        Spendthrift(TASK.interface(), horizon=2, budget=5)


def test_the_archive_does_not_grow_with_the_grid():
    huge = make_task(ACTIONS["continuous"], cells=(40_000, 40_000))
    result = plan(make_planner("guss", huge, horizon=5, budget=60), Oracle.of(huge), huge, np.zeros(2), KEY)
    assert 0 < int(result.diagnostics.occupancy) <= 60
