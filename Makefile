# Every task of the project. `make` alone lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
COMPILED := $(wildcard src/penstock/*.py src/penstock/*.pxd src/penstock/*/*.py src/penstock/*/*.pxd)

.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[36m%-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv and install Penstock with what the tests need (PENSTOCK_PURE=1: uncompiled)

$(STAMP): pyproject.toml setup.py $(COMPILED)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Penstock needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "could not create a virtual environment (Debian: apt-get install python3-venv)"; exit 1; }
	$(BIN)/python -m pip install -q --upgrade 'pip>=25.1' 'setuptools>=77' wheel cython
	@rm -f src/penstock/*.so src/penstock/*/*.so
	$(BIN)/python -m pip install -q --no-build-isolation --group lint --group test -e '.[registry,spark,postgres,delta]'
	@touch $@

demo: $(STAMP) ## An online shop on a broker and Spark, both killed on the way; every total is checked
	$(BIN)/python -m tools.java
	$(BIN)/python -m examples.shop.demo

lint: $(STAMP) ## ruff format and check, mypy strict, import-linter, the tidy rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/tidy.py

test: $(STAMP) ## Unit and contract tests and one smoke per client
	$(BIN)/python -m tools.clients
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not compat and not fault'

compat: $(STAMP) ## The full client matrix on Penstock and on a real Kafka; pipelines also on a Spark cluster
	$(BIN)/python -m tools.clients
	$(BIN)/python -m tools.kafka install
	$(BIN)/python -m pytest tests/clients tests/spark tests/contract/test_cli.py tests/contract/test_cli_groups.py -v --timeout 600
	PENSTOCK_TEST_SPARK=cluster $(BIN)/python -m pytest tests/spark -k 'not on-penstock' -v --timeout 600

fault-log: $(STAMP) ## Crash, power-loss, corruption and kill -9 tests of the log
	$(BIN)/python -m pytest tests/fault --ignore tests/fault/test_exactly_once.py --ignore tests/fault/test_spark_sink.py -v --timeout 3600

fault-groups: $(STAMP) ## Members that join, leave and die; transactional copies under kill -9, ten minutes each
	$(BIN)/python -m pytest tests/contract/test_group_churn.py -v --timeout 3600
	PENSTOCK_KILL_SECONDS=600 $(BIN)/python -m pytest tests/fault/test_exactly_once.py -v -s --timeout 3600

fault-spark: $(STAMP) ## Queries to every sink: driver, workers, executors, broker and database are killed
	$(BIN)/python -m tools.java
	$(BIN)/python -m pytest tests/fault/test_spark_sink.py -v -s --timeout 7200

fuzz: $(STAMP) ## A million malformed inputs through every decoder
	$(BIN)/python -m tools.fuzz

soak: $(STAMP) ## Ten minutes of mixed load; memory and descriptors must stay flat
	$(BIN)/python -m tools.soak

bench-log: $(STAMP) ## The log beside a real Kafka on this machine
	$(BIN)/python -m tools.kafka install
	$(BIN)/python -m benchmarks.log

bench-groups: $(STAMP) ## Groups, offsets and transactions beside a real Kafka on this machine
	$(BIN)/python -m tools.kafka install
	$(BIN)/python -m benchmarks.groups

bench-growth: $(STAMP) ## Cost with 50 GB retained and with 1,000 partitions; restart times
	$(BIN)/python -m benchmarks.growth

bench-compaction: $(STAMP) ## Compact ten million records: is it right, and do producers notice
	$(BIN)/python -m benchmarks.compaction

bench-spark: $(STAMP) ## The source in Spark beside Spark's own Kafka connector, on a real Kafka
	$(BIN)/python -m tools.kafka install
	$(BIN)/python -m benchmarks.spark

bench-state: $(STAMP) ## Keyed state in Spark beside transformWithState, and with ten million keys
	$(BIN)/python -m benchmarks.state

bench-stalls: $(STAMP) ## How long others wait while the largest requests are handled
	$(BIN)/python -m benchmarks.stalls

bench: bench-log bench-groups bench-growth bench-compaction bench-stalls bench-spark bench-state ## Every benchmark

format: $(STAMP) ## Rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove everything that was built
	rm -rf $(VENV) build dist src/*.egg-info src/penstock/*.so src/penstock/*/*.so .mypy_cache .ruff_cache .pytest_cache

.PHONY: help setup demo lint test compat fault-log fault-groups fault-spark fuzz soak bench-log bench-groups bench-growth bench-compaction bench-stalls bench-spark bench-state bench format clean
