# `make` and `make help` list what there is. Nothing here reads an environment variable.

.DEFAULT_GOAL := help
.PHONY: help install bench bench-gpu test test-gpu lint check coverage mutants fuzz regress baseline mini clean

# The first that is new enough. Another one: make PYTHON=/path/to/python3
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON = $(shell for name in python3 python3.13 python3.12 python3.11; do \
  $$name -c '$(NEW_ENOUGH)' 2> /dev/null && echo $$name && break; done)
CONSTRAINTS := constraints-$(if $(wildcard /proc/driver/nvidia)$(shell command -v nvidia-smi),gpu,cpu).txt
# Installed once for these files; `make install` works again only after they change.
STAMP := .venv/.installed-$(CONSTRAINTS)
BIN := .venv/bin
# How long `make fuzz` looks at each target, two at a time
FUZZ_SECONDS := 600
# What `make regress` compares with: make regress BASE=origin/main
BASE :=
QUICK := tests/test_house_rules.py tests/test_topology.py tests/test_best_tree.py tests/bench tests/report tests/models/test_cost.py \
  $(addprefix tests/ops/test_,conv.py pairs.py reference.py)

# Few and small: compute-sanitizer slows everything down a hundredfold. Some of every kernel that decoding launches.
SANITIZED := "eos1-13-nodes or full_log or alpha3-13-nodes or 2-sampling0-4101 or 2-sampling3-4101 or three_levels \
  or (laid and kary and 4) or (likely_tokens and nucleus and 9001) or bfloat16 and ( \
  (test_nodes and (17 or (chain and 64))) or (flat and 65) or views or (known and 65) \
  or (pending and (fold or (bank and (large or hybrid)))) or (test_commit and (odd or ring or window)) \
  or (it_is and grouped and some) or (inputs_of and 200) or (one_node and 17) or (widths and bias and 3) or (head_sizes and grouped) or (value_sizes and 96))"

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 18

install: $(STAMP) ## .venv with specla, its tools, and the tested versions

bench: $(STAMP) ## decoding and its operations measured, then their report in reports/; picks up where it was stopped
	@status=0; $(BIN)/specla bench all || status=$$?; \
	case $$status in 0|3|4) $(BIN)/specla report || exit ;; esac; exit $$status

bench-gpu: $(STAMP) ## decoding and every operation at the published 1.3B shape on one GPU, then their report
	@status=0; $(BIN)/specla bench gpu || status=$$?; \
	case $$status in 0|3|4) $(BIN)/specla report || exit ;; esac; exit $$status

test: lint ## ruff, mypy, and every test
	$(BIN)/python -m pytest -q -n 2 --dist worksteal tests

test-gpu: $(STAMP) ## the tests that need a GPU, then some of the kernels' under compute-sanitizer
	@command -v compute-sanitizer > /dev/null || { \
	  echo 'make test-gpu needs compute-sanitizer, which comes with the CUDA toolkit: put it on the path' >&2; exit 1; }
	$(BIN)/python -m pytest -q -n 8 -m 'gpu and not alone' tests
	$(BIN)/python -m pytest -q -m 'gpu and alone' tests
	for tool in memcheck racecheck; do PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool $$tool \
	  --error-exitcode 1 $(BIN)/python -m pytest -q -x -k $(SANITIZED) $(addprefix tests/ops/kernels/test_,tree.py \
	  walk.py pending.py commit.py node_inputs.py gated_norm.py choose.py accept.py mixer.py entering.py \
  device_confident.py) || exit; done

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy specla

check: lint ## ruff, mypy, and the quick tests, in a minute or two
	$(BIN)/python -m pytest -q -n 2 -m "not slow" $(QUICK)

coverage: $(STAMP) ## lines of specla that the tests run on a CPU, and what a GPU alone runs; less than 90 % fails
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --cov --cov-report= tests
	$(BIN)/python -m tests.coverage_table

mutants: $(STAMP) ## plant faults in a copy of the package: does a test notice each? (some minutes)
	$(BIN)/python -m tests.mutants.run

fuzz: $(STAMP) ## throw bytes at all that reads what users bring: FUZZ_SECONDS=600 for each of six targets
	$(BIN)/python -m pip install --quiet --editable '.[fuzz]' --constraint $(CONSTRAINTS)
	$(BIN)/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS)

regress: $(STAMP) ## is the working tree slower than BASE, or does it do anything else? (BASE=COMMIT; 4 minutes at most)
	$(BIN)/python -m specla.cli.regress --base '$(BASE)'

baseline: $(STAMP) ## record the exact figures that `make regress` checks, after an intended change
	$(BIN)/python -m specla.cli.regress --record

mini: $(STAMP) ## train the bundled model again, into .cache/gdn-mini (see CONTRIBUTING.md)
	$(BIN)/specla train corpus
	$(BIN)/specla train target

clean: ## delete .venv and the tools' caches; runs, reports and trained models stay
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage build dist
	find specla tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml $(CONSTRAINTS)
	@$(or $(PYTHON),false) -c '$(NEW_ENOUGH)' 2> /dev/null || { \
	  echo 'specla needs Python 3.11 or newer: install it, or say where it is: make PYTHON=/path/to/python3' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { \
	  echo '$(PYTHON) cannot make a virtual environment: it lacks venv (apt install python3-venv)' >&2; exit 1; }
	@$(BIN)/python -c '$(NEW_ENOUGH)' 2> /dev/null || { rm -rf .venv; $(PYTHON) -m venv .venv; }
	@rm -f .venv/.installed-*
	@echo "Installing specla and what it needs, at the versions of $(CONSTRAINTS)"
	@# Older releases of pip download whole packages to read what they need.
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25'
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --constraint $(CONSTRAINTS)
	@touch $@
