# The commands of a working day, and nothing else. `make demo` and `make test` need no set-up.
.PHONY: sync demo docs protos check quick test test-again test-agents test-fleet test-long verifier fuzz bench
SHELL := /bin/bash
# uv from the machine, else the one that deploy/get-uv put beside us.
UV = $(shell command -v uv || echo .venv-uv/bin/uv)
RUN = $(UV) run --locked --all-extras
# Tests wait for real processes, so there are more workers than cores.
WORKERS ?= 3
FUZZ_SECONDS ?= 300
export UV_PYTHON_DOWNLOADS = never

sync: .venv/.synced
.venv/.synced: pyproject.toml uv.lock
	@deploy/get-uv
	@$(UV) sync --locked --all-extras --quiet
	@touch $@

demo: sync
	@$(RUN) bernstein tour

docs: sync
	$(RUN) python docs/generate

protos: sync
	$(RUN) buf format --write
	$(RUN) python protos/generate

check: sync
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy
	$(RUN) lint-imports --no-logo
	$(RUN) buf lint
	$(RUN) buf format --diff --exit-code
	$(RUN) buf breaking --against protos/released.txtpb
	$(RUN) python protos/generate --check
	$(UV) lock --check

quick: sync
	$(RUN) pytest -q -n $(WORKERS) tests/unit tests/properties tests/vectors

test: check
	$(RUN) pytest -q -n $(WORKERS)

# Those that failed, one after another.
test-again: sync
	$(RUN) pytest -q --last-failed --last-failed-no-failures none --exitfirst

test-long: sync
	BERNSTEIN_TEST_CASES=500 $(RUN) pytest -q -n $(WORKERS) tests/properties tests/interop \
	  tests/processes/test_rolling_upgrade.py

# All coding agents, from npm and the Python index; `make test` tries the two that install fastest.
test-agents: sync
	BERNSTEIN_TEST_AGENTS=all $(RUN) pytest -q -n 2 tests/agents

# Hosts of the database die and freeze under sixteen clients; bounded to ten minutes. `make test` does
# the short form. How long each outage lasted is printed, and in .fleet/outages.json.
test-fleet: sync
	BERNSTEIN_TEST_FLEET=long BERNSTEIN_TEST_OUTAGES=.fleet/outages.json \
	  timeout --signal=INT --kill-after=30 570 $(RUN) pytest -q tests/failover

verifier: sync
	$(UV) build --quiet --wheel --out-dir dist verifier

# Bounded: FUZZ_SECONDS. What it finds is written to .fuzz/ and becomes a test.
fuzz: sync
	@mkdir -p .fuzz/corpus
	$(RUN) --with atheris==3.0.0 python tests/fuzz/parsers.py .fuzz/corpus \
	  -max_total_time=$(FUZZ_SECONDS) -max_len=20000 -timeout=20 -artifact_prefix=.fuzz/

bench: sync
	$(RUN) python -m benchmarks.run
