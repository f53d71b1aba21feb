# Everything that one does with Ebb on this machine. `make` alone prints this list.
# Each target does its own set-up, may be run again at any time, and may be interrupted at any time.
.DEFAULT_GOAL := help
.PHONY: help install demo walk up down preview graph preflight costs leftovers test check manifests bench-cli bench-controller prove-controller prove-week prove-exact prove-rendezvous prove-checkpoints prove-interruptions prove-money prove-logs bench-recovery bench-trainer clean
export PYTHONDONTWRITEBYTECODE = 1
PYTHON ?= python3.11
BIN := .venv/bin
STACK ?= dev

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: .venv/installed  ## the virtual environment of the CLI, the Pulumi program and the tests

.venv/installed: requirements.txt requirements-azure.txt requirements-dev.txt workloads/requirements.txt ebb/cli/requirements.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Ebb needs Python 3.11 as $(PYTHON): the training image is Debian 12, and what pods mount is built for its Python. Install it, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "installing the Python packages into .venv (about a minute)"
	@$(PYTHON) -m venv .venv
	@while sleep 5; do echo "  ... still installing"; done & trap "kill $$!" EXIT; \
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt && \
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: started := $(shell date +%s)
demo: install  ## the main job on the local stack: trains, loses two machines, grows, finishes; the last line is JSON
	@$(BIN)/python -m devcluster.demo --started $(started)

walk: install  ## what a new user sees, typed into a terminal on the local stack and written to docs/walk.md (about 4 minutes)
	@$(BIN)/python -m devcluster.walk

up: install  ## the local stack: a Kubernetes on this machine, and the platform on it by `pulumi up`
	@$(BIN)/python -m devcluster up
	@$(BIN)/python -m devcluster stack up

down: install  ## remove the local stack and the Kubernetes, with everything that they left on this machine
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

leftovers: install  ## after `pulumi destroy`: what is still in the account
	@$(BIN)/python -m infra.account.leftovers --stack $(STACK)

test: install  ## all tests: pure code first, then the whole platform on a box of its own (about 50 minutes)
	@$(BIN)/python -m devcluster environment
	@$(BIN)/pytest -q
	@$(BIN)/pytest -v -m e2e -n 2

check: install  ## lint, format, types, import contracts, and that generated files are up to date
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m devcluster environment
	@$(BIN)/mypy .
	@$(BIN)/lint-imports
	@$(BIN)/python -m ebb.api.crd --check
	@$(BIN)/python -m ebb.api.job_page --check
	@$(BIN)/python -m ebb.client.submission.jobschema --check
	@$(BIN)/python -m ebb.cli.schemas --check
	@$(BIN)/python -m infra.config.schema --check
	@$(BIN)/python -m infra.clouds.aws.iam.page --check
	@$(BIN)/python -m infra.page --check

manifests: install  ## write the generated files again
	@$(BIN)/python -m ebb.api.crd
	@$(BIN)/python -m ebb.api.job_page
	@$(BIN)/python -m ebb.client.submission.jobschema
	@$(BIN)/python -m ebb.cli.schemas
	@$(BIN)/python -m infra.config.schema
	@$(BIN)/python -m infra.clouds.aws.iam.page
	@$(BIN)/python -m infra.page

bench-cli: install  ## how long a user waits for ebb: --help beside bare Python, list of 500 jobs beside kubectl
	@$(BIN)/python -m benchmarks.cli

bench-controller: install  ## our controller against Kubeflow's, as shipped and tuned, on one API server (about 25 minutes)
	@$(BIN)/python -m benchmarks.controller

prove-controller: install  ## kill it, cut it off, lie to it: no double pods, no lost job, no budget spent (about 15 minutes)
	@$(BIN)/python -m benchmarks.faults

prove-exact: install  ## 200 histories of machines that come, leave and are killed: every sample once, and the same weights bit for bit
	@$(BIN)/python -m benchmarks.exact

prove-rendezvous: install  ## the rendezvous on etcd 3.5, 3.6 and 3.7: every scenario, 10,000 generations without growth (about 15 minutes)
	@$(BIN)/python -m devcluster environment
	@$(BIN)/python -m benchmarks.rendezvous

prove-checkpoints: install  ## a writer killed at 1,000 points: always a valid newest checkpoint (about a minute)
	@$(BIN)/python -m devcluster environment
	@$(BIN)/python -m tests.elastic.checkpoint.kill_points --points 1000

prove-logs: install  ## 4 ranks that write 1,000 lines/s, two pods lost: every line on the volume is in `ebb logs` once (about 2 minutes)
	@$(BIN)/python -m devcluster environment
	@$(BIN)/python -m benchmarks.logs

bench-recovery: install  ## seconds without a step when machines change, ours beside stock torchrun
	@$(BIN)/python -m benchmarks.recovery

bench-trainer: install  ## images/s beside the original example: make bench-trainer UPSTREAM=path/to/main.py
	@$(BIN)/python -m benchmarks.trainer $(if $(UPSTREAM),--upstream $(UPSTREAM))

prove-week: install  ## 300 jobs with reclaims, scales, suspensions and deletions, and a model that predicts each end (an hour)
	@$(BIN)/python -m benchmarks.week

prove-interruptions: install  ## interrupt the demo at ten points, kill -9 included, and look what is left (about 15 minutes)
	@$(BIN)/python -m devcluster.demo.interrupted

prove-money: install  ## jobs and what idled beside the box's own record of its machines: within 1 % (about 6 minutes)
	@mkdir -p build && rm -f build/money.json
	@EBB_FIGURES=build/money.json $(BIN)/pytest -v -m e2e tests/e2e/test_money.py
	@cat build/money.json

clean: down  ## down, and forget what was built and installed
	@rm -rf .ebb .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
