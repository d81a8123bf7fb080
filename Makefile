# Each target makes the environment that it needs, from a lock file.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

CHECKS := check-generated check-style check-imports check-types check-house

# Each worker, and each program that a test starts, would compile what it imports again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-fast mutants nightly check $(CHECKS) check-collected peers docs bench soak compat spark-versions lock proto clean

run: $(VENV)/run.stamp
	exec $(BIN)/geminga standalone --data-dir $(or $(DATA_DIR),data) $(ARGS)

# Workers side by side: see docs/TESTING.md. WORKERS=0 is one process, in which a debugger can be used.
PYTEST := $(BIN)/python -m pytest -p compat_tests.side_by_side

test: $(VENV)/dev.stamp
	$(PYTEST) -n $(or $(WORKERS),3) $(ARGS)

test-fast: $(VENV)/dev.stamp
	$(PYTEST) -n $(or $(WORKERS),2) -m 'not slow and not java and not spark' --ignore compat_tests/clients --ignore compat_tests/faults $(ARGS)

# Plants recorded mistakes in copies of the tree, and prints which test finds each.
MUTANTS := $(BIN)/python -m compat_tests.mutants --jobs $(or $(WORKERS),2)

mutants: $(VENV)/dev.stamp
	$(MUTANTS) $(ARGS)

# As `test`, with all rounds of the long models and kills; then the mistakes, whose tests have passed.
nightly: export GEMINGA_NIGHTLY := 1
nightly: test
	$(MUTANTS) --trust

# .pre-commit-config.yaml runs the same steps.
check: $(CHECKS)

check-generated: $(VENV)/dev.stamp .venv-proto/stamp
	.venv-proto/bin/python tools/proto.py --check
	$(BIN)/python tools/faces.py --check

check-style: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	git grep -l 'async def' -- '*.py' ':!*/_tests/*' ':!compat_tests/*' | xargs -n 40 -P 2 $(BIN)/flake8-async --disable ASYNC100,ASYNC109,ASYNC114,ASYNC124,ASYNC300,ASYNC900,ASYNC910,ASYNC911,ASYNC912,ASYNC913

check-imports: $(VENV)/dev.stamp
	$(BIN)/lint-imports

check-types: $(VENV)/dev.stamp
	$(BIN)/mypy
	$(BIN)/pyright

# Both are tests as well, which `make test` has too.
check-house: $(VENV)/dev.stamp
	$(BIN)/python tools/public_names.py --check
	$(BIN)/python -m pytest -q compat_tests/test_tidy.py compat_tests/test_project.py

# All tests can be imported; the workers of `make test` then find them compiled.
check-collected: $(VENV)/dev.stamp
	$(BIN)/python -m pytest --collect-only -qq >/dev/null

# Other people's software for the tests, which fetch it themselves otherwise: Apache's jars, archives of Java's classes.
peers: $(VENV)/dev.stamp
	$(BIN)/python -m compat_tests.peers

# The API reference, in build/docs.
docs: .venv-docs/stamp
	PYTHONPATH=protocol:bookie_core:broker_core:sdk .venv-docs/bin/python tools/api_reference.py

bench: $(VENV)/dev.stamp
	$(BIN)/python -m compat_tests.bench $(ARGS)

soak: $(VENV)/dev.stamp
	$(BIN)/python -m compat_tests.soak $(ARGS)

compat: $(VENV)/dev.stamp
	$(BIN)/python -m pytest compat_tests $(ARGS)

spark-versions: $(VENV)/dev.stamp
	$(BIN)/python -m compat_tests.spark.versions $(ARGS)

lock: $(VENV)/run.stamp
	$(BIN)/python tools/lock.py

proto: .venv-proto/stamp
	.venv-proto/bin/python tools/proto.py

clean:
	rm -rf $(VENV) .venv-proto .venv-docs build .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: requirements/run.lock pyproject.toml | $(BIN)/python
	$(PIP) -r requirements/run.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q protocol bookie_core broker_core proxy sdk
	touch $@

$(VENV)/dev.stamp: requirements/dev.lock $(VENV)/run.stamp
	$(PIP) -r requirements/dev.lock
	touch $@

.venv-proto/stamp: requirements/proto.lock
	$(PYTHON) -m venv .venv-proto
	.venv-proto/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/proto.lock
	touch $@

.venv-docs/stamp: requirements/docs.lock
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/docs.lock
	touch $@
