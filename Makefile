# Everything a person or a machine runs here. Needs Python 3.11 or newer, make and pip; nothing else.
# Each target may be repeated, and one that was interrupted picks up where it stopped.

.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
# The first interpreter that runs and is new enough; name another with `make setup PYTHON=...`.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
# Workers for the tests: one a core, and of all tests more than two a core, since tests of real servers wait half of
# their time; but no more than have two gigabytes of memory each.
quick fast fuzz: JOBS ?= auto
unit: JOBS ?= $(shell jobs=$$((2 * $$(getconf _NPROCESSORS_ONLN) + 1)) room=$$(($$(getconf _PHYS_PAGES) >> 19)); \
	echo $$((room < 1 ? 1 : jobs < room ? jobs : room)))
PYTEST_ARGS ?=
# Where tests write: in memory where a gigabyte of files fits and may be executed, since each commit waits for a disk.
MEMORY := /dev/shm
SCRATCH = $(shell [ "$$(df --output=avail $(MEMORY) 2>/dev/null | tail -n 1)" -gt 4000000 ] 2>/dev/null && \
	! grep -q " $(MEMORY) .*noexec" /proc/mounts && echo $(MEMORY))
unit fast fuzz: export TMPDIR ?= $(or $(SCRATCH),/tmp)
# Every worker and every server that the tests start would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup browser spark assets demo docs papers serve test quick fast lint types layers compiled unit r fuzz bench lock wheels image clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.installed ## a virtual environment in .venv with the locked dependencies and this project

$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make setup PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# Most modules of the dependencies are never imported: those that are compile when they are.
$(VENV)/.dependencies: requirements-dev.lock $(VENV)/.python
	$(BIN)/python -m pip install --quiet --no-compile --require-hashes -r requirements-dev.lock
	@touch $@

$(VENV)/.installed: pyproject.toml clients/python/pyproject.toml clients/python/curator_client/version.py $(VENV)/.dependencies
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable . --editable clients/python
	@touch $@

# The browser that the console is tested in: the system's Chromium, which Playwright drives.
CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
browser: ## a Chromium for the tests of the console, by apt where there is none
ifeq ($(CHROMIUM),)
	@command -v apt-get > /dev/null || { echo "install Chromium: the tests of the console need it" >&2; exit 1; }
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium > /dev/null
endif

# What pages of the console load from elsewhere is committed, so that nothing is fetched at run time.
VENDOR := app/http/console/static/vendor
HTMX := htmx.org-2.0.11
HTMX_SHA256 := 165a2655073e9e6e55e307a7c74e8ebcdb76afb7701f9c16cfd106a13add408e
assets: ## fetch the console's script from the npm registry, by version and SHA-256
	@folder=$$(mktemp -d) && cd $$folder && npm pack --silent htmx.org@2.0.11 > /dev/null \
		&& echo "$(HTMX_SHA256)  $(HTMX).tgz" | sha256sum --check --quiet && tar xzf $(HTMX).tgz \
		&& cp package/dist/htmx.min.js $(CURDIR)/$(VENDOR)/ && cp package/LICENSE $(CURDIR)/$(VENDOR)/htmx.LICENSE; \
		status=$$?; rm -rf $$folder; exit $$status

demo: setup ## a survey, 84 tables, a promise for 50,000 questions, two cheats; ends with demo/index.html
	@$(BIN)/curator demo --out demo $$([ -t 0 ] && [ "$(DEMO_STAY)" != 0 ] && echo --stay)

papers: setup ## the papers' constructions: three audited sessions; DEMO_DATA=DIR runs on real data
	@$(BIN)/curator demo --papers $(if $(DEMO_DATA),--data "$(DEMO_DATA)")

docs: setup ## these documents as a site, in build/site
	$(BIN)/sphinx-build -q -W --keep-going -j auto -d build/doctrees docs build/site

serve: setup ## the service on port 8000, its data in ./var
	$(BIN)/curator serve

# Style takes a second and is looked at first; types and layering are checked beside the first tests.
test: lint ## everything that must hold: style, types, layering, all tests
	@$(MAKE) --no-print-directory --jobs=4 types layers unit COMPILED=compiled

# The checks run beside the tests, and what each prints comes in one piece.
quick: setup ## the inner loop: style, types, layering, fast tests without a server
	@$(MAKE) --no-print-directory --jobs=4 --output-sync=target --keep-going lint types layers fast JOBS=$(JOBS)

# Files without such tests are not even read.
fast: setup
	$(PYTEST) $(shell grep -rlE 'mark\.(unit|contract)' tests --include='test_*.py') -m "(unit or contract) and not slow and not postgres" --hypothesis-profile=few $(PYTEST_ARGS)

lint: setup ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## types
	$(BIN)/mypy

layers: setup ## which way imports lean
	$(BIN)/lint-imports --no-cache

PYTEST_ALONE = $(BIN)/python -m pytest
PYTEST = $(PYTEST_ALONE) -n $(JOBS) --dist worksteal

# Beside the wait for the browser. Else each worker would compile all tests anew: ten seconds of a processor.
compiled: setup
	-@$(PYTEST_ALONE) --collect-only -q > /dev/null

# A cluster for tests of Spark: jars of a size that nobody wants twice, and a server that needs no more of Python. Where
# there is no Java 17 the tests skip.
SPARK := .spark
JAVA := $(shell java -version 2>&1 | sed -nE '1s/.* "([0-9]+).*/\1/p')
spark: $(if $(filter 17 18 19 2%,$(JAVA)),$(SPARK)/.installed) ## a Spark of its own in .spark for the tests, where Java 17 or newer is

$(SPARK)/.installed: requirements-spark.lock
	$(PYTHON) -m venv --clear $(SPARK)
	grep -A3 '^setuptools==' $< | grep -E '^(setuptools|    --hash)' > $(SPARK)/first
	$(SPARK)/bin/python -m pip install --quiet --require-hashes -r $(SPARK)/first
	$(SPARK)/bin/python -m pip install --quiet --require-hashes --no-build-isolation --no-cache-dir -r $<
	@touch $@

unit: setup browser spark $(COMPILED) ## the tests alone; PYTEST_ARGS="-k name" narrows them
	$(PYTEST) $(PYTEST_ARGS)

# What the client in R is built and tested with, by Debian's names.
R_PACKAGES := r-base-core r-cran-httr2 r-cran-jsonlite r-cran-knitr r-cran-rmarkdown r-cran-testthat pandoc
r: setup ## the client in R: built, checked and tried at a real server; R comes by apt where it is missing
	@Rscript -e 'for (p in c("httr2", "knitr", "testthat")) loadNamespace(p); stopifnot(rmarkdown::pandoc_available())' > /dev/null 2>&1 || { \
		command -v apt-get > /dev/null || { echo "install R, pandoc and the packages httr2, knitr, rmarkdown and testthat: the client in R needs them" >&2; exit 1; }; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(R_PACKAGES) > /dev/null; }
	$(BIN)/python clients/r/tools/check.py

# How often the property tests are run on examples drawn anew.
ROUNDS ?= 1

fuzz: setup ## property tests, and uploads and bodies hurt at random, on new examples, ROUNDS=1 times
	@set -e; for i in $$(seq $(ROUNDS)); do \
		$(PYTEST) -m hypothesis --hypothesis-profile=random $(PYTEST_ARGS); done

# Modules that measure; the others are what these share. benchmarks/README.md says what each one measures.
BENCHMARKS ?= $(filter-out service.noop research.releases_% research.applications_%,$(subst /,.,$(patsubst benchmarks/%.py,%,$(wildcard \
	$(shell grep -l '^if __name__' benchmarks/research/*.py benchmarks/service/*.py))))) tour notebooks

bench: setup ## the benchmarks: each prints a table and writes JSON, docs/ shows them; BENCHMARKS=service.load narrows them
	@set -e; for name in $(BENCHMARKS); do echo "== $$name"; $(BIN)/python -m benchmarks.$$name; done
	$(BIN)/python -m benchmarks.document

# The lock files name versions and hashes and no index: pip takes them from whatever index it is set up for.
UV_COMPILE = $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url \
	--no-emit-package curator-client --no-header --quiet $(if $(UPGRADE),--upgrade)
BOTH = pyproject.toml clients/python/pyproject.toml

# Of both distributions, without the client's `replay`: that is the service, which no index has.
EXTRAS = arrow dev docs log pandas plot polars sqlalchemy test

lock: $(VENV)/.python ## resolve the dependencies anew (UPGRADE=1 for the newest) and write the lock files: of the service, of whoever works on it, of what builds the wheels, and of a cluster for tests
	$(BIN)/python -m pip install --quiet uv
	$(UV_COMPILE) $(BOTH) $(addprefix --extra ,$(EXTRAS)) -o requirements-dev.lock
	$(UV_COMPILE) $(BOTH) -c requirements-dev.lock -o requirements.lock
	echo hatchling | $(UV_COMPILE) - -c requirements-dev.lock -o requirements-build.lock
	printf 'pyspark>=4,<5\nsetuptools\n' | $(UV_COMPILE) - -o requirements-spark.lock

# The service asks for the client of its own version: whoever has both wheels needs no checkout.
wheels: setup ## both distributions as wheels, built twice and compared, with their hashes and a list of what they need, in dist
	$(BIN)/python release/wheels.py dist
	$(BIN)/python release/sbom.py dist
	cd dist && sha256sum *.whl *.cdx.json | tee SHA256SUMS

VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' clients/python/curator_client/version.py)
image: ## the container image, by the version too
	docker build -t curator -t curator:$(VERSION) --label org.opencontainers.image.version=$(VERSION) .

clean: ## remove the environment and caches; data in ./var stays
	rm -rf $(VENV) $(SPARK) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist htmlcov .coverage
