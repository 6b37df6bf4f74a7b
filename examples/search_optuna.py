"""Search for settings with a high reward and few unsafe steps, with Optuna. All processes share the output folder.

    pip install optuna
    python examples/search_optuna.py --trials 20 --out runs/search      # in as many terminals as there are cores

Each trial is a run of guss in the folder, so `guss report runs/search` compares all of them. An interrupted search
resumes with the same command: finished trials are read from the journal.
"""

import argparse
from pathlib import Path

import matplotlib
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

import guss

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def make_config(trial: optuna.Trial, episodes: int, seeds: int) -> guss.RunConfig:
    """The settings of a trial. Seeds start at 1000: report the chosen settings on other seeds."""
    return guss.make_config(
        "safe-pendulum",
        "guss",
        seeds=range(1000, 1000 + seeds),
        episodes=episodes,
        horizon=trial.suggest_int("horizon", 5, 20),
        planning_margin=trial.suggest_float("planning_margin", 0.0, 0.2, step=0.05),
        method_settings={"num_new": trial.suggest_int("num_new", 3, 15)},
    )


def run_or_resume(config: guss.RunConfig, out: Path) -> guss.Run:
    """The run of these settings: two trials with equal settings share it."""
    home = config.folder_in(out)
    return guss.resume(home) if (home / "config.json").exists() else guss.run(config, out)


def draw_pareto(study: optuna.Study, path: Path) -> None:
    """All trials, with those that no other trial dominates in red."""
    figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
    for trials, style in (
        (study.get_trials(states=[optuna.trial.TrialState.COMPLETE]), "o"),
        (study.best_trials, "ro-"),
    ):
        points = sorted((trial.values[1], trial.values[0]) for trial in trials)
        axes.plot(*zip(*points, strict=True), style, label="not dominated" if "r" in style else "trials")
    axes.set(xlabel="unsafe steps [%]", ylabel="MAR: mean reward per step")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Ask for settings, run them, tell their results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20, help="trials of all processes together")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/search"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        study_name="guss",
        storage=JournalStorage(JournalFileBackend(str(args.out / "optuna.journal"))),
        directions=["maximize", "minimize"],
        sampler=optuna.samplers.TPESampler(multivariate=True, n_startup_trials=8),
        load_if_exists=True,
    )
    while len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE])) < args.trials:
        trial = study.ask()
        metrics = run_or_resume(make_config(trial, args.episodes, args.seeds), args.out).metrics
        mar, unsafe = float(metrics.mar.mean()), float(metrics.unsafe_pct.mean())
        study.tell(trial, [mar, unsafe])
        print(f"trial {trial.number}: {trial.params}, MAR {mar:.3f}, unsafe {unsafe:.2f} %")
    draw_pareto(study, args.out / "pareto.png")
    for best in study.best_trials:
        print(f"not dominated: {best.params}, MAR {best.values[0]:.3f}, unsafe {best.values[1]:.2f} %")


if __name__ == "__main__":
    main()
