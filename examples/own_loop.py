"""A custom control loop: your code drives the machine, first with your controller, then with the agent's plans.

python examples/own_loop.py
"""

import argparse
from pathlib import Path

import gymnasium

import guss

STEPS = 100


def controller(obs):
    """The existing controller: damps the pendulum, hanging down."""
    return [max(-2.0, min(2.0, -0.5 * obs[2]))]


def main(episodes: int, keep: Path) -> None:
    # Stands for your machine; only reset and step are used.
    machine = gymnasium.make("guss:guss/SafePendulum-v0").unwrapped
    # Only the spaces are known; the machine reports reward and cost.
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
            action = agent.act(obs)  # from the controller, later from a plan
            next_obs, reward, terminated, _, info = machine.step(action)
            # True at the end of the episode, after STEPS steps or a hard violation: then stop the machine.
            over = agent.observe(guss.Transition(obs, action, reward, [info["cost"]], next_obs), terminated=terminated)
            obs = next_obs
        last = agent.history[-1]
        print(f"{last.phase:>14}: mean reward {last.mean_reward:6.2f}, unsafe {last.unsafe_pct:4.1f} %")
    agent.save(keep)  # guss.Agent.load(keep, task) continues from here
    print(f"saved to {keep}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--keep", type=Path, default=Path("own-loop.ckpt"))
    args = parser.parse_args()
    main(args.episodes, args.keep)
