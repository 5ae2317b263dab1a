# One command each. Targets that need the environment create it first.
PYTHON ?= python3
VENV := .venv
BENCH_VENV := .venv-bench
BIN := $(VENV)/bin

.PHONY: install demo test soak fuzz check format bench bench-full paper peers learning reduction clusters scaling clean
.DEFAULT_GOAL := help

.PHONY: help
help:
	@echo "make demo        learn atoms from photographs and draw them"
	@echo "make test        run the tests"
	@echo "make soak        kill runs 200 times and resume them, damage files 2,000 times; KILLS=1000 DAMAGES=10000 does more"
	@echo "make fuzz        read randomly changed files, a minute with each loader; FUZZ=170 takes an hour in all"
	@echo "make check       format, lint, types, layers"
	@echo "make bench       quick benchmarks, under 5 minutes"
	@echo "make bench-full  every bar, against the peers"
	@echo "make paper       every figure and table of the paper, under 20 minutes"
	@echo "make peers       contests with other packages"
	@echo "make learning    how fast the defaults learn, compared with other packages"
	@echo "make reduction   whether fewer features per step pay, about an hour and a half"
	@echo "make clusters    what rounds and clusters bring, under half an hour"
	@echo "make scaling     time, memory and bytes read as sizes grow"
	@echo "make install     create .venv with every extra (other targets run it)"

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
		{ echo "terafactor needs Python >= 3.11, $(PYTHON) is $$($(PYTHON) --version): make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c "import ensurepip, venv" 2>/dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments: ensurepip is missing. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[all,dev]"
	@touch $@

$(BENCH_VENV)/.installed: pyproject.toml benchmarks/peers.txt
	@test -x $(BENCH_VENV)/bin/python || $(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[all,dev]"
	@while read -r peer; do \
		$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --prefer-binary "$$peer" \
			|| echo "skipped peer $$peer: there is no wheel for this machine and it does not build"; \
	done < benchmarks/peers.txt
	@touch $@

demo: install
	$(BIN)/terafactor demo

# One worker per core, so BLAS has one thread in each; fits limit it to one anyway.
test: install
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

KILLS := 200
DAMAGES := 2000
soak: install
	$(BIN)/python tests/runs/soak.py $(KILLS)
	$(BIN)/python tests/runs/soak.py --damages $(DAMAGES)

FUZZ := 60
fuzz: install
	$(BIN)/python -m tests.fuzz.run $(FUZZ)

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(BENCH_VENV)/.installed
	$(BENCH_VENV)/bin/python -m benchmarks.run --quick

bench-full: $(BENCH_VENV)/.installed
	$(BENCH_VENV)/bin/python -m benchmarks.run --page docs/results/bars.md

# FULL=1 uses the sizes of the paper; HCP, MOVIELENS and NETFLIX are the paths of local copies of the data.
paper: install
	$(BIN)/python -m benchmarks.paper.run $(if $(FULL),--full) $(if $(HCP),--hcp "$(HCP)") \
		$(if $(MOVIELENS),--movielens "$(MOVIELENS)") $(if $(NETFLIX),--netflix "$(NETFLIX)")

peers: $(BENCH_VENV)/.installed
	$(BENCH_VENV)/bin/python -m benchmarks.peers.run

learning: $(BENCH_VENV)/.installed
	$(BENCH_VENV)/bin/python -m benchmarks.learning.run

reduction: install
	$(BIN)/python -m benchmarks.reduction.run --jobs 2

clusters: install
	$(BIN)/python -m benchmarks.clusters.run

scaling: install
	$(BIN)/python -m benchmarks.scaling

clean:
	rm -rf $(VENV) $(BENCH_VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output
