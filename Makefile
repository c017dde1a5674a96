# Everything works from a fresh clone on Linux with Python >= 3.11, make and Rust.
# `make` alone prints the targets.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CARGO  := cargo
RUST   := rust/Cargo.toml $(wildcard rust/Cargo.lock) $(shell find rust/src -type f 2>/dev/null)

# Which rung of the ladder, none: all; `ci` or `release`.
RUNG   ?=
SIZE   ?= ci

# rustup puts cargo here and tells only new shells about it.
export PATH := $(PATH):$(HOME)/.cargo/bin

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-slow spark-versions spark-kills spark-figures spark-edges check audit fuzz bench instructions ladder bench-peers bench-servers interop site wheels dist docs

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(VENV)/.built ## create .venv, install what developers need, build the native core

demo: setup ## see penstock work, from producers to Spark, in about a minute
	$(BIN)/penstock demo --messages 200000 --spark --report build/demo

test: setup ## run the fast tests
	LD_LIBRARY_PATH=$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))") \
		PYO3_PYTHON=$(abspath $(BIN)/python) $(CARGO) test -q --lib --profile quick --manifest-path rust/Cargo.toml
	$(BIN)/python -m pytest -n 2

test-slow: setup ## run the slow tests: long crash, model and soak runs
	$(BIN)/python -m pytest -m slow

spark-versions: setup ## run queues through the oldest, a middle and the newest PySpark
	$(BIN)/python -m tools.spark_versions

spark-kills: setup ## kills at every step, damaged queues: the oldest and newest PySpark (half an hour)
	$(BIN)/python -m tools.spark_versions --kills

spark-figures: setup ## queues beside Parquet, text, JSON and Kafka in Spark; renews docs/spark.md
	$(BIN)/python -m tools.spark_figures

spark-edges: setup ## queues of three hosts through an S3 server to a cluster; needs root
	$(PYTHON) -m venv build/edges
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
		> $$(build/edges/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/penstock.pth
	build/edges/bin/python -m pip install --quiet --disable-pip-version-check -r tests/spark/edges.txt
	build/edges/bin/python -m pytest -m slow tests/spark/test_edges.py

check: setup ## run every check that is not a test: format, lint, types, stubs, clippy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict src tests
	$(BIN)/python -m mypy.stubtest penstock._core
	$(CARGO) fmt --manifest-path rust/Cargo.toml --check
	$(CARGO) clippy --manifest-path rust/Cargo.toml -- -D warnings
	$(CARGO) clippy --manifest-path rust/Cargo.toml --no-default-features -- -D warnings
	$(BIN)/python -m tools.audit

audit: setup ## look at what penstock is built from: sources, licences, known holes
	$(BIN)/python -m tools.audit

fuzz: setup ## fuzz every decoder, guided by coverage; installs cargo-fuzz in build/tools
	$(BIN)/python -m tools.fuzz

bench: setup ## measure this machine in under five minutes; renews the tables and plots of docs/performance.md
	$(BIN)/python -m benches foundation delivery tails growth
	$(BIN)/python -m tools.plot_growth
	$(BIN)/python -m tools.performance_page

instructions: setup ## count instructions of the hot paths (valgrind); fails when one is 3 % off
	$(BIN)/python -m benches.instructions

ladder: setup ## climb the reliability ladder: RUNG=T5 (none: all) SIZE=ci|release
	$(BIN)/python -m tests.ladder $(RUNG) --size $(SIZE)

bench-peers: setup ## measure penstock beside other queues, in an environment of its own; renews the README's table and plot
	$(PYTHON) -m venv build/peers
	build/peers/bin/python -m pip install --quiet --disable-pip-version-check -r benches/against/peers.txt
	PYTHONPATH=src:. build/peers/bin/python -m benches.against.peers
	PYTHONPATH=src:. build/peers/bin/python -m benches.against.crossings
	PYTHONPATH=. build/peers/bin/python -m tools.plot_peers
	PYTHONPATH=src:. build/peers/bin/python -m tools.performance_page

bench-servers: ## fetch Redis, NATS, RabbitMQ (Debian), Chronicle Queue (Maven) and the Beats disk queue (Go) into build/
	mkdir -p build/chronicle build/beats
	$(PYTHON) -m tools.servers
	mvn -q -B -f benches/against/chronicle/pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/build/chronicle
	cp benches/against/beats/main.go tests/originals/beats/releases/8.17/go.* build/beats
	cd build/beats && CGO_ENABLED=0 go build -mod=readonly -o bench .

interop: setup ## run the own tests of kombu, Celery, Dramatiq, taskiq, Huey and moto against penstock
	$(PYTHON) -m venv build/interop-env
	build/interop-env/bin/python -m pip install --quiet --disable-pip-version-check -r tests/interop/suites/requirements.txt
	build/interop-env/bin/python -m tests.interop.suites
	$(BIN)/python -m tests.interop.sqs_suites

site: setup ## build the documentation as a website, in build/site
	$(PYTHON) -m venv build/site-env
	build/site-env/bin/python -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	NO_MKDOCS_2_WARNING=1 build/site-env/bin/mkdocs build --strict --quiet
	@echo "open file://$(CURDIR)/build/site/index.html"

wheels: setup ## build the wheels, in build/wheels
	$(PYTHON) -m venv build/wheels-env
	build/wheels-env/bin/python -m pip install --quiet --disable-pip-version-check 'maturin[zig]==1.16.0'
	PATH="$(CURDIR)/build/wheels-env/bin:$$PATH" build/wheels-env/bin/python -m tools.wheels build

dist: wheels ## build the wheels and try each in a fresh environment
	build/wheels-env/bin/python -m tools.wheels check

docs: setup ## write the byte tables of docs/formats anew from the structs
	$(BIN)/python -m tools.docs

# Set-up is three stamps inside .venv, so a second call does nothing and deleting .venv forgets it all.

$(VENV)/.created:
	$(PYTHON) tools/preflight.py
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml tools/requirements.py
	$(BIN)/python tools/requirements.py dev > $(VENV)/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/requirements.txt
	@touch $@

# maturin refuses to choose between two active environments: conda's is taken out of its sight.
$(VENV)/.built: $(VENV)/.installed $(RUST)
	env -u CONDA_PREFIX VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --release --features pyo3/extension-module,recorder
	@touch $@
