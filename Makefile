# One entry for each thing, the same on a laptop and in CI. Behind `up` and `test` is scripts/setup: idempotent, it says what it does.
PYTHON ?= python3
STACK ?= $(or $(PULUMI_STACK),sweep-a)
SETUP := $(PYTHON) scripts/setup
BIN := .venv/bin
# Twice as many as there are cores: tests wait again and again, for simulated platforms and for their own processes.
PYTEST_WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 2)
# The tests of a file share prepared sweeps, and so a worker; tests/scheduling.py says which files begin.
PYTEST_SHARING := --dist loadfile --no-loadscope-reorder
# Python keeps what it compiles, whatever the shell says: a collection takes three times as long otherwise.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
# Where the tests keep their files: in memory, if there is room. Asked when the environment is there.
IN_MEMORY = TMPDIR="$$($(BIN)/python -m tests.in_memory)"

.DEFAULT_GOAL := help
.PHONY: help up setup test check proof bench live fmt release-dry-run

help:
	@echo "make up       set everything up, then: pulumi up --stack $(STACK)   (STACK=... for another)"
	@echo "make test     set everything up, then the tests, and half a minute of the proof"
	@echo "make check    format, lint, types, architecture, Python 3.8 on boxes, the docs as a site"
	@echo "make proof    what is exhaustive: every mutant, state and way round the gate; goes on where it stopped"
	@echo "make bench    the figures: preview, cells, queue, slurm, slurm_scale, kubernetes, seconds, asha, verify, status, review, report, overhead, object storage, renting, hosts, split, makespan, lease, size"
	@echo "make live     PLATFORM=... USD=...: rents a real box, plays the whole loop, asks it for the profile's facts (docs/testing-live.md)"
	@echo "make release-dry-run   builds a release into dist/ and checks it; publishes nothing (docs/releasing.md)"
	@echo "make fmt      format the code"
	@echo "make setup    set up and stop"

setup:
	@test -f stacks/Pulumi.$(notdir $(STACK)).yaml || { echo "stacks/Pulumi.$(notdir $(STACK)).yaml is not there: a stack without one holds nothing. To make it: sweepctl init $(notdir $(STACK))" >&2; exit 1; }
	@$(SETUP) --stack stacks/Pulumi.$(notdir $(STACK)).yaml

up:
	@test -f stacks/Pulumi.$(notdir $(STACK)).yaml || { echo "stacks/Pulumi.$(notdir $(STACK)).yaml is not there: a stack without one holds nothing. To make it: sweepctl init $(notdir $(STACK))" >&2; exit 1; }
	@$(SETUP) --stack stacks/Pulumi.$(notdir $(STACK)).yaml
	@$(BIN)/pulumi stack select --create --stack $(STACK) --non-interactive
	@$(BIN)/pulumi up --stack $(STACK) --yes
	@scripts/next-steps $(STACK)

test:
	@$(SETUP) --dev --torch --s3 --ssh --slurm --kubernetes --browser --yaml
	$(IN_MEMORY) $(PYTEST) -n $(PYTEST_WORKERS) $(PYTEST_SHARING) --slice

check:
	@$(SETUP) --dev --quiet
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/unit/test_architecture.py tests/unit/test_oldest_python.py tests/extensions/pipelines/test_lint.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

proof:
	@$(SETUP) --dev --torch --trainer --s3 --ssh --slurm --kubernetes --nfs --browser --yaml --quiet
	$(IN_MEMORY) PYTHONDONTWRITEBYTECODE= $(BIN)/python -m tests.proof $(PROOF)

bench:
	@$(SETUP) --dev --torch --s3 --ssh --slurm --kubernetes --browser --quiet
	$(BIN)/python -m bench

# PLATFORM and USD are required: without them nothing is asked of any platform. It costs real money.
live:
	@$(SETUP) --dev --quiet
	@$(BIN)/python -m tests.live.loop "$(PLATFORM)" --spend "$(USD)"

# The steps of .github/workflows/release.yml before anything is published.
release-dry-run:
	@$(SETUP) --dev --quiet
	rm -rf dist
	$(BIN)/python -m scripts.release build dist
	$(BIN)/python -m scripts.release check dist
	$(BIN)/python -m scripts.release same dist
	$(BIN)/python -m scripts.release begin dist

fmt:
	@$(SETUP) --dev --quiet
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
