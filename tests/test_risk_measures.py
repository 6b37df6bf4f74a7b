"""Risk measures over particles, against plain Python; which plans they prefer, with members that predict violations."""

import math
import re
from fractions import Fraction
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, CHOICE, make_task, nowhere_unsafe
from hypothesis import given
from hypothesis import strategies as st

from guss import risk
from guss.constraint import Constraint
from guss.errors import GussError
from guss.methods.presets import checked_preset
from guss.methods.settings import AgentSettings
from guss.planners import make_planner
from guss.planners.engine import plan
from guss.risk_measures import LEVELS, RiskMeasure
from guss.task import Grid, Task
from guss.types import ContinuousActions, Model, Observations

KEY = jax.random.key(0)
COSTS = st.lists(st.integers(0, 9), min_size=1, max_size=16)
PERCENT = st.integers(0, 100)


def reference(text, costs):
    """The measure as its definition reads, in exact fractions."""
    name, _, level = text.partition(":")
    ordered, count = sorted((Fraction(int(c)) for c in costs), reverse=True), len(costs)
    if name == "worst":
        return ordered[0]
    if name == "mean":
        return sum(ordered) / count
    if name == "cvar":
        tail = math.ceil(Fraction(level) * count)
        return sum(ordered[:tail]) / tail
    # share: the smallest allowed cost such that at most a share δ of the particles exceeds it
    return min(c for c in ordered if sum(each > c for each in ordered) <= Fraction(level) * count)


def measured(text, costs):
    return float(RiskMeasure.parse(text)(jnp.asarray(costs, jnp.float32)))


def texts(percent):
    level = f"{Fraction(percent, 100).numerator / Fraction(percent, 100).denominator:g}"
    yield from ("worst", "mean")
    if percent > 0:
        yield f"cvar:{level}"
    if percent < 100:
        yield f"share:{level}"


@given(COSTS, PERCENT)
def test_every_measure_is_its_definition(costs, percent):
    for text in texts(percent):
        np.testing.assert_allclose(measured(text, costs), float(reference(text, costs)), rtol=1e-6, err_msg=text)


@given(COSTS, PERCENT.filter(bool), PERCENT.filter(bool))
def test_cvar_lies_between_mean_and_worst_and_falls_with_its_level(costs, one, other):
    low, high = sorted((one / 100, other / 100))
    worst, mean = measured("worst", costs), measured("mean", costs)
    careful, lenient = measured(f"cvar:{low}", costs), measured(f"cvar:{high}", costs)
    assert mean * (1 - 1e-6) <= lenient <= careful * (1 + 1e-6)
    assert careful <= worst
    assert measured("cvar:1", costs) == mean
    assert measured("cvar:1e-9", costs) == measured("share:0", costs) == worst


@given(COSTS, PERCENT.filter(lambda p: p < 100), PERCENT.filter(lambda p: p < 100))
def test_a_share_leaves_out_so_many_of_the_worst(costs, one, other):
    low, high = sorted((one, other))
    assert measured(f"share:{high / 100}", costs) <= measured(f"share:{low / 100}", costs)
    violating = sum(c > 0 for c in costs)
    assert (measured(f"share:{low / 100}", costs) == 0.0) == (100 * violating <= low * len(costs))


@given(COSTS)
def test_without_a_share_a_plan_is_free_if_no_particle_has_a_cost(costs):
    for text in ("worst", "mean", "cvar:0.4", "share:0"):
        assert (measured(text, costs) == 0.0) == (max(costs) == 0)


@pytest.mark.parametrize("text", ["worst", "mean", "cvar:0.4", "cvar:1", "share:0", "share:0.99"])
def test_one_particle_has_its_own_cost(text):
    assert measured(text, [3.0]) == 3.0
    assert str(RiskMeasure.parse(text)) == text


def test_a_number_of_particles_is_counted_without_rounding_errors():
    assert 0.07 * 100 > 7
    assert RiskMeasure.parse("cvar:0.07").ranks(100) == (0, 7)
    assert RiskMeasure.parse("share:0.6").ranks(5) == (3, 4)
    assert RiskMeasure.parse("share:0.99999999999").ranks(5) == (4, 5), "one is always left"
    assert str(RiskMeasure.parse("cvar:0.40")) == "cvar:0.4"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cvr:0.4", r"unknown risk measure 'cvr'\. Did you mean 'cvar'\?"),
        ("", "unknown risk measure ''.*Known: cvar, mean, share, worst"),
        ("cvar", r"risk 'cvar': cvar needs a level more than 0 and at most 1, such as cvar:0\.4; got none"),
        ("cvar:0", r"more than 0 and at most 1, such as cvar:0\.4; got '0'"),
        ("cvar:1.1", "got '1.1'"),
        ("cvar:nan", "got 'nan'"),
        ("cvar:", "got ''"),
        ("share:1", r"share needs a level at least 0 and less than 1, such as share:0\.2; got '1'"),
        ("share:-0.1", r"got '-0\.1'"),
        ("mean:0.4", "risk 'mean:0.4': the measure mean has no level; write 'mean'"),
        ("worst:", "the measure worst has no level"),
    ],
)
def test_a_bad_setting_is_refused_with_the_reason(text, message):
    with pytest.raises(GussError, match=message):
        RiskMeasure.parse(text)
    with pytest.raises(GussError, match=message):
        make_task(ACTIONS["continuous"]).replace(risk=text)


def test_the_setting_of_an_agent_has_one_spelling():
    with pytest.raises(GussError, match=r"preset\.risk must be text or none, got 0\.4 \(float\)"):
        checked_preset({"risk": 0.4})
    assert AgentSettings(risk="cvar:0.40").risk == "cvar:0.4"


def test_the_examples_of_the_documentation_are_right():
    page = (Path(__file__).resolve().parents[1] / "docs" / "choosing.md").read_text()
    section = page[page.index("\n## Risk measure") : page.index("\n## Planning margin")]
    costs = [float(c) for c in re.search(r"of the costs ([\d, ]+) \|", section).group(1).split(",")]
    rows = re.findall(r"^\| `(\S+)` \| .* \| (\S+) \|$", section, re.MULTILINE)
    assert [text.partition(":")[0] for text, _ in rows] == list(LEVELS)
    for text, cost in rows:
        assert measured(text, costs) == float(cost)


# ----------------------------------------------------------------------------------------------------------- in plans


def as_before(task, costs):
    """`plan_cost` as it was when the maximum was the only measure."""
    steps = jnp.sum(costs, axis=1)
    soft = jnp.asarray(task.soft, bool)[None, :]
    bounds = jnp.stack([c.bound for c in task.constraints])[None, :]
    hard = jnp.sum(jnp.where(soft, 0.0, steps), axis=1)
    cost = jnp.sum(jnp.where(soft, jnp.maximum(steps - bounds, 0.0), 0.0), axis=1)
    return jnp.max(hard), jnp.max(cost)


def test_by_default_the_program_is_that_of_the_maximum():
    task, costs = make_task(ACTIONS["continuous"]), jnp.zeros((5, 4, 1))
    assert str(jax.make_jaxpr(risk.plan_cost)(task, costs)) == str(jax.make_jaxpr(as_before)(task, costs))
    lenient = jax.make_jaxpr(risk.plan_cost)(task.replace(risk="mean"), costs)
    assert str(lenient) != str(jax.make_jaxpr(as_before)(task, costs)), "the comparison can fail"


@given(st.lists(st.lists(st.integers(0, 3), min_size=8, max_size=8), min_size=1, max_size=6), PERCENT)
def test_soft_costs_beyond_bounds_are_aggregated_and_hard_violations_are_the_maximum(rows, percent):
    constraints = (
        Constraint("free", nowhere_unsafe, bound=2.0),
        Constraint("strict", nowhere_unsafe),
        Constraint("button", nowhere_unsafe, hard=True),
        Constraint("wall", nowhere_unsafe, hard=True),
    )
    costs = np.asarray(rows, np.float32).reshape(-1, 2, 4)
    steps = costs.sum(axis=1)
    soft = np.maximum(steps[:, 0] - 2.0, 0.0) + steps[:, 1]
    for text in texts(percent):
        task = make_task(ACTIONS["continuous"], constraints=constraints).replace(risk=text)
        hard, cost = risk.plan_cost(task, jnp.asarray(costs), "mean")
        assert float(hard) == (steps[:, 2] + steps[:, 3]).max()
        np.testing.assert_allclose(cost, float(reference(text, soft)), rtol=1e-6)


TABLE = np.asarray(
    # The cost that each of five members predicts for an action; the reward of action k is k.
    [[5, 0, 0, 0, 0], [2, 2, 2, 2, 2], [3, 0, 3, 0, 0], [4, 4, 4, 0, 0]],
    np.float32,
)


class Committee(Model):
    """Five members; the second dimension of the next observation is the number of the member."""

    @property
    def num_particles(self):
        return 5

    def predict(self, obs, action, key, particle):
        return jnp.stack([jnp.asarray(action, jnp.float32).reshape(-1)[0], particle.astype(jnp.float32)])


def in_table(obs, action, next_obs):
    return jnp.asarray(TABLE)[next_obs[0].astype(jnp.int32), next_obs[1].astype(jnp.int32)]


def number_of_action(obs, action, next_obs):
    return next_obs[0]


BEST = {"worst": 1, "mean": 0, "cvar:0.4": 1, "cvar:0.8": 0, "share:0.2": 0, "share:0.4": 2, "share:0.7": 3}
OTHERS = [(name, "share:0.4") for name in ("rcem", "guss", "guss-plus", "ps-me")]


@pytest.mark.parametrize(("name", "text"), [*(("s-rs", text) for text in BEST), *OTHERS])
def test_discrete_plans_are_ranked_by_the_measure(name, text):
    best = BEST[text]
    rewards = range(len(TABLE))
    assert best == min(rewards, key=lambda k: (reference(text, TABLE[k]), -k)), "by hand"
    task = make_task(CHOICE, reward=number_of_action, constraints=(Constraint("in_table", in_table),), step=None)
    planner = make_planner(name, task, horizon=1, budget=60)
    chosen = plan(planner, Committee(), task.replace(risk=text), np.zeros(2), KEY)
    assert int(chosen.action) == best
    np.testing.assert_allclose(chosen.diagnostics.cost, float(reference(text, TABLE[best])), rtol=1e-6)
    if text == "worst":
        default = plan(planner, Committee(), task, np.zeros(2), KEY)
        jax.tree.map(np.testing.assert_array_equal, default, chosen)


def one_of_five_is_alarmed(obs, action, next_obs):
    return next_obs[0] > jnp.where(next_obs[1] == 3.0, 0.3, 0.6)


@pytest.mark.parametrize(("text", "limit"), [(None, 0.3), ("mean", 0.3), ("cvar:0.4", 0.3), ("share:0.2", 0.6)])
def test_only_a_share_allows_what_one_of_five_members_predicts_to_be_unsafe(text, limit):
    task = Task(
        name="alarm",
        observations=Observations(low=(-np.inf,) * 2, high=(np.inf,) * 2),
        actions=ContinuousActions(low=(-1.0,), high=(1.0,)),
        reward=number_of_action,
        constraints=(Constraint("alarm", one_of_five_is_alarmed),),
        descriptor=lambda rollout: rollout.next_obs[-1, :1],
        grid=Grid((-1.0,), (1.0,), (20,)),
        episode_length=5,
        risk=text,
    )
    chosen = plan(make_planner("s-rs", task, horizon=1, budget=300), Committee(), task, np.zeros(2), KEY)
    assert limit - 0.05 < float(chosen.action[0]) <= limit
    assert float(chosen.diagnostics.cost) == 0.0


def test_a_measure_of_the_task_replaces_that_of_the_planner():
    task = make_task(CHOICE, reward=number_of_action, constraints=(Constraint("in_table", in_table),), step=None)
    planner = make_planner("cce", task, horizon=1, budget=60)
    published, worst = (plan(planner, Committee(), task.replace(risk=r), np.zeros(2), KEY) for r in (None, "worst"))
    assert (int(published.action), int(worst.action)) == (0, 1), "the mean; then the maximum"
