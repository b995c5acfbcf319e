# Hopyard's commands. Each works alone on a fresh Debian machine that has Python 3.11 or newer:
#   make demo     a search over real training, in a minute or two        make test     every check and test that guards a merge
# PYTHON chooses the interpreter (make test PYTHON=python3.12), VENV the folder of the environment.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq install
TORCH := $(shell grep '^torch==' constraints.txt)
# Everything the tests need. System packages come first: they may include the interpreter's venv module.
READY = deploy/install-system-packages.sh && deploy/install-criu.sh && $(MAKE) --no-print-directory $(VENV)/.dev-ready
export PYTHON

.PHONY: help demo quick test nightly golden lint format proto clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo     watch a search over real training run through all the services'
	@echo 'make quick    the pure tests, in parallel: under a minute'
	@echo 'make test     lint and every test that guards a merge, as CI runs them: at most 15 minutes'
	@echo 'make nightly  all other tests, long simulations and random searches: at most 90 minutes'
	@echo 'make golden   compare the behaviour with the golden record: at most 5 minutes'
	@echo 'make lint     ruff, mypy, import-linter, buf, generated code: under 30 s when little changed'
	@echo 'make format   format the code'
	@echo 'make proto    generate the stubs of protos/ into the SDK'
	@echo 'make clean    remove the environment and all caches'
	@echo 'The tests of one package: .venv/bin/pytest tests/unit/core   (see CONTRIBUTING.md)'

demo: $(VENV)/.demo-ready
	$(BIN)/hopyard run examples/digits/experiment.yaml

quick: $(VENV)/.dev-ready
	@VENV=$(VENV) scripts/check.sh quick

test:
	@$(READY)
	@VENV=$(VENV) scripts/check.sh

nightly:
	@$(READY)
	@VENV=$(VENV) scripts/check.sh nightly

golden: $(VENV)/.dev-ready
	@$(BIN)/python -m tests.golden

lint: $(VENV)/.dev-ready
	@VENV=$(VENV) scripts/check.sh lint

format: $(VENV)/.dev-ready
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

proto: $(VENV)/.dev-ready
	@$(BIN)/python scripts/generate_protos.py

clean:
	rm -rf $(VENV) .test-results .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# Stamp files skip completed steps; a change of pyproject.toml or constraints.txt invalidates them.
$(VENV)/.python-ready:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Hopyard needs Python 3.11 or newer; $(PYTHON) is older or missing: make PYTHON=python3.11 ..." >&2; exit 1; }
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV); echo "no venv module: run deploy/install-system-packages.sh (Debian: python3-venv)" >&2; exit 1; }
	@touch $@

# Install PyTorch first, pinned, so that pip keeps the build chosen for this machine.
$(VENV)/.demo-ready: $(VENV)/.python-ready pyproject.toml constraints.txt
	@echo "installing Hopyard and PyTorch (some minutes the first time)"
	@$(PIP) $(TORCH)
	@$(PIP) -c constraints.txt -e '.[demo,cluster]'
	@touch $@

$(VENV)/.dev-ready: $(VENV)/.demo-ready
	@echo "installing the development tools"
	@$(PIP) -c constraints.txt -e '.[dev]'
	@touch $@
