"""When the Gymnasium ids are registered, each case in a new process."""

import subprocess
import sys

import pytest

PENDULUM = "env = gymnasium.make('{}'); print(env.spec.id, env.reset(seed=0)[0].shape)"
FOUND = "guss/SafePendulum-v0 (3,)"


def run_python(code):
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return process.stdout.strip() or process.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("imports", "name"),
    [
        ("import gymnasium", "guss:guss/SafePendulum-v0"),
        ("import gymnasium, guss", "guss:guss/SafePendulum-v0"),
        ("import gymnasium, guss", "guss/SafePendulum-v0"),
        ("import gymnasium, guss.envs", "guss/SafePendulum-v0"),
        ("import guss.envs, gymnasium", "guss/SafePendulum-v0"),
        ("import guss.envs, gymnasium", "guss:guss/SafePendulum-v0"),
        ("import guss, gymnasium", "guss.envs:guss/SafePendulum-v0"),
    ],
)
def test_make_finds_the_id(imports, name):
    assert run_python(f"{imports}; {PENDULUM.format(name)}") == FOUND


@pytest.mark.parametrize("name", ["guss/SafePendulum-v0", "guss:guss/SafePendulum-v0"])
def test_guss_imported_before_gymnasium_registers_nothing(name):
    """The prefix `guss:` does not run guss a second time; `import guss.envs` or the prefix `guss.envs:` is needed."""
    assert "NamespaceNotFound" in run_python(f"import guss, gymnasium; {PENDULUM.format(name)}")


def test_make_vec_finds_the_vector_class():
    code = "import gymnasium; env = gymnasium.make_vec('guss:guss/SafeCarGoal-v0', num_envs=2)"
    assert run_python(f"{code}; print(type(env).__name__, env.num_envs)") == "SafeCarGoalVectorEnv 2"


def test_importing_guss_is_light_and_installs_no_import_hook():
    code = "import sys; hooks = list(sys.meta_path); import guss; print(sys.meta_path == hooks"
    assert run_python(f"{code}, 'gymnasium' in sys.modules, 'jax' in sys.modules)") == "True False False"


def test_importing_the_environments_imports_no_jax():
    assert run_python("import sys, guss.envs; print('jax' in sys.modules)") == "False"
