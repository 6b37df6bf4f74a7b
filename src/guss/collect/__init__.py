"""Steps of the real system: episodes of compiled tasks and of Gymnasium environments, and logged data.

trajectories  Trajectories from columns, logs and steps
episode_metrics  reward and unsafe steps of an episode
compiled      whole episodes of compiled tasks, all seeds in one program
host          episodes on Gymnasium environments, which `host_envs`, `vector_envs` and `worker_envs` step
exploration   random actions, for the first data
datasets      logged transitions as files, in the formats of `tables`
inputs        checks of data from users and files, and steps of a single system
env_check     `check_env`: properties and problems of an environment
"""
