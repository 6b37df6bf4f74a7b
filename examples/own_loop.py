"""A loop that you own: the machine is driven by your code, at first by your own controller, then by the agent's plans.

python examples/own_loop.py
"""

import argparse
from pathlib import Path

import gymnasium

import guss

STEPS = 100


def controller(obs):
    """What runs the machine today: hold the pendulum back, hanging."""
    return [max(-2.0, min(2.0, -0.5 * obs[2]))]


def main(episodes: int, keep: Path) -> None:
    # Stands for yours: reset and step are all that is used.
    machine = gymnasium.make("guss:guss/SafePendulum-v0").unwrapped
    # Nothing is known of it but its spaces; reward and cost are what it tells.
    task = guss.make_task("safe-pendulum").replace(step=None, reset=None, episode_length=STEPS)
    task = task.forget(["reward", "cost", "behaviour"])
    agent = guss.Agent(
        task,
        initial_policy=controller,
        initial_episodes=2,
        horizon=12,
        budget=100,
        model_settings={"hidden": (32, 32)},
        fit={"max_steps": 1000, "warm_steps": 300},
    )
    for episode in range(episodes):
        obs, _ = machine.reset(seed=episode)
        over = False
        while not over:
            action = agent.act(obs)  # the controller's, then a plan's
            next_obs, reward, terminated, _, info = machine.step(action)
            # Whether it is over: after STEPS steps, or because a hard limit was violated. Then drive no further.
            over = agent.observe(guss.Transition(obs, action, reward, [info["cost"]], next_obs), terminated=terminated)
            obs = next_obs
        last = agent.history[-1]
        print(f"{last.phase:>14}: mean reward {last.mean_reward:6.2f}, unsafe {last.unsafe_pct:4.1f} %")
    agent.save(keep)  # guss.Agent.load(keep, task) continues from here
    print(f"kept in {keep}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--keep", type=Path, default=Path("own-loop.ckpt"))
    args = parser.parse_args()
    main(args.episodes, args.keep)
