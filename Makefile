# Only Python and make are assumed: every target sets up what it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin
PYTHON_NEWEST ?= $(shell scripts/newest-python)
# What needs no more than the core and the extra `test`, and takes no minutes.
QUICK := not slow and not interop and not ray and not references and not site
# Outcomes of each target's tests, which `make check-skips` reads. With "=": pytest takes a value that exists as a file
# for a place to collect from until it knows the option.
OUTCOMES = --outcomes=build/outcomes/$@.json
# Tests that use every dependency of the core: for other versions of them, and of Python.
CORE := $(addprefix tests/,cells/test_cells.py cli learning/test_devices.py models monitoring posterior/test_laplace.py \
	report/test_figures.py report/test_page.py runs/test_display.py runs/test_runs.py sweeps/test_leases.py \
	evaluation/test_calibration.py)

.PHONY: test test-interop test-ray test-references test-site test-slow test-lowest test-tested check-skips
.PHONY: lint format bench demo smoke docs wheel clean
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
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "$(QUICK)" $(OUTCOMES)

# Against the libraries themselves. They are imported first, so that no test can skip for want of one.
test-interop: .venv/stamp-test .venv/stamp-interop
	$(BIN)/python -c "import torch, sb3_contrib, flax, gymnax, gymnasium, wandb"
	$(BIN)/python -m pytest -n 2 --dist loadfile -m interop $(OUTCOMES)

# Sweeps on a Ray of several nodes on this machine, which the tests kill one by one.
test-ray: .venv/stamp-test .venv/stamp-ray
	$(BIN)/python -m pytest -m ray tests/sweeps/test_ray.py $(OUTCOMES)

# Against distrax and rlax, which need a nightly of TFP: apart from `test`, since nightlies disappear.
test-references: .venv/stamp-test .venv/stamp-references
	$(BIN)/python -m pytest -m references tests/gaussians/test_distrax_rlax.py $(OUTCOMES)

# The documentation as mkdocs builds it.
test-site: .venv/stamp-test .venv/stamp-docs
	$(BIN)/python -m pytest -m site tests/test_docs.py $(OUTCOMES)

# Sweeps in real processes, examples, and the page in a browser (Debian's chromium, if it is there).
test-slow: .venv/stamp-test .venv/stamp-browser
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow $(OUTCOMES)

.venv-lowest/stamp: pyproject.toml constraints/lowest.txt
	$(PYTHON) -m venv --clear .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --constraint constraints/lowest.txt --editable ".[test]"
	touch $@

# With the lowest versions that pyproject.toml allows, whose deprecated calls of newer packages are not ours.
test-lowest: .venv-lowest/stamp
	.venv-lowest/bin/python -m pytest -n 2 --dist worksteal -m "$(QUICK)" -W ignore::DeprecationWarning \
		$(CORE) $(OUTCOMES)

.venv-tested/stamp: pyproject.toml constraints/tested.txt
	"$(PYTHON_NEWEST)" -m venv --clear .venv-tested
	.venv-tested/bin/python -m pip install --quiet --constraint constraints/tested.txt --editable ".[test]"
	touch $@

# With the versions of constraints/tested.txt on the newest Python of this machine.
test-tested:
	@if [ -z "$(PYTHON_NEWEST)" ]; then \
		echo "test-tested: not run, since neither python3.13 nor python3.12 was found; set PYTHON_NEWEST"; \
	else \
		$(MAKE) --no-print-directory .venv-tested/stamp && \
		.venv-tested/bin/python --version && \
		.venv-tested/bin/python -m pytest -n 2 --dist worksteal -m "$(QUICK)" $(CORE) $(OUTCOMES); \
	fi

# After all of the above: every test was executed in one of them, but for those with the marker WITHOUT.
check-skips: .venv/stamp-test
	$(BIN)/python scripts/check_skips.py build/outcomes $(addprefix --without ,$(WITHOUT))

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
	rm -rf .venv .venv-lowest .venv-tested build dist .pytest_cache .hypothesis .ruff_cache
