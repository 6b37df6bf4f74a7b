"""Steps of the real system: episodes of compiled tasks and of Gymnasium environments, and logged data.

trajectories  how a Trajectory is made of columns, logs and steps
episode_metrics  reward and unsafe steps of an episode
compiled      whole episodes of compiled tasks, all seeds in one program
host          episodes on Gymnasium environments, which `host_envs` steps
exploration   the first data
datasets      logged transitions as files, in the formats of `tables`
inputs        checks of what comes from a user or a file, and one system step by step
env_check     `check_env`: what an environment is, and what is wrong with it
"""
