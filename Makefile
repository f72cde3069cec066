# A bare machine needs python3 (3.11 or newer), pip and make; everything else goes into $(VENV).
PYTHON ?= python3
VENV ?= .venv
OUT ?=
# `--required`: tests without a browser are a failure, not a line that says so.
BROWSER ?=
# What `make docs` and `make gallery` write below docs.
PAGES := docs/reference docs/gallery docs/tutorials/images \
	$(patsubst %.py,%.md,$(wildcard docs/tutorials/*.py))
REPORTS := $(foreach kind,verify falsify,out/$(kind) out/$(kind)-part)
ARGS ?=

BIN := $(VENV)/bin
# Written last by tools/venv.py, so that a second call installs nothing.
TEST_READY := $(VENV)/.ready-test
DEV_READY := $(VENV)/.ready-dev
SLOW_READY := $(VENV)/.ready-slow
# The pyright wheel brings its own pyright; this keeps it from looking for a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS = 1
# Tests check every annotated shape and type as they run; a whole number passes for a `float`.
TYPES := --jaxtyping-packages=iclflow,beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))
# What pytest exits with when ARGS picks no test of a kind.
NONE_SELECTED := 5

.DEFAULT_GOAL := help
.PHONY: help verify test test-slow bench lint format docs gallery clean distclean

help: ## list the targets
	@echo "usage: make TARGET [PYTHON=$(PYTHON)] [VENV=$(VENV)] [ARGS='…']"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

verify: $(TEST_READY) ## compute the claims, write a report (OUT=folder, ARGS='--falsify')
	@$(BIN)/iclflow verify $(if $(OUT),--out $(OUT)) $(ARGS)

test: $(TEST_READY) ## run the tests but for the slow ones (ARGS='-k staircase' picks some)
	@$(PYTHON) tools/browser.py $(BROWSER)
	@$(BIN)/python -m pytest '$(TYPES)' -m 'not slow and not timed' $(ARGS)

# Tests of wall-clock times come last, one at a time: beside others they would measure the others.
# With the libraries that trainings are written in, which the quick tests do without.
test-slow: $(SLOW_READY) ## run the slow tests: longer runs, every preset, wall-clock times
	@$(PYTHON) tools/browser.py $(BROWSER)
	@$(BIN)/python -m pytest '$(TYPES)' -m 'slow and not timed' $(ARGS) || [ $$? = $(NONE_SELECTED) ]
	@$(BIN)/python -m pytest '$(TYPES)' -m timed -n 0 $(ARGS) || [ $$? = $(NONE_SELECTED) ]

bench: $(TEST_READY) ## measure speed against plain training loops (ARGS=softmax, ARGS='sweeps --quick')
	@$(BIN)/python -m benchmarks $(ARGS)

lint: $(DEV_READY) ## check style, formatting and types; change nothing
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright --pythonpath $(BIN)/python

format: $(DEV_READY) ## put imports and formatting in order
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(TEST_READY) ## build the documentation into site/, strictly
	@$(BIN)/python tools/reference.py
	@$(BIN)/python tools/tutorials.py pages
	@$(BIN)/python tools/gallery.py pages
	@PATH="$(BIN):$$PATH" PYTHONPATH=tools $(BIN)/zensical build --clean --strict
	@echo "The documentation is $(CURDIR)/site/index.html"

# What `make docs` then shows; what is there already is not computed again.
gallery: $(TEST_READY) ## run the tutorials and draw all figures, which takes long
	@$(BIN)/python tools/tutorials.py run $(ARGS)
	@$(BIN)/python tools/gallery.py draw $(ARGS)

clean: ## remove what the other targets wrote, except the environment and your runs
	rm -rf $(OUT) $(REPORTS) $(PAGES) out/gallery notebooks site dist .cache .pytest_cache .ruff_cache .hypothesis
	find . -path './.*' -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove the environment too
	rm -rf $(VENV) $(VENV).lock

$(TEST_READY): pyproject.toml constraints.txt
	@$(PYTHON) tools/venv.py $(VENV) test

$(DEV_READY): pyproject.toml constraints.txt
	@$(PYTHON) tools/venv.py $(VENV) dev

$(SLOW_READY): pyproject.toml constraints.txt
	@$(PYTHON) tools/venv.py $(VENV) slow
