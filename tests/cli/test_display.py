"""What the terminal shows while a run goes on, and at its end."""

import io

import pytest
from rich.console import Console

from guss.cli.display import print_evaluation, print_run_summary
from guss.progress import EpisodeSummary, RunProgress, news_pieces


def news(**fields):
    about = {"episode": 11, "phase": "plan", "mean_reward": -12.3456, "mean_return": -2469.1, "ends_early": False}
    about |= {"unsafe_pct": 12.5, "unsafe_by_cost": {"unsafe": 12.5}, "model_r2": 0.9876, "seconds_fit": 12.3}
    return EpisodeSummary(**about | {"seconds_plan": 45.6, "seconds_compile": 7.8} | fields)


def terminal(width=80):
    return Console(file=io.StringIO(), width=width, force_terminal=True, legacy_windows=False)


def last_line(progress):
    """The bar as it is drawn now."""
    console = Console(file=io.StringIO(), width=progress._console.width, force_terminal=False)
    console.print(progress._bar.get_renderable())
    lines = console.file.getvalue().rstrip("\n").split("\n")
    assert len(lines) == 1, "one line"
    return lines[0]


@pytest.mark.parametrize("name", ["", "safe-mbpo", "ppo-lagrangian"])
@pytest.mark.parametrize("episodes", [40, 1000])
def test_the_progress_line_fits_80_columns_and_keeps_reward_and_unsafe_share(name, episodes):
    progress = RunProgress(terminal(), episodes, name)
    assert "compiling" in last_line(progress)
    progress.episode(news())
    for prepare in (lambda: None, lambda: progress.step(120)):
        prepare()
        assert len(last_line(progress)) <= 80
        assert "reward -12.346" in last_line(progress)
        assert "…" not in last_line(progress)
    progress.episode(news())
    assert "unsafe 12.50 %" in last_line(progress)
    assert f"12/{episodes}" in last_line(progress)
    progress.stage("compiling the planner for a system with a very long name indeed")
    assert len(last_line(progress)) <= 80
    assert "compiling the planner" in last_line(progress)


def test_a_stage_is_shown_until_the_next_step_or_episode():
    progress = RunProgress(terminal(120), 40)
    progress.stage("fitting")
    assert "fitting" in last_line(progress)
    progress.step(1)
    assert "fitting" not in last_line(progress)
    assert "step 1" in last_line(progress)
    progress.stage("compiling the planner")
    progress.episode(news())
    assert "compiling" not in last_line(progress)


def test_stages_leave_no_line_where_there_is_no_terminal():
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    with RunProgress(console, 40) as progress:
        progress.stage("fitting")
        progress.step(10)
        progress.episode(news())
    assert console.file.getvalue().startswith("episode 12/40 (plan): reward -12.346  unsafe 12.50 %")
    assert len(console.file.getvalue().splitlines()) == 1


def test_returns_are_shown_where_episodes_end_early_and_every_cost_by_its_name():
    assert news_pieces(news())[0] == "reward -12.346"
    costs = {"too_hot": 10.0, "pressure": 2.5}
    pieces = news_pieces(news(ends_early=True, steps=17.0, mean_return=34.25, unsafe_by_cost=costs))
    assert pieces[0] == "return 34.25"
    assert "unsafe by too_hot 10.00 %, pressure 2.50 %" in pieces
    assert "steps 17" in pieces
    assert "steps 10.5" in news_pieces(news(ends_early=True, steps=10.5)), "two seeds, 10 and 11 steps"


def summary(**fields):
    about = {"env": "plant", "method": "guss", "seeds": 2, "episodes": 4, "measure": "return", "threshold": None}
    about |= {"reached": 0, "mar": [31.5, 1.0], "mrcp_ksteps": [None, None], "unsafe_pct": [2.0, 0.5]}
    about |= {"unsafe_trans_pct": [3.0, None], "unsafe_pct_by_cost": {"[too] hot": [1.5, 0.25]}, "measured": ()}
    return about | fields


def test_the_summary_has_a_row_for_every_cost(tmp_path):
    console = Console(file=io.StringIO(), width=120)
    print_run_summary(console, [summary()], [])
    shown = console.file.getvalue()
    assert "return of an episode" in shown
    assert "[too] hot" in shown
    assert "1.500 ± 0.250" in shown
    assert "had random actions" not in shown
    measured = summary(measured=("[in]side",), unsafe_pct_by_cost={"[in]side": [2.5, None]})
    print_run_summary(console, [summary(), measured], [])  # an old run, then a new one
    assert "steps with the cost [in]side, which plans do not" in console.file.getvalue()
    print_run_summary(console, [summary(mar_episodes=7, mar_random_episodes=6)], [])
    assert "guss: 6 of the 7 episodes of MAR had random actions" in console.file.getvalue()
    evaluated = {"trained_episodes": 4, "episodes": 2, "seeds": 1, "ends_early": True, "steps": [17.0, None]}
    evaluated |= {"return": [34.25, None], "mean_reward": [2.0, None], "unsafe_pct": [2.0, None]}
    costs = {"too_hot": [1.5, None], "inside": [2.5, None]}
    evaluated |= {"unsafe_pct_by_cost": costs, "measured": ["inside"], "worst_episode_unsafe_pct": 4.0}
    print_evaluation(console, evaluated, tmp_path / "eval.json")
    shown = console.file.getvalue()
    assert "34.250" in shown
    assert "too_hot" in shown
