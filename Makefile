PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := constraints.txt
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)
comma := ,
# exact: a range would resolve to a CUDA build of several gigabytes
TORCH := torch==2.13.0
# what `make test-lowest` and `make test-highest` install, without torch, and which tests they run
VERSIONED := langchain,langgraph,llamaindex,eval,report,postgres,otel,ui
VERSIONED_TESTS := $(addprefix tests/,agents bank cli langchain_dream langgraph llamaindex_dream retrieval scheduling) tests/test_versions.py
PACKAGES := shared_core langchain_dream llamaindex_dream

export HF_HUB_OFFLINE = 1
export ANONYMIZED_TELEMETRY = False

.PHONY: help demo test test-slow test-lowest test-highest test-versioned lint format bench bench-train bench-node bench-retrieval bench-cycle bench-sweep bench-terms bench-notes bench-locomo bench-poison bench-policy cookbook docs results stability law stream figures screenshots soak soak-network soak-random audit clean

help: ## Show what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.demo ## Attack a small agent memory and watch it forget, offline
	$(BIN)/dream demo

# one thread of linear algebra a process: threads that wait for each other cost more than they bring
test: lint ## Lint, types, and every test but the slow ones, in WORKERS=2 processes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not bench" -n $(or $(WORKERS),2) --dist loadfile $(PYTEST_ARGS)

test-slow: $(VENV)/.dev ## The slow tests
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

# TORCH= goes without torch and the tests that need the bundled embedder: a Python other than 3.11 would get its CUDA build
test-lowest: ## Test the lowest versions that pyproject.toml allows, in .venv-lowest; PYTHON=python3.10 TORCH= too
	$(MAKE) test-versioned VENV=.venv-lowest CONSTRAINTS=constraints-lowest.txt

test-highest: ## Test the newest versions that the index has, in .venv-highest, made anew
	rm -rf .venv-highest
	$(MAKE) test-versioned VENV=.venv-highest CONSTRAINTS=/dev/null

test-versioned: $(VENV)/.versioned
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not bench" -n $(or $(WORKERS),2) --dist loadfile $(VERSIONED_TESTS) $(PYTEST_ARGS)

lint: $(VENV)/.dev ## Check format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.dev ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev ## Benchmarks; a table, and JSON in .benchmarks/
	$(BIN)/python -m pytest -m bench tests/benchmarks --benchmark-autosave --benchmark-columns=min,median,max,rounds

bench-node: $(VENV)/.dev ## What the dream node adds to a turn, and how soon a repair is seen
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks.node_latency

# the larger bank takes a minute or two to build, once
bench-retrieval: $(VENV)/.dev ## Weighted retrieval against the plain store, 10,000 and 100,000 memories; JSON in .benchmarks/
	mkdir -p .benchmarks
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks.retrieval

bench-sweep: $(VENV)/.dev ## The forgetting sweep at 10,000, 100,000 and 1,000,000 memories; JSON in .benchmarks/
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks.sweep

# the largest bank takes a minute to build, once, and some minutes to dream
bench-cycle: $(VENV)/.dev ## A dream by rules over 300, 3,000 and 30,000 pages; JSON in .benchmarks/
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks.cycle

bench-terms: $(VENV)/.dev ## The terms of preset hardened from 10,000 to 1,000,000 memories; JSON in .benchmarks/
	mkdir -p .benchmarks
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks.terms

cookbook: $(VENV)/.dev ## Run the notebooks of the cookbook anew, in place
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.notebooks cookbook/*.ipynb

docs: $(VENV)/.docs ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

results: $(VENV)/.dev ## Measure again what docs/results.md reports; DATA names the data directory
	$(BIN)/dream eval poison --data $(or $(DATA),../shared/data) --family agentpoison-ehr500-in

# about 130 cases per embedder and count, seconds each; stopped, it goes on where it was
bench-poison: $(VENV)/.dev ## The whole poisoning benchmark into .benchmarks/: hours, resumable
	mkdir -p .benchmarks
	$(BIN)/dream eval poison --data $(or $(DATA),../shared/data) --family all \
		--injected 4 --injected 8 --injected 16 --injected 32 --injected 64 \
		--embedder minilm --embedder wordllama \
		--defence none --defence paper --defence amemguard --defence classifier --defence hardened \
		--out .benchmarks/poison.jsonl --triggers .benchmarks/triggers.json
	$(BIN)/dream eval table .benchmarks/poison.jsonl --markdown

bench-notes: $(VENV)/.dev ## Rules planted in plain notes, and clean banks of them; JSON in .benchmarks/
	mkdir -p .benchmarks
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks.notes --data $(or $(DATA),../shared/data)

bench-locomo: $(VENV)/.dev ## Retrieval over LoCoMo's conversations, without and with a dream: minutes
	$(BIN)/dream eval locomo --data $(or $(DATA),../shared/data)/locomo/locomo5.json \
		--arms dense,bm25,hybrid,context,dream-no-decay,dream

bench-policy: $(VENV)/.dev ## What the small policy learns over the rules, into .benchmarks/: minutes, resumable
	mkdir -p .benchmarks
	OMP_NUM_THREADS=1 $(BIN)/dream eval policy --locomo $(or $(DATA),../shared/data)/locomo/locomo5.json \
		--msc $(or $(DATA),../shared/data)/msc --out .benchmarks/policy.jsonl

stability: $(VENV)/.dev ## Twenty dreams in a row over LoCoMo's conversations: half an hour
	$(BIN)/dream eval stability --data $(or $(DATA),../shared/data)/locomo/locomo5.json

bench-train: $(VENV)/.dev ## SmolLM2's adapters into .benchmarks/lora: data, SFT, GRPO, held-out checks; an hour and more, resumable
	$(INSTALL) --editable '.[lm]'
	mkdir -p .benchmarks/lora
	test -d .benchmarks/lora/data || $(BIN)/dream train data --msc $(or $(DATA),../shared/data)/msc \
		--talks 16 --per-talk 10 --out .benchmarks/lora/data
	$(BIN)/dream train sft .benchmarks/lora/data --agent all --examples 96 --out .benchmarks/lora/sft
	$(BIN)/dream train check .benchmarks/lora/data --adapters .benchmarks/lora/sft --limit 32
	$(BIN)/dream eval signals .benchmarks/lora/data --adapters .benchmarks/lora/sft --out .benchmarks/lora/signals \
		--seeds 3 --steps 5 --learning-rate 5e-5 --temperature 0.7 --limit 32

law: $(VENV)/.dev ## Compare laws of the weights' update
	$(BIN)/dream eval law --data $(or $(DATA),../shared/data) --limit 3

stream: $(VENV)/.dev ## Tasks, feedback and sweeps, without and with attackers
	$(BIN)/dream eval stream
	$(BIN)/dream eval stream --attacker praise --forged 100
	$(BIN)/dream eval stream --attacker blame --forged 100

figures: $(VENV)/.dev ## Draw the figures of docs/results.md anew
	$(BIN)/dream eval figures --data $(or $(DATA),../shared/data) -o docs/figures

screenshots: $(VENV)/.dev ## Take the pictures of docs/report.md anew; needs Chromium
	$(BIN)/python -m tests.reporting.screenshots docs/figures

# about a second per kill
soak: $(VENV)/.dev ## Kill processes in the middle of their work and look what is lost; KILLS=500; JSON in .benchmarks/
	OMP_NUM_THREADS=1 DREAM_SOAK_KILLS=$(or $(KILLS),500) $(BIN)/python -m pytest -m slow -s tests/soak/test_crash_small.py

soak-network: $(VENV)/.dev ## Cut the network under what goes to Chroma and PostgreSQL, by a proxy; CUTS=500; JSON in .benchmarks/
	OMP_NUM_THREADS=1 DREAM_SOAK_CUTS=$(or $(CUTS),500) $(BIN)/python -m pytest -m slow -s tests/soak/test_cut_network.py

soak-random: $(VENV)/.dev ## Random operations, threads, bad input and long texts, SOAK=20 times what the tests try
	OMP_NUM_THREADS=1 DREAM_SOAK=$(or $(SOAK),20) $(BIN)/python -m pytest tests/soak -m "not slow" $(PYTEST_ARGS)

audit: ## Known advisories about what constraints.txt pins; fails where the index tells none
	test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit && .venv-audit/bin/python -m pip install --quiet pip-audit; }
	.venv-audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict

clean: ## Remove the environment and everything built
	rm -rf $(VENV) .venv-lowest .venv-highest site dist .pytest_cache .mypy_cache .ruff_cache

# pip that came with Python may be too old for dependency groups
$(VENV)/.pip: $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip
	@touch $@

# torch first
$(VENV)/.demo: $(VENV)/.pip pyproject.toml
	$(INSTALL) $(TORCH)
	$(INSTALL) --editable '.[offline,eval]'
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(INSTALL) --editable . --group dev
	@touch $@

$(VENV)/.versioned: $(VENV)/.pip pyproject.toml
	test -z "$(TORCH)" || $(INSTALL) $(TORCH)
	$(INSTALL) --editable '.[$(VERSIONED)$(if $(TORCH),$(comma)offline)]' --group test
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(INSTALL) --group docs
	@touch $@
