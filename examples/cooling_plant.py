"""A server room cooled by outside air: learn to use less electricity than the thermostat, and to be as safe.

python examples/cooling_plant.py                                       # energy and unsafe time of both, in two minutes
python examples/cooling_plant.py --episodes 4 --days 1 --fit-steps 300     # a first look

The plant is an ordinary Gymnasium environment that does not depend on guss. `plant_task` defines the reward and what is
unsafe, and the agent learns the dynamics. docs/cooling.md explains where the saving comes from.
"""

import argparse

import gymnasium
import jax.numpy as jnp
import numpy as np

import guss

STEPS, HOURS = 288, 1 / 12  # a day in steps of five minutes
CAPACITY = 0.6  # kWh per degree: heat capacity of air and racks
AIRFLOW, LEAK = 4.0, 0.2  # kW removed per degree above outside, by the fans at full speed and through the walls
FULL_POWER = 6.0  # kW that the fans draw at full speed
LIMIT = 27.0  # °C; a higher temperature is unsafe
BASE_LOAD, BURSTS = 9.0, (6.0, 14.0)  # kW of heat; a burst adds something between these
WATCHED = 3  # days that the thermostat controls while the agent observes
BEGINS, ENDS = 1 / 30, 1 / 9  # probability per step that a burst starts, and that it ends


# -------------------------------------------------------------------------------------------------------- the plant


def a_day(rng):
    """Load and outside temperature [STEPS + 1] and temperature noise [STEPS] of one day."""
    begin, end, size = rng.random(STEPS + 1) < BEGINS, rng.random(STEPS + 1) < ENDS, rng.uniform(*BURSTS, STEPS + 1)
    burst = np.zeros(STEPS + 1)
    for t in range(1, STEPS + 1):
        burst[t] = (0.0 if end[t] else burst[t - 1]) if burst[t - 1] else begin[t] * size[t]
    load = BASE_LOAD + burst + rng.normal(0.0, 0.3, STEPS + 1)
    clock = np.arange(STEPS + 1) / STEPS
    outside = rng.normal(14.0, 1.5) + 3.0 * np.sin(2 * np.pi * (clock - 0.35))  # coldest before sunrise
    return load, outside, rng.normal(0.0, 0.05, STEPS)


def warmed(temperature, load, outside, cooling):
    """The room temperature after a step. Warmer air removes more heat, so a warmer room needs less air."""
    return temperature + HOURS / CAPACITY * (load - (AIRFLOW * cooling + LEAK) * (temperature - outside))


class CoolingPlant(gymnasium.Env):
    """Observed: room temperature [°C], heat load [kW], outside temperature [°C]. Action: fan speed, 0 to 1.

    Reward: minus the electric power in kW; fans draw the cube of their speed. `info["cost"]` is 1 above the limit.
    The seed determines the weather and load of a day, so controllers can be compared on the same days.
    """

    def __init__(self):
        low, high = np.asarray([-20, 0, -30], np.float32), np.asarray([80, 60, 50], np.float32)
        self.observation_space = gymnasium.spaces.Box(low, high)
        self.action_space = gymnasium.spaces.Box(0.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.load, self.outside, self.noise = a_day(self.np_random)
        self.t, self.temperature = 0, self.np_random.uniform(24.0, 26.0)
        return self._obs(), {"cost": 0.0}

    def step(self, action):
        cooling = float(np.clip(action[0], 0.0, 1.0))
        now = self.load[self.t], self.outside[self.t]
        self.temperature = warmed(self.temperature, *now, cooling) + self.noise[self.t]
        self.t += 1
        info = {"cost": float(self.temperature > LIMIT)}
        return self._obs(), -FULL_POWER * cooling**3, False, self.t == STEPS, info

    def _obs(self):
        return np.asarray([self.temperature, self.load[self.t], self.outside[self.t]], np.float32)


def make_env():
    return CoolingPlant()


# ----------------------------------------------------------------------------------- the existing controllers


def thermostat(obs, setpoint=23.6, gain=0.1827):
    """Fan speed in proportion to the temperature above a setpoint. Tuned: python studies/cooling.py --tune"""
    return np.clip(gain * (obs[..., :1] - setpoint), 0.0, 1.0)


def with_noise(controller, seed, size=0.15):
    """The controller with random noise on its actions. A noise-free thermostat takes the same action at the same
    temperature, so a model could not separate the effect of the cooling from that of the temperature."""
    rng = np.random.default_rng(seed)
    return lambda obs: np.clip(controller(obs) + rng.uniform(-size, size, 1), 0.0, 1.0)


# ------------------------------------------------------------------------------------------ the Task of the plant


def power(obs, action, next_obs):
    return -FULL_POWER * action[0] ** 3


def too_hot(obs, action, next_obs, limit):
    return next_obs[0] > limit


def where_it_leads(rollout):
    """Behaviour descriptor: the final temperature and the mean fan speed."""
    return jnp.stack([rollout.next_obs[-1, 0], jnp.mean(rollout.action)])


def plant_task():
    return guss.Task(
        name="cooling-plant",
        observations=guss.Observations(low=(-20.0, 0.0, -30.0), high=(80.0, 60.0, 50.0)),
        actions=guss.ContinuousActions(low=(0.0,), high=(1.0,)),
        reward=power,
        constraints=[guss.Constraint("too_hot", guss.with_params(too_hot, limit=LIMIT), stricter={"limit": -1.0})],
        descriptor=where_it_leads,
        grid=guss.Grid(low=(20.0, 0.0), high=(30.0, 1.0), cells=(20, 20)),
        episode_length=STEPS,
        fallback=(1.0,),  # full cooling
    )


def held(obs, action, key):
    """The physics of the plant in JAX, as if load and weather stayed as they are."""
    temperature, load, outside = obs
    return jnp.stack([warmed(temperature, load, outside, action[0]), load, outside])


def known():
    """The plant for a run with its physics instead of a learned model:
    guss run --env examples/cooling_plant.py:known --model oracle --planning-margin 0.25"""
    return make_env(), plant_task().replace(step=held)


SETTINGS = {
    "initial_episodes": WATCHED,
    "horizon": 12,  # an hour
    "budget": 200,
    "planning_margin": 0.25,  # plans keep 0.25 °C below the limit
    "model": "dmdn",
    "model_settings": {"hidden": (32, 32), "ensemble": 3},  # plans use the maximum cost of three nets
    "fit": {"max_steps": 3000, "warm_steps": 1000},
}


def make_agent(seed=0, **settings):
    """An agent that observes the thermostat for some days and then controls the fans itself."""
    first = with_noise(thermostat, seed)
    return guss.Agent(make_env(), task=plant_task(), seed=seed, initial_policy=first, **(SETTINGS | settings))


def operate(controller, seed):
    """One day under a controller: observations [STEPS + 1, 3] and fan speeds [STEPS]."""
    env = make_env()
    seen, actions, over = [env.reset(seed=seed)[0]], [], False
    while not over:
        actions.append(np.asarray(controller(seen[-1])))
        obs, _, _, over, _ = env.step(actions[-1])
        seen.append(obs)
    return np.stack(seen), np.concatenate(actions)


def evaluate(seen, actions):
    """A day's energy in kWh, and the percentage of time above the limit."""
    return np.sum(FULL_POWER * actions**3) * HOURS, 100 * np.mean(seen[1:, 0] > LIMIT)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--episodes", type=int, default=8, help=f"days of learning; the thermostat acts on the first {WATCHED}"
    )
    parser.add_argument("--days", type=int, default=5, help="new days for the comparison")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=SETTINGS["budget"], help="plans evaluated per step")
    parser.add_argument(
        "--fit-steps", type=int, default=SETTINGS["fit"]["max_steps"], help="gradient steps of the first fit"
    )
    args = parser.parse_args()
    agent = make_agent(args.seed, budget=args.budget, fit=SETTINGS["fit"] | {"max_steps": args.fit_steps})
    who = {"initial_policy": "thermostat + noise", "plan": "guss"}
    for day in range(args.episodes):
        news = agent.learn(1)[0]
        print(f"day {day + 1}: {who[news.phase]:20s} {-24 * news.mean_reward:6.2f} kWh, {news.unsafe_pct:.2f} % unsafe")
    print(f"{args.days} new days, the same for both:")
    agent.reset()
    for name, controller in (("thermostat", thermostat), ("guss", agent.act)):
        days = [evaluate(*operate(controller, seed)) for seed in range(10_000, 10_000 + args.days)]
        spent, hot = np.mean(days, axis=0)
        print(f"{name:10s} {spent:6.2f} kWh a day, {hot:.2f} % of the time unsafe")


if __name__ == "__main__":
    main()
