# Only Python and make are assumed: every target sets up what it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: test test-interop test-ray test-slow lint format bench demo smoke docs wheel clean
.DELETE_ON_ERROR:

# A stamp per set of extras, so that `make demo` does not install the test suite's references.
.venv/stamp:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

.venv/stamp-core: .venv/stamp pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/stamp-%: .venv/stamp-core pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[$*]"
	touch $@

test: .venv/stamp-test
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not interop and not ray"

# Against the libraries themselves. They are imported first, so that no test can skip for want of one.
test-interop: .venv/stamp-test .venv/stamp-interop
	$(BIN)/python -c "import torch, sb3_contrib, flax, gymnax, gymnasium"
	$(BIN)/python -m pytest -n 2 --dist loadfile -m interop tests/test_interop_*.py tests/test_examples.py

# Sweeps on a Ray of several nodes on this machine, which the tests kill one by one.
test-ray: .venv/stamp-test .venv/stamp-ray
	$(BIN)/python -m pytest -m ray tests/test_ray.py

# Sweeps in real processes, examples, and the page in a browser (Debian's chromium, if it is there).
test-slow: .venv/stamp-test .venv/stamp-browser
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

# With the other libraries, whose types it checks ours against.
lint: .venv/stamp-lint .venv/stamp-interop .venv/stamp-ray
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: .venv/stamp-lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/stamp-core
	mkdir -p build/bench
	for name in posterior update evaluate solve seeds startup; do \
		$(BIN)/recurrent-laplace bench $$name --json build/bench/$$name.json || exit 1; \
	done
	$(BIN)/recurrent-laplace bench growth --json build/bench/growth.json --plot build/bench/growth.svg

# Small agents learn, are made Bayesian post hoc, and are compared: ends with the path of the page.
demo: .venv/stamp-core
	$(BIN)/recurrent-laplace sweep examples/demo.toml --out build/demo
	@$(BIN)/recurrent-laplace report build/demo

# Every stage of the reproduction with tiny runs, and its page.
smoke: .venv/stamp-core
	$(BIN)/recurrent-laplace reproduce --scale smoke --out build/smoke

# Not --quiet: it drops the warnings before --strict counts them.
docs: .venv/stamp-docs
	$(BIN)/python -m mkdocs build --strict
	@echo build/site/index.html

# Builds the wheel and uses it from an empty folder, in an environment of its own.
wheel: .venv/stamp
	scripts/check-wheel

clean:
	rm -rf .venv build dist .pytest_cache .hypothesis .ruff_cache
