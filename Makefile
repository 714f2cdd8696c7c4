# Two commands do everything: `make demo` and `make test`. The rest is for those who change things.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check slow bench policies docs clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[train,play,export]'
	touch $@

$(VENV)/.developer: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/.installed  ## the whole loop against a hidden robot: train, try, diagnose, treat, train again; writes a report
	$(BIN)/surefoot cross hover

test: $(VENV)/.developer  ## every test that takes seconds
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: $(VENV)/.developer  ## format, lint, types, sizes, and the quick tests of laws
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_rooms.py tests/test_belief.py tests/test_params.py tests/test_log.py tests/test_verdict.py tests/test_policy.py tests/test_install.py

slow: $(VENV)/.developer  ## what learns past a threshold, kills runs at random instants, or takes minutes
	$(BIN)/python -m pytest -m slow --timeout=3600

bench: $(VENV)/.developer  ## every benchmark that takes minutes, recorded in benchmarks/results; the longer ones say so in docs/benchmarks.md
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	$(BIN)/python -m benchmarks.throughput --record
	$(BIN)/python -m benchmarks.learn --record

policies: $(VENV)/.developer  ## train, judge and gate the policies that ship in the package; ONLY=walk makes one; a stopped one goes on
	$(BIN)/python -m benchmarks.policies $(ONLY)

docs: $(VENV)/.developer  ## the documentation as a site, in build/site; a warning is an error
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
