# The two commands: `make run` and `make test`. See docs/development.md.
PYTHON ?= python3
PORT ?= 8000
VAR ?= var

.PHONY: run test test-fast lint install
.SILENT:

run: .python
	exec $(PYTHON) -m dev run --port '$(PORT)' --var '$(VAR)'

test test-fast lint install: .python
	exec $(PYTHON) -m dev $@

.PHONY: .python
.python:
	command -v $(PYTHON) >/dev/null || { echo "error: no $(PYTHON): apt-get install python3 python3-venv" >&2; exit 1; }
