# Each target makes the environment that it needs, from a lock file.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: run test check bench compat spark-versions lock proto clean

run: $(VENV)/run.stamp
	exec $(BIN)/geminga standalone --data-dir $(or $(DATA_DIR),data) $(ARGS)

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/dev.stamp .venv-proto/stamp
	.venv-proto/bin/python tools/proto.py --check
	$(BIN)/python tools/faces.py --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/flake8-async --disable ASYNC109,ASYNC114,ASYNC124,ASYNC900,ASYNC910,ASYNC911,ASYNC912,ASYNC913 $$(git grep -l 'async def' -- '*.py' ':!*/_tests/*' ':!compat_tests/*')
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/python -m pytest -q compat_tests/test_tidy.py

bench: $(VENV)/dev.stamp
	$(BIN)/python -m compat_tests.bench $(ARGS)

compat: $(VENV)/dev.stamp
	$(BIN)/python -m pytest compat_tests $(ARGS)

spark-versions: $(VENV)/dev.stamp
	$(BIN)/python -m compat_tests.spark.versions $(ARGS)

lock: $(VENV)/run.stamp
	$(BIN)/python tools/lock.py

proto: .venv-proto/stamp
	.venv-proto/bin/python tools/proto.py

clean:
	rm -rf $(VENV) .venv-proto .mypy_cache .ruff_cache .pytest_cache .hypothesis

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
