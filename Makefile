# Every target works from a clean checkout: the environment is created or updated when needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH := $(VENV)/.bench
BROWSER := $(VENV)/.browser
CLIENTS := $(VENV)/clients
AUDIT := $(VENV)/audit
DOCS := $(VENV)/docs
LOWEST := $(VENV)/lowest
UPSTREAM := $(VENV)/upstream
SPARK := $(VENV)/spark
# Tests that cover each use of a dependency.
LOWEST_TESTS := tests/unit tests/migrations tests/contract tests/cli/test_program.py tests/cli/test_reading.py \
  tests/integration/test_clients.py tests/integration/test_recorder.py tests/integration/test_recovery.py \
  --ignore tests/unit/test_floors.py --ignore tests/unit/test_benchmarks.py
# Frameworks tested with their oldest supported versions, each in its own environment.
FRAMEWORKS := google-adk langgraph openai-agents pydantic-ai
LOWEST_google-adk := $(wildcard tests/integrations/test_google_adk_*.py)
LOWEST_pydantic-ai := $(wildcard tests/integrations/test_pydantic_ai_*.py)
LOWEST_langgraph := $(wildcard tests/integrations/test_langchain_*.py tests/integrations/test_langgraph_*.py)
LOWEST_openai-agents := tests/integrations/openai_agents
# Allowed licences of dependencies, as their packages name them. LGPL: psycopg, which is imported unmodified.
LICENCES := MIT;BSD;Apache;ISC;PSF-2.0;MPL-2.0;Mozilla Public License 2.0;LGPL-3.0-only
TEST_WORKERS ?= 3
PYTEST_ARGS ?=
FUZZ_ARGS ?=
TORTURE_URL ?= sqlite:///torture.db
TORTURE_ARGS ?=
BENCH_ARGS ?=
SERVE_URL ?= sqlite:///serve.db
SERVE_DATA ?= $(wildcard ../shared/data/tau-bench/*.json*)
SERVE_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo serve test test-browser test-exhaustive test-partitioned test-distributed test-citus screenshots fuzz audit sbom requirements docs dist test-lowest test-integrations-lowest test-upstream test-spark check-release lint format bench bench-quick bench-context bench-scale bench-large peers torture clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-24s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Each file is installed by its hash, so that it cannot be replaced on the way from its publisher. The list is complete:
# with --no-deps pip resolves nothing, so no release that appears tomorrow can change or break what is installed.
$(READY): pyproject.toml requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or later is required, and '$(PYTHON)' is an older version; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Creating $(VENV), which takes about a minute ..."
	@$(PYTHON) -m venv --clear $(VENV) || { \
	  echo "The venv module is incomplete; on Debian: apt install python3-venv" >&2; exit 1; }
	@$(BIN)/pip install --quiet --no-input --disable-pip-version-check --no-deps --require-hashes -r requirements/dev.txt
	@$(BIN)/pip install --quiet --no-input --disable-pip-version-check --no-deps -e .
	@touch $@

$(BENCH): $(READY)
	@$(BIN)/pip install --quiet --no-input --disable-pip-version-check -c requirements/constraints.txt -e '.[bench]'
	@touch $@

# Without npm, the rules of axe-core and the clients of others are left out, which the tests then say.
$(BROWSER): $(READY) $(wildcard tests/browser/clients/package*.json)
	@$(BIN)/pip install --quiet --no-input --disable-pip-version-check 'playwright==1.65.2'
	@mkdir -p $(CLIENTS) && cp tests/browser/clients/package*.json $(CLIENTS) && cd $(CLIENTS) && \
	  npm ci --silent --no-audit --no-fund --ignore-scripts || echo "npm's packages cannot be installed: left out." >&2
	@touch $@

$(AUDIT)/.ready: requirements/audit.txt $(READY)
	@$(PYTHON) -m venv --clear $(AUDIT)
	@$(AUDIT)/bin/pip install --quiet --no-input --disable-pip-version-check -r requirements/audit.txt
	@touch $@

$(DOCS)/.ready: requirements/docs.txt $(READY)
	@$(PYTHON) -m venv --clear $(DOCS)
	@$(DOCS)/bin/pip install --quiet --no-input --disable-pip-version-check -r requirements/docs.txt
	@touch $@

$(LOWEST)/.ready: requirements/lowest.txt $(READY)
	@$(PYTHON) -m venv --clear $(LOWEST)
	@$(LOWEST)/bin/pip install --quiet --no-input --disable-pip-version-check -r requirements/lowest.txt
	@$(LOWEST)/bin/pip install --quiet --no-input --disable-pip-version-check --no-deps -e .
	@touch $@

# Otherwise make treats the environment as an intermediate file, and removes its mark.
.PRECIOUS: $(LOWEST)-%/.ready
$(LOWEST)-%/.ready: requirements/lowest-%.txt $(READY)
	@$(PYTHON) -m venv --clear $(LOWEST)-$*
	@$(LOWEST)-$*/bin/pip install --quiet --no-input --disable-pip-version-check -r requirements/lowest-$*.txt
	@$(LOWEST)-$*/bin/pip install --quiet --no-input --disable-pip-version-check --no-deps -e .
	@touch $@

$(UPSTREAM)/.ready: requirements/upstream.txt requirements/constraints.txt $(READY)
	@$(PYTHON) -m venv --clear $(UPSTREAM)
	@$(UPSTREAM)/bin/pip install --quiet --no-input --disable-pip-version-check -c requirements/constraints.txt \
	  -r requirements/upstream.txt -e '.[langgraph,openai-agents]'
	@touch $@

$(SPARK)/.ready: $(READY)
	@$(PYTHON) -m venv --clear $(SPARK)
	@$(SPARK)/bin/pip install --quiet --no-input --disable-pip-version-check -c requirements/constraints.txt \
	  -e '.[parquet]' duckdb pyspark
	@touch $@

demo: $(READY) ## Run a scripted conversation on SQLite and show what can be read from it
	@$(BIN)/eventstore demo

serve: $(READY) ## Fill a database with the demo and transcripts, and serve the viewer: serve.db
	@$(BIN)/eventstore demo --db $(SERVE_URL) > /dev/null
	@for file in $(SERVE_DATA); do $(BIN)/eventstore --db $(SERVE_URL) import "$$file" || true; done
	@$(BIN)/eventstore --db $(SERVE_URL) serve --demo $(SERVE_ARGS)

test: $(READY) ## Run every test, and a part of the sweeps, on SQLite and PostgreSQL
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal \
	  -m "not exhaustive" --hypothesis-profile quick $(PYTEST_ARGS)

test-browser: $(BROWSER) ## Drive the viewer in a headless Chromium, and clients of others from npm
	NPM_PACKAGES=$$(ls -d $(CURDIR)/$(CLIENTS)/node_modules 2>/dev/null) \
	  $(BIN)/python -m pytest -n 2 tests/browser $(PYTEST_ARGS)

screenshots: $(BROWSER) ## Take the pictures of the viewer's pages again: docs/images
	@$(BIN)/python -m scripts.screenshots

test-exhaustive: $(READY) ## Run what `make test` leaves out: full sweeps, all examples of properties
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal \
	  -m "exhaustive or hypothesis" $(PYTEST_ARGS)

test-partitioned: $(READY) ## Run the contract suite on PostgreSQL with tables that are divided
	EVENTSTORE_TEST_PARTITIONS=3 $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal \
	  tests/contract -k postgres $(PYTEST_ARGS)

test-distributed: $(READY) ## Run the contract suite on a PostgreSQL that looks distributed, without Citus
	EVENTSTORE_TEST_SHARDS=4 $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal \
	  tests/contract tests/cohabitation/test_row_security.py -k "postgres or row_security" \
	  $(PYTEST_ARGS)

# The extension is in no package index: docs/scale.md says how its nodes are set up.
test-citus: $(READY) ## Run the contract suite on a distributed PostgreSQL, and move its shards: make test-citus URL=...
	EVENTSTORE_TEST_CITUS_URL=$(URL) $(BIN)/python -m pytest \
	  tests/contract tests/failures/test_distributed.py tests/cohabitation/test_row_security.py \
	  -k "postgres or distributed or row_security" \
	  -m "not exhaustive" $(PYTEST_ARGS)
	$(BIN)/python -m tests.distributed_moves $(URL) $(or $(SECONDS),60)

test-spark: $(SPARK)/.ready ## Ask Spark, which needs Java, and DuckDB the queries of docs/analysis.md, and compare
	@$(SPARK)/bin/python -m tests.docs.on_spark

test-lowest: $(LOWEST)/.ready ## Run the tests that depend on dependencies, with their minimum versions
	$(LOWEST)/bin/pytest -n $(TEST_WORKERS) $(PYTEST_ARGS) $(LOWEST_TESTS)

test-integrations-lowest: $(FRAMEWORKS:%=test-lowest-%) ## Run the adapters' tests with the minimum versions of their frameworks

test-lowest-%: $(LOWEST)-%/.ready
	$(LOWEST)-$*/bin/pytest -n $(TEST_WORKERS) $(PYTEST_ARGS) $(LOWEST_$*)

# Before a release, not for each change: these are other projects' tests, and some need those projects' own classes.
test-upstream: $(UPSTREAM)/.ready ## Run the frameworks' own tests, from their source packages, with our classes
	$(UPSTREAM)/bin/python -m tests.upstream $(FRAMEWORK)

check-release: lint audit docs dist test test-exhaustive test-lowest test-browser test-integrations-lowest test-upstream ## Run every check, as before a release

fuzz: $(READY) ## Fuzz importers, API and commands with 100,000 seeded mutants: 20 minutes
	@$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

audit: $(AUDIT)/.ready ## Check for insecure code and for licences that are not allowed
	$(AUDIT)/bin/bandit --quiet --configfile pyproject.toml --recursive eventstore projections agent_eventstore migrations torture
	$(AUDIT)/bin/pip-licenses --python=$(BIN)/python --partial-match --allow-only="$(LICENCES)" > /dev/null

sbom: $(AUDIT)/.ready ## Write a CycloneDX bill of materials of the environment: dist/sbom.json
	@mkdir -p dist
	$(AUDIT)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  --output-file dist/sbom.json $(BIN)/python

dist: $(AUDIT)/.ready ## Build the packages, and test the wheel in its own environment: dist
	@rm -rf dist/*.whl dist/*.tar.gz
	$(AUDIT)/bin/python -m build --outdir dist . > /dev/null
	$(AUDIT)/bin/twine check --strict dist/*.whl dist/*.tar.gz
	$(PYTHON) scripts/smoke.py dist

requirements: $(AUDIT)/.ready ## Regenerate requirements/dev.txt with hashes, from constraints.txt
	$(AUDIT)/bin/uv pip compile --quiet --upgrade --universal --generate-hashes --no-emit-index-url \
	  --no-annotate --no-header --extra dev --constraint requirements/constraints.txt pyproject.toml --output-file requirements/dev.txt

docs: $(DOCS)/.ready ## Build the documentation site, which loads nothing from other servers: build/site
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet

lint: $(READY) ## Check style, types, the import layers and names
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_names.py

format: $(READY) ## Format the code, and fix what ruff can fix
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# Peers that cannot be installed are left out of the tables, which then say so.
peers: $(READY)
	@$(MAKE) --no-print-directory $(BENCH) || echo "The peers cannot be installed: left out." >&2

bench: peers ## Run all benchmarks, against bare drivers and peers: benchmarks/results.md
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-quick: peers ## Get a rough version of the same figures in two minutes
	@$(BIN)/python -m benchmarks --quick $(BENCH_ARGS)

bench-context: $(BENCH) ## Compare what contexts keep with other approaches, on real transcripts
	@$(BIN)/python -m benchmarks.context $(BENCH_ARGS)

bench-scale: $(READY) ## Measure several workers, a pooler and a standby on PostgreSQL
	@$(BIN)/python -m benchmarks --only scale $(BENCH_ARGS)

bench-large: $(READY) ## Measure stores of BENCH_EVENTS events (100000,1000000), whole and in partitions, on PostgreSQL
	@$(BIN)/python -m benchmarks --only large $(BENCH_ARGS)

torture: $(READY) ## Kill writers and cut connections of TORTURE_URL, and count what was lost
	@$(BIN)/eventstore --db $(TORTURE_URL) db upgrade
	@$(BIN)/python -m torture --db $(TORTURE_URL) $(TORTURE_ARGS)

clean: ## Delete the environment and all caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
