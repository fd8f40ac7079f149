# Every target sets up what it needs. Nothing here asks questions or needs a terminal.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup install smoke check check-long explore format docs demo record-demo pictures bench clean

STAMP := .venv/.synced

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

setup: $(STAMP) ## Install uv if it is missing, and everything into .venv

$(STAMP): pyproject.toml uv.lock
	@uv="$$(scripts/ensure_uv)" && "$$uv" sync --frozen --quiet && touch $@

smoke: setup ## Let this installation check itself, offline, in half a minute
	@scripts/ensure_programs sandbox
	@.venv/bin/lmagent doctor --self-test

check: setup ## Every check, and the tests of every part
	@scripts/check.sh

check-long: setup ## The long tests: crash matrices, random rounds, real engines and images
	@scripts/check.sh long

explore: setup ## Every property test with new random examples, and a kill at every step
	@LMAGENT_ALL=1 LMAGENT_STARTS=real .venv/bin/pytest -n auto -q -m "hypothesis or crash"

format: setup ## Format the code and fix what can be fixed
	@.venv/bin/ruff format . && .venv/bin/ruff check --fix .

docs: setup ## Write the generated documentation
	@.venv/bin/python scripts/generate_docs.py

install: ## Install the lmagent command with its engine for this user
	@scripts/ensure_programs sandbox
	@uv="$$(scripts/ensure_uv)" && "$$uv" tool install --quiet --force '.[local]' && bin="$$("$$uv" tool dir --bin)" && \
	case ":$$PATH:" in *":$$bin:"*) echo "lmagent is installed: type lmagent" ;; \
	*) echo "lmagent is installed in $$bin; put that into your PATH: export PATH=\"$$bin:\$$PATH\"" ;; esac

demo: setup ## See the agent at work, offline, with the tiny model that comes along
	@scripts/demo.sh

record-demo: setup ## Record the cassette of examples/demo again
	@.venv/bin/python scripts/record_demo.py

pictures: setup ## Draw the pictures of the README again
	@scripts/ensure_programs && .venv/bin/python scripts/make_pictures.py

bench: setup ## Measure start, step, growth, prompt, memory, streaming (JSON)
	@.venv/bin/python bench/run.py

clean: ## Remove caches and the environment
	@rm -rf .venv .cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache bench/.cache
