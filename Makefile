# make run: the main job.  make test: the test suite.  Everything lives in .venv, nothing else is touched.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup run test test-long test-pythons wheel-test fuzz bench check docs clean another-python
help:
	@echo "make run           set up, train GuSS on Safe Pendulum (about two minutes), print where the figures are"
	@echo "make test          set up, run the tests"
	@echo "make test-pythons  run the tests on every supported Python found, with pinned and with newest dependencies"
	@echo "make wheel-test    build wheel and sdist, test them on every supported Python outside the source tree"
	@echo "make test-long     run the long tests; results in results/tests/"
	@echo "make fuzz          test with 100,000 random inputs; results in results/tests/fuzz.json; about 20 minutes"
	@echo "make bench         compare guss with other libraries (in .venv-peers, 2 GB); results in benchmarks/; about 20 minutes"
	@echo "make check         lint, format, types, import directions, generated parts of the documentation"
	@echo "make docs          rewrite the generated parts of README.md and docs/ from stored records and the source"
	@echo "make setup         only set up .venv"
	@echo "PYTHON=python3.12 chooses the interpreter, VENV=folder the folder of the environment"

setup: $(STAMP)

# If PYTHON is given and .venv was made by another version, it is created again.
ifneq ($(origin PYTHON),file)
ifneq ($(shell $(BIN)/python -V 2>/dev/null),$(shell $(PYTHON) -V))
$(STAMP): another-python
endif
endif

$(STAMP): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 14) else "guss needs Python 3.11 to 3.13, $(PYTHON) is %d.%d; choose another with: make PYTHON=python3.12" % v[:2])'
	@echo "setting up $(VENV) (once, about a minute) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(addprefix --constraint ,$(CONSTRAINTS)) --editable '.[dev]'
	@touch $(STAMP)

run: $(STAMP)
	@$(BIN)/guss run --preset safe-pendulum-quick --seeds 3 --against random --replay --overwrite --out runs

# Most of the tests' time is compiling; without optimisations, fused loops built the short way, in one piece, it takes a
# quarter; flags that the installed jaxlib does not have are left out. Long tests run as for users. Tests of one file
# stay together: they share fixtures and compiled programs.
QUICK := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
test: $(STAMP)
	@flags="$$($(BIN)/python tests/xla_flags.py $(QUICK))" && \
	XLA_FLAGS="$$flags" $(BIN)/python -m pytest -n 2 --dist loadfile -m "not long"

test-pythons:
	@$(PYTHON) tests/pythons.py $(PYTHONS)

wheel-test: $(STAMP)
	@$(BIN)/python tests/wheel.py

test-long: $(STAMP)
	@$(BIN)/python -m pytest -n 2 -m long

fuzz: $(STAMP)
	@$(BIN)/python tests/fuzz.py --count 100000 --out results/tests/fuzz.json $(FUZZ)

PEERS := .venv-peers
bench: $(STAMP) $(PEERS)/.installed
	@$(BIN)/python -m benchmarks.run --peers $(PEERS)/bin/python $(BENCH)

# The peers' versions are for Python 3.11, and so is the jax that they share with guss (make bench PYTHON=python3.11).
# mbrl-lib asks for older libraries than it needs: it is installed without them.
$(PEERS)/.installed: benchmarks/peers/requirements.txt benchmarks/peers/requirements-nodeps.txt
	@echo "setting up $(PEERS) (once, a few minutes) ..."
	@$(PYTHON) -m venv --clear $(PEERS)
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers/requirements.txt
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r benchmarks/peers/requirements-nodeps.txt --editable .
	@touch $@

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/test_imports.py
	@$(BIN)/python docs/generate.py --check

docs: $(STAMP)
	@$(BIN)/python docs/generate.py

clean:
	rm -rf .venv .venv-peers .venv-sb3 .venv-3.* runs
