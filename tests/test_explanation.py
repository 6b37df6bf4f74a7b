"""Why an agent chose an action: what it says is what the planner found."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from guss import Agent
from guss.constraint import Constraint, with_params
from guss.errors import GussError
from guss.explanation import Approach, Explanation, RunnerUp
from guss.task import Grid, Task
from guss.types import ContinuousActions, Observations, Transition

ORACLE = {"model": "oracle", "initial_episodes": 0, "horizon": 4, "budget": 60, "method": "s-rs"}


def heat(obs, action, next_obs):
    return action[0]


def too_hot(obs, action, next_obs, limit):
    return next_obs[0] > limit


def warm(obs, action, key):
    return jnp.stack([obs[0] + action[0], obs[1]])


def start(key):
    return jnp.asarray([70.0, 1.0])


def where(rollout):
    return rollout.next_obs[-1, :1]


def plant(limit=75.0):
    return Task(
        name="plant",
        observations=Observations(low=(-np.inf,) * 2, high=(np.inf,) * 2, names=("temperature", "pressure")),
        actions=ContinuousActions(low=(-1.0,), high=(1.0,), names=("valve",)),
        reward=heat,
        constraints=[Constraint("too_hot", with_params(too_hot, limit=limit))],
        descriptor=where,
        grid=Grid((60.0,), (80.0,), (10,)),
        episode_length=6,
        step=warm,
        reset=start,
    )


@pytest.fixture(scope="module")
def agent():
    return Agent(plant(), **ORACLE)


def test_before_any_action_there_is_nothing_to_explain():
    with pytest.raises(GussError, match="no action to explain yet"):
        Agent(plant(), **ORACLE).explain()


def test_the_explanation_is_that_of_the_plan(agent):
    action = agent.act([73.0, 1.0])
    found = agent.explain()
    assert found.action == {"valve": float(action[0])}
    assert found.obs == {"temperature": 73.0, "pressure": 1.0}
    assert (found.phase, found.evaluated, found.horizon) == ("plan", 60, 4)
    assert found.reward == float(agent.last_plan.reward)
    assert found.safe_share == float(agent.last_plan.safe_share)
    assert found.costs == {"too_hot": 0.0}
    path = np.asarray(found.path["temperature"])
    assert path[0] == pytest.approx(73.0 + action[0], abs=1e-4)
    assert path[-1] - 73.0 == pytest.approx(found.reward, abs=1e-3), "the reward is what warms"
    assert found.path["pressure"] == [1.0] * 4
    (near,) = found.approaches
    assert (near.constraint, near.dimension, near.limit) == ("too_hot", "temperature", "at most 75")
    assert near.reached == pytest.approx(path.max(), abs=1e-4)
    assert near.step == 1 + int(path.argmax())
    assert found.runner_up.reward <= found.reward
    assert found.runner_up.safe
    assert abs(found.runner_up.action["valve"] - action[0]) > 0.02
    text = str(found)
    assert text.startswith(
        f"Chose valve = {action[0]:.3g}: of 60 plans {round(60 * found.safe_share)} are predicted safe"
    )
    assert f"temperature reaches {near.reached:.4g} of at most 75 at step {near.step}" in text
    assert "the runner-up, valve = " in text
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["path"]["temperature"] == found.path["temperature"]


def test_asking_does_not_change_what_is_done_next():
    asked, silent = Agent(plant(), **ORACLE), Agent(plant(), **ORACLE)
    for t in range(3):
        first, second = asked.act([72.0 + t, 1.0]), silent.act([72.0 + t, 1.0])
        np.testing.assert_array_equal(first, second)
        assert str(asked.explain()) == str(asked.explain())


def test_where_no_plan_is_safe_the_least_unsafe_is_said_to_be(agent):
    agent.act([90.0, 1.0])
    found = agent.explain()
    assert found.costs == {"too_hot": 4.0}
    assert "none of 60 plans is predicted safe; this one is the least unsafe (too_hot on 4 of 4 steps)" in str(found)
    agent.set_constraint("too_hot", limit=95.0)
    agent.act([90.0, 1.0])
    assert agent.explain().approaches[0].high == pytest.approx(95.0), "the limit that is set now"


@pytest.mark.parametrize(("policy", "phase"), [(None, "at random"), (lambda obs: [0.25], "by initial_policy")])
def test_initial_episodes_say_that_nothing_was_planned(policy, phase):
    task = plant().replace(step=None, reset=None)
    one = Agent(task, initial_policy=policy, **(ORACLE | {"model": "dmdn", "initial_episodes": 1}))
    action = one.act([73.0, 1.0])
    one.observe(Transition(np.asarray([73.0, 1.0]), action, None, None, np.asarray([73.0, 1.0])))
    text = str(one.explain())
    assert phase in text
    assert "nothing was planned" in text
    assert one.explain().to_json()["runner_up"] is None


def test_every_case_reads_as_a_sentence():
    known = {"phase": "plan", "episode": 3, "step": 5, "obs": {"x": 1.0}, "action": {"u": 0.5}, "horizon": 10}
    known |= {"evaluated": 100, "safe_share": 0.01, "broken_share": 0.25, "unfamiliar_share": 0.5, "reward": 10.0}
    assert "none of 100 plans has a finite prediction" in str(Explanation(**known, fallback=True))
    assert "of 100 plans this one earns the most reward (1 per step over 10 steps)" in str(Explanation(**known))
    text = str(Explanation(**known, costs={"c": 0.0}, runner_up=RunnerUp({"u": 0.1}, 5.0, 2.0, 0.0)))
    assert "of 100 plans 1 is predicted safe" in text
    assert "50 % of its predicted states are far from all data" in text
    assert "25 % of all plans have no finite prediction" in text
    assert text.endswith("the runner-up, u = 0.1, earns 0.5, and is predicted unsafe.")
    between = Approach("c", "x", "0.5 to 4", 0.5, 4.0, 4.5, 2)
    text = str(Explanation(**known, costs={"c": 1.0}, approaches=(between,)))
    assert "x reaches 4.5 at step 2, beyond 0.5 to 4" in text
    assert text.endswith("no plan has a different first action.")
    assert Explanation(**known | {"reward": float("nan")}).to_json()["reward"] is None


def test_violations_that_count_as_safe_are_named():
    known = {"phase": "plan", "episode": 3, "step": 5, "obs": {"x": 1.0}, "action": {"u": 0.5}, "horizon": 10}
    known |= {"evaluated": 100, "safe_share": 0.02, "reward": 10.0, "costs": {"c": 3.0, "d": 0.0}}
    text = str(Explanation(**known, safe=True))
    assert "of these, this one earns the most reward (1 per step over 10 steps), although some" in text
    assert "although some of its predictions violate c on 3 of 10 steps; no plan" in text
    assert "this one is the least unsafe (c on 3 of 10 steps)" in str(Explanation(**known, safe=False))


def test_an_allowed_violation_is_explained_as_safe():
    task = plant().replace(constraints=(Constraint("too_hot", with_params(too_hot, limit=75.0), bound=4.0),))
    one = Agent(task, **ORACLE)
    one.act([90.0, 1.0])
    found = one.explain()
    assert (found.safe, found.costs) == (True, {"too_hot": 4.0})
    assert "although some of its predictions violate too_hot on 4 of 4 steps" in str(found)
