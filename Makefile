# Everything that one does with Ebb on this machine. `make` alone prints this list.
# Each target does its own set-up, may be run again at any time, and may be interrupted at any time.
.DEFAULT_GOAL := help
.PHONY: help install demo walk up down preview graph preflight costs prices leftovers rehearse bump lock-images test test-all check dist manifests prove-install bench-cli bench-controller prove-controller prove-week chaos prove-exact prove-outages prove-rendezvous prove-checkpoints prove-models prove-gpu prove-adapters prove-interruptions prove-money prove-notice prove-karpenter prove-kueue prove-kubeconfig prove-manager prove-upgrade prove-security prove-teams prove-image prove-logs prove-network prove-data prove-monitoring bench-recovery bench-goodput bench-queue spot scaling bench-trainer clean
export PYTHONDONTWRITEBYTECODE = 1
# One for all checkouts: most of what mypy reads is the SDKs. It compares contents, so another checkout's entries do no harm.
export MYPY_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ebb/mypy
PYTHON ?= python3.11
BIN := .venv/bin
STACK ?= dev

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: .venv/dev  ## everything that a developer of Ebb needs: all clouds' SDKs, the tests' and the checks' tools

# uv, pinned, in the environment itself: nothing but Python has to be there before. Two sizes of the environment: what the local
# stack needs (demo, walk, up, down), and everything. Neither removes what the other has brought.
UV_VERSION := 0.13.9
EXPORT := $(BIN)/uv export --frozen --no-emit-project --no-header --quiet
# Compiled once, here: nothing writes bytecode later (see the export above), and Pulumi's SDKs are large.
SYNC := UV_PROJECT_ENVIRONMENT=.venv UV_COMPILE_BYTECODE=1 $(BIN)/uv sync --frozen --inexact $(shell test -t 2 || echo --quiet)

$(BIN)/uv:
	@command -v $(PYTHON) >/dev/null || { echo "Ebb needs Python 3.11 as $(PYTHON): the training image is Debian 12, and what pods mount is built for its Python. Install it, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "making the virtual environment .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.venv/stack: uv.lock pyproject.toml | $(BIN)/uv
	@echo "installing what the local stack needs into .venv"
	@$(SYNC) --group stack
	@touch $@

.venv/dev: uv.lock pyproject.toml | $(BIN)/uv
	@echo "installing the Python packages into .venv, all clouds' SDKs among them (about a minute)"
	@$(SYNC) --group dev
	@touch $@ .venv/stack

demo: started := $(shell date +%s)
demo: .venv/stack  ## the main job on the local stack: trains, loses two machines, grows, finishes; the last line is JSON
	@$(BIN)/python -m devcluster.demo --started $(started)

walk: .venv/stack  ## what a new user sees, typed into a terminal on the local stack and written to docs/walk.md (about 4 minutes)
	@$(BIN)/python -m devcluster.walk

up: .venv/stack  ## the local stack: a Kubernetes on this machine, and the platform on it by `pulumi up`
	@$(BIN)/python -m devcluster up --with-pulumi
	@$(BIN)/python -m devcluster stack up

down: .venv/stack  ## remove the local stack and the Kubernetes, with everything that they left on this machine
	@$(BIN)/python -m devcluster down
	@$(BIN)/python -m devcluster stack forget

preview: install  ## what `pulumi up` would make of a cloud's stack, without its account: make preview STACK=dev
	@$(BIN)/python -m testing.pulumi.mocks preview --stack $(STACK)

graph: install  ## the same as a list and a picture: build/graph-dev.json and beside it
	@$(BIN)/python -m testing.pulumi.mocks graph --stack $(STACK)

preflight: install  ## would the account let this stack come up? credentials, quotas, offerings, names
	@$(BIN)/python -m infra.account.preflight --stack $(STACK)

costs: install  ## what the stack costs, idle and at full scale
	@$(BIN)/python -m infra.account.costs --stack $(STACK)

prices: install  ## read the spot prices of the stack's machine types, for estimates: prices.dev.yaml
	@$(BIN)/python -m infra.account.prices --stack $(STACK)

bump: install  ## every pinned version beside the newest that its publisher knows; asks package indexes, changes nothing
	@$(BIN)/python -m infra.bump

lock-images: install  ## the digests of the images that others publish and the stack uses, asked of their registries: infra/images.lock.yaml
	@$(BIN)/python -m infra.image_lock --stack $(STACK)

leftovers: install  ## after `pulumi destroy`: what is still in the account
	@$(BIN)/python -m infra.account.leftovers --stack $(STACK)

rehearse: install  ## COSTS MONEY: STACK up, up again, a GPU job, a reclaim, destroy, leftovers, for at most BUDGET=5 USD; MOCK=1 needs no account
	@. ./env && $(BIN)/python -m $(if $(MOCK),testing.pulumi.mocks rehearse,infra.rehearse) --stack $(STACK) $(if $(BUDGET),--budget $(BUDGET))

test: install  ## the pure tests, then one pass over the platform on a cluster of its own
	@$(BIN)/python -m devcluster environment
	@$(BIN)/pytest -q -n 2 -m "not e2e and not proof"
	@$(BIN)/pytest -v -n 2 -m "e2e and smoke" tests/e2e tests/elastic/test_elastic.py

test-all: install  ## what `make test` leaves out: every behaviour on real processes, API servers and clusters
	@$(BIN)/python -m devcluster environment
	@$(BIN)/pytest -v -rs -n 4 -m "e2e and not smoke"

check: install  ## lint, format, types, import contracts, and that generated files are up to date
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m devcluster environment
	@$(BIN)/mypy .
	@$(BIN)/lint-imports
	@$(BIN)/uv lock --check --quiet
	@$(EXPORT) --group stack --group aws --group gcp | diff -q - requirements.txt
	@$(EXPORT) --extra controller | diff -q - workloads/requirements.txt
	@$(BIN)/pytest -q tests/docs
	@$(BIN)/python -m manifests --check

dist: install  ## the wheel and the sdist of ebb-train, in dist/, with what they depend on (CycloneDX) and the licences
	@rm -rf dist && $(BIN)/uv build --quiet --out-dir dist
	@$(BIN)/python -m sbom dist $(addprefix --also ,$(wildcard .ebb/environment/*)) >/dev/null
	@ls dist

manifests: install  ## write the generated files again
	@$(EXPORT) --group stack --group aws --group gcp > requirements.txt
	@$(EXPORT) --extra controller > workloads/requirements.txt
	@$(BIN)/python -m manifests

prove-install: install  ## the wheel in a fresh environment of each Python that it is for, and a folder with colliding names (about 3 minutes)
	@$(BIN)/python -m devcluster environment
	@$(BIN)/python -m benchmarks.install

bench-cli: install  ## how long a user waits for ebb: --help beside bare Python, list of 500 jobs beside kubectl
	@$(BIN)/python -m benchmarks.cli

bench-controller: install  ## our controller against Kubeflow's, as shipped and tuned, and JobSet, on one API server (about 35 minutes)
	@$(BIN)/python -m benchmarks.controller

prove-controller: install  ## kill it, cut it off, lie to it: no double pods, no lost job, no budget spent (about 15 minutes)
	@$(BIN)/python -m benchmarks.faults

prove-exact: install  ## 500 histories of machines that come, leave and are killed, survivors in memory or restarted: every sample once, the same weights bit for bit
	@$(BIN)/python -m benchmarks.exact

prove-rendezvous: install  ## the rendezvous on etcd 3.5, 3.6 and 3.7: every scenario, 10,000 generations and 1,000 changes without growth, 64 members (about 30 minutes)
	@$(BIN)/python -m devcluster environment
	@$(BIN)/python -m benchmarks.rendezvous

prove-outages: install  ## recovery in memory: a rank stopped for 30 s, etcd away for 60 s, machines cut off from etcd and from each other (about 15 minutes)
	@$(BIN)/python -m devcluster environment
	@$(BIN)/python -m tests.elastic.outages

prove-checkpoints: install  ## a writer killed at 1,000 points: always a valid newest checkpoint (about a minute)
	@$(BIN)/python -m devcluster environment
	@$(BIN)/python -m tests.elastic.checkpoint.kill_points --points 1000

prove-models: install  ## models sharded in pods that come and go beside DistributedDataParallel, their checkpoints, saved by 4 ranks and loaded by 1 to 6, and data in shards through 150 histories
	@$(BIN)/python -m devcluster environment
	@$(BIN)/python -m benchmarks.models

prove-gpu: install  ## on one GPU: recovery over NCCL with a compiled network, a hang, snapshots, a step out of memory
	@$(BIN)/python -m benchmarks.gpu
	@$(BIN)/python -m benchmarks.recovery --device cuda --states 400,1600,12000 --repeat 2

prove-adapters: install  ## scripts of Hugging Face's Trainer, TRL with LoRA, Lightning and Accelerate through a kill, joins and a notice (about 15 minutes)
	@$(BIN)/python -m devcluster environment
	@$(BIN)/python -m benchmarks.adapters

prove-logs: install  ## 4 ranks that write 1,000 lines/s, two pods lost: every line on the volume is in `ebb logs` once (about 2 minutes)
	@$(BIN)/python -m devcluster environment
	@$(BIN)/python -m benchmarks.logs

prove-network: install  ## `ebb check network`'s program over links shaped to 1, 5 and 10 Gb/s: within 10 % of the shape (about 5 minutes)
	@$(BIN)/python -m devcluster environment
	@$(BIN)/python -m benchmarks.network

prove-data: install  ## 100,000 files from a bucket, and as many in ImageNet's archives, by programs killed 20 times: the same trees (about 10 minutes)
	@$(BIN)/python -m benchmarks.data

# A proof that pytest plays: its figures are the last line, also where a promise is broken.
define prove
@mkdir -p build && rm -f build/$(1).json
@EBB_FIGURES=build/$(1).json $(BIN)/pytest -v -m proof $(2); status=$$?; test ! -e build/$(1).json || cat build/$(1).json; exit $$status
endef

prove-monitoring: install  ## Prometheus itself: each alert fires and clears, panels answer and are drawn to build/monitoring.html, a job is scraped through a reclaim (about 3 minutes; the first builds it, some 5)
	$(call prove,monitoring,-p no:randomly tests/monitoring)

bench-recovery: install  ## seconds without a step when machines change, at 5 to 1600 MB of state, ours beside stock torchrun (hours; goes on after Ctrl-C)
	@$(BIN)/python -m benchmarks.recovery

bench-goodput: install  ## goodput with a machine or process lost each minute, ours beside stock torchrun (an hour and a half)
	@$(BIN)/python -m benchmarks.goodput

bench-queue: install  ## a simulated month of five teams' jobs: waiting, utilisation and fairness beside first come, first served, quotas that are lent beside closed ones (about three minutes)
	@$(BIN)/python -m benchmarks.queue

spot: install  ## a day's job on spot machines that come and go by a trace: cost and time, ours beside other ways to buy; writes build/spot.html (about 2 minutes)
	@$(BIN)/python -m benchmarks.spot $(if $(TRACES),--traces $(TRACES))

scaling: install  ## an epoch on 1 to 4 ranks of this machine, and a model up to 64 GPUs beside the articles' curves; writes build/scaling.html (about 4 minutes)
	@$(BIN)/python -m devcluster environment
	@$(BIN)/python -m benchmarks.scaling

bench-trainer: install  ## images/s beside the original example: make bench-trainer UPSTREAM=path/to/main.py
	@$(BIN)/python -m benchmarks.trainer $(if $(UPSTREAM),--upstream $(UPSTREAM))

prove-week: install  ## 300 jobs with reclaims, scales, suspensions and deletions, and a model that predicts each end (an hour)
	@$(BIN)/python -m benchmarks.week

chaos: install  ## two jobs at a time while everything under them breaks, and a judge: make chaos SECONDS=600 SEED=7; PLANT=fencing|budget|sampler breaks Ebb; JUDGE=build/chaos-7.jsonl judges again
	@$(BIN)/python -m devcluster environment
	@$(BIN)/python -m benchmarks.chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(if $(PLANT),--plant $(PLANT)) $(if $(JUDGE),--judge $(JUDGE))

prove-interruptions: install  ## interrupt the demo at ten points, kill -9 included, and look what is left (about 15 minutes)
	@$(BIN)/python -m devcluster.demo.interrupted

prove-money: install  ## jobs and what idled beside the devcluster's own record of its machines: within 1 % (about 6 minutes)
	$(call prove,money,tests/e2e/test_money.py)

prove-notice: install  ## seconds from a cloud's notice to SIGTERM in the worker, on a devcluster, in three clouds' formats (about 6 minutes)
	$(call prove,notice,-m e2e tests/e2e/test_notices.py)

prove-karpenter: install  ## Karpenter's real controller, without EC2, on a stack's NodePools: machines, a notice, a stockout, a limit, on-demand, EFA, back to zero (about 3 minutes; the first builds it)
	$(call prove,karpenter,-x tests/karpenter)

prove-kueue: install  ## jobs in queues of Kueue's real controller: admission, part of it, preemption, borrowing, scaling, stop and resume (about 1 minute; the first builds it, some 7)
	$(call prove,kueue,tests/kueue)

prove-kubeconfig: install  ## a stack on a cluster whose machines know nothing of Ebb: up, a job, a lost machine, destroy (about 3 minutes)
	$(call prove,kubeconfig,tests/e2e/test_foreign_cluster.py)

prove-image: install  ## an image that is not ours (Debian 13's own Python and torch, no pip, no shell) as two users: a job, a notice, a kill (about 15 minutes; 5 GB)
	$(call prove,image,-s tests/e2e/test_own_image.py)

prove-manager: install  ## the manager machine is killed while two jobs train, with one such machine and with two (about 12 minutes)
	$(call prove,manager,tests/e2e/test_manager_lost.py)

prove-upgrade: FROM ?= $(shell git describe --tags --abbrev=0 2>/dev/null)
prove-upgrade: export EBB_UPGRADE_FROM = $(FROM)
prove-upgrade: install  ## Ebb of an older revision is upgraded to this one while jobs train: FROM=REVISION, else the last tag
	@test -n "$(FROM)" || { echo "there is no tag; name the revision to upgrade from: make prove-upgrade FROM=REVISION" >&2; exit 2; }
	$(call prove,upgrade,-s tests/e2e/test_upgrade.py)

prove-security: install  ## pods try to break in, 50 times: etcd, API server, metadata, other teams, gateways, kubelets; each is refused, and succeeds without its rule (about 4 minutes)
	$(call prove,security,-s tests/e2e/test_break_in.py)

prove-teams: install  ## a stack with two teams by the real engine: 49 ways of misuse, a team that leaves while it trains, destroy (about 2 minutes)
	$(call prove,teams,tests/workloads/test_teams_up.py)

clean: down  ## down, and forget what was built and installed
	@rm -rf .ebb .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
