"""A run and an agent stored before checkpoints had their present schema (guss 0.1.0 at commit 3615b08).

Records are read as ever. Checkpoints are refused with a reason, and nothing is changed; `config.json` of the run in
tests/data/earlier names the command that made it.
"""

import hashlib
import shutil
from pathlib import Path

import pytest

import guss
from guss.errors import GussError
from guss.runs.evaluation import evaluate_run
from guss.runs.extension import Extension
from guss.runs.run import resume

STORED = Path(__file__).parents[1] / "data" / "earlier"
NAME = "safe-pendulum-guss-a1cb7ebc"
REASON = r"has schema 1, this version of guss reads schema 2; use the version of guss that wrote it"


def digests(home):
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in home.rglob("*") if path.is_file()}


def test_records_of_an_earlier_version_are_read():
    run = guss.Run(STORED / NAME)
    assert [episode.phase for episode in run.episodes] == ["random", "plan"]
    assert run.metrics.mar.shape == (1,)
    assert run.config.horizon == 3


@pytest.mark.parametrize(
    "use", [lambda home: resume(home, more=Extension(episodes=3)), lambda home: evaluate_run(home, 1)]
)
def test_a_checkpoint_of_an_earlier_version_is_refused_and_kept(use, tmp_path):
    home = tmp_path / NAME
    shutil.copytree(STORED / NAME, home)
    before = digests(home)
    with pytest.raises(GussError, match=REASON):
        use(home)
    assert digests(home) == before


def test_an_agent_of_an_earlier_version_is_refused():
    with pytest.raises(GussError, match=REASON):
        guss.Agent.load(STORED / "agent.ckpt", "safe-pendulum")
