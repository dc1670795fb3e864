# `make run` and `make test` do all of it; the others are parts of them. See docs/development.md.
PYTHON ?= python3
PORT ?= 8000
VAR ?= var

.PHONY: run shell test test-fast lint types fmt install
.SILENT:

run: .python
	exec $(PYTHON) -m dev run --port '$(PORT)' --var '$(VAR)'

shell: .python
	exec $(PYTHON) -m dev shell --var '$(VAR)'

test test-fast lint types fmt install: .python
	exec $(PYTHON) -m dev $@

.PHONY: .python
.python:
	command -v $(PYTHON) >/dev/null || { echo "error: no $(PYTHON): apt-get install python3 python3-venv" >&2; exit 1; }
