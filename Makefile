# make walk   set up, execute every chapter, leave build/report.html and build/report.json
# make test   set up, run every check
# make lab    set up, open JupyterLab on the first chapter
# make browser  set up, turn the explorer in JupyterLab in a Chromium of this machine
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install walk test lab browser browser-ready bench gpu clean

# The first Python of 3.11 to 3.13 that starts and can make environments; PYTHON=... chooses another.
USABLE := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
CANDIDATES := python3.11 python3.12 python3.13 python3
PYTHON ?= $(shell for p in $(CANDIDATES); do $$p -c '$(USABLE)' 2>/dev/null && echo $$p && break; done)

BIN := .venv/bin
STAMP := .venv/installed-$(shell cat constraints.txt pyproject.toml | cksum | cut -d ' ' -f 1)
TORCH := $(shell grep '^torch==' constraints.txt)
CHAPTERS := $(sort $(wildcard notebooks/*.ipynb))
WORKERS ?= 2
CELL_TIMEOUT ?= 300

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

install: $(STAMP)

# Named after what it was made from, so it is made again when that changes. torch comes first and by its
# exact version: resolved together with the rest, another build could win.
$(STAMP):
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 with venv is needed; PYTHON=/path/to/python names one"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH) --constraint constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[kernels,lab,test]'
	@rm -f .venv/installed-*
	@touch $@

walk: install
	$(BIN)/python -m diagkit.book walk

# The chapters hold a kernel each, so all cells of one go to the same worker.
test: install
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python -m diagkit.book check
	$(BIN)/python -m pytest -n $(WORKERS)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --nbval --nbval-current-env \
		--nbval-cell-timeout=$(CELL_TIMEOUT) notebooks

lab: install
	$(BIN)/jupyter lab $(firstword $(CHAPTERS))

# What it needs beyond the rest: a browser of the machine, and playwright to steer it. Says what is missing.
BROWSER_TEST := tests/browser/browser_explorer.py
browser-ready: install
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		$(shell grep '^playwright==' constraints.txt) || { echo "playwright cannot be installed here"; exit 1; }
	@$(BIN)/python $(BROWSER_TEST)

browser: browser-ready
	$(BIN)/python -m pytest -q -s $(BROWSER_TEST)

bench: install
	$(BIN)/python -m pytest -q --benchmark-enable --benchmark-only --benchmark-json=build/benchmark.json benchmarks/bench_*.py

gpu:
	PY=$(BIN)/python; test -x $$PY || PY=python3; $$PY -m diagkit.book.gpu

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find diagkit tests benchmarks scripts -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
