# Every target makes .venv when it is missing or out of date; nothing outside the repository is changed.
PYTHON ?= python3
# Extra pip options for installing torch only, for example an index of CPU-only or CUDA builds.
TORCH_PIP_ARGS ?=
# Test processes; each uses one thread.
WORKERS ?= 2

CONSTRAINTS := requirements/constraints.txt
# The same, without the pin of triton where torch requires a version itself, as its CUDA builds do.
PINS := .venv/constraints.txt
READY := .venv/.installed
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo test slow-test core-test other-cpu check format lint types docs tutorials bench evidence gpu catalogue pages soak fuzz release-check clean distclean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1|/' | awk -F'|' '{ printf "make %-12s %s\n", $$1, $$2 }'

# torch goes first, so that TORCH_PIP_ARGS and the constraints choose its build and nothing later replaces it.
$(READY): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "wordorder needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true); try: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@sed '/^triton==/d' $(CONSTRAINTS) >$(PINS)
	$(BIN)/python -m pip install --quiet --constraint $(PINS) $(TORCH_PIP_ARGS) torch
	@$(BIN)/python -c 'import sys; from importlib.metadata import requires; sys.exit(not any("triton" in r for r in requires("torch")))' || \
	  cp $(CONSTRAINTS) $(PINS)
	$(BIN)/python -m pip install --quiet --constraint $(PINS) hatchling hatch-fancy-pypi-readme
	$(BIN)/python -m pip install --quiet --constraint $(PINS) --no-build-isolation --editable '.[dev]'
	@touch $@

demo: $(READY)  ## compare the encodings on real text, then open runs/demo/report.html
	$(BIN)/wordorder compare demo

test: $(READY)  ## run the tests of every module, without the slow ones: five minutes on two cores
	$(BIN)/python -m pytest --numprocesses $(WORKERS) -m "not slow"

slow-test: $(READY)  ## run the tests that take longer: compiling, exporting, killed runs, several processes, browsers
	$(BIN)/python -m pytest --numprocesses $(WORKERS) -m slow

core-test: $(READY)  ## run the tests of attention, models and tensor functions, without the slow ones
	$(BIN)/python -m pytest --numprocesses $(WORKERS) -m "not slow" tests/attention tests/models tests/ops

other-cpu: export ATEN_CPU_CAPABILITY = avx2
other-cpu: export ONEDNN_MAX_CPU_ISA = AVX2
other-cpu: core-test  ## the same as a CPU without AVX-512 and AMX computes them

check: test lint types slow-test release-check docs  ## everything that the continuous integration runs

format: $(READY)  ## rewrite the code in the house format
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lint: $(READY)  ## ruff: format and rules; then the shape of the source beside its goals
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/python -m tools.house

types: $(READY)  ## pyright, strict on src
	$(BIN)/pyright --pythonpath $(BIN)/python

release-check: $(READY)  ## build sdist and wheel into dist/, check what they hold, use them beside torch alone and with the extras
	$(BIN)/python .ci/release_check.py

docs: $(READY)  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict

tutorials: $(READY)  ## run the tutorials and write down what they print and draw; about ten minutes
	$(BIN)/python evidence/publish/publish_tutorials.py

bench: $(READY)  ## speed and memory against plain attention and other libraries, interleaved; about 35 minutes
	$(BIN)/python -m pip install --quiet --constraint $(PINS) x-transformers
	$(BIN)/python benchmarks/training_step.py --json benchmarks/results/encodings.json
	$(BIN)/python benchmarks/attention.py --json benchmarks/results/attention.json
	$(BIN)/python benchmarks/long_texts.py --json benchmarks/results/long-texts.json
	$(BIN)/python benchmarks/complex_order.py --json benchmarks/results/complex-embedding.json
	$(BIN)/python benchmarks/complex_layers.py --json benchmarks/results/complex-layers.json
	$(BIN)/python benchmarks/memory.py --json benchmarks/results/memory.json
	$(BIN)/python benchmarks/memory_step.py --json benchmarks/results/memory-step.json
	$(BIN)/python benchmarks/t5_attention.py --json benchmarks/results/transformers.json
	$(BIN)/python benchmarks/swapped_models.py --json benchmarks/results/swapped.json
	$(BIN)/python benchmarks/streaming.py --json benchmarks/results/streaming.json
	$(BIN)/python evidence/publish/publish_demo.py benchmarks/results/encodings.json
	$(BIN)/python evidence/publish/publish_demo.py benchmarks/results/attention.json
	$(BIN)/python evidence/publish/publish_demo.py benchmarks/results/transformers.json
	$(BIN)/python evidence/publish/publish_demo.py benchmarks/results/streaming.json
	$(MAKE) --no-print-directory pages

evidence: $(READY)  ## train the comparisons that the pages show and that have no results yet; hours
	$(BIN)/python evidence/train.py
	$(MAKE) --no-print-directory pages

# No .venv is made: a machine with a GPU may have no network, and its own torch is the one that fits it.
gpu:  ## what needs a GPU; PART=far, tests, speed, tuning, compare or queue (QUEUE=FILE) takes at most nine minutes; DRY=1 tries it on the CPU
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) benchmarks/gpu.py $(if $(DRY),--dry) $(if $(PART),--part $(PART)) $(if $(OUT),--out $(OUT)) $(if $(QUEUE),--queue $(QUEUE))

catalogue: $(READY)  ## write what the pages say of the catalogue anew, and nothing else: after adding an encoding or an option
	$(BIN)/python evidence/publish/publish_encodings.py

pages: $(READY)  ## write the generated pages of docs/ anew, from the command line and from the committed results
	$(BIN)/python evidence/publish/publish_commands.py
	$(BIN)/python evidence/publish/publish_encodings.py
	$(BIN)/python evidence/publish/publish_performance.py
	$(BIN)/python evidence/publish/publish_backends.py
	$(BIN)/python evidence/publish/publish_choice.py
	$(BIN)/python evidence/publish/publish_decision.py
	$(BIN)/python evidence/publish/publish_rates.py
	$(BIN)/python evidence/publish/publish_scales.py
	$(BIN)/python evidence/publish/publish_readme.py

soak: $(READY)  ## crash and kill small trainings, 100,000 times by recording and 200 times for real; 15 minutes
	@mkdir -p build
	$(BIN)/python tests/soak/every_moment.py
	$(BIN)/python -W error tests/soak/kill_and_resume.py --kills 100 --minutes 30 --json build/soak.json

fuzz: $(READY)  ## 10,000 damaged inputs for everything that reads a file; about 20 minutes
	WORDORDER_FUZZ=10000 $(BIN)/python -m pytest tests/fuzz --numprocesses $(WORKERS) --timeout 3600

clean:  ## remove what was built, keep .venv and runs
	rm -rf build dist site .pytest_cache .ruff_cache .hypothesis
	find src tests examples benchmarks evidence tools -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## remove .venv too
	rm -rf .venv
