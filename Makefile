# `make run` and `make test` do all of it; the others are parts of them. See docs/development.md.
# Distributions compile Python with optimizations; pyenv does not, and with its Python everything takes a third longer.
DISTRIBUTION_PYTHON := /usr/bin/python3
SUITS := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell $(DISTRIBUTION_PYTHON) -c '$(SUITS)' 2>/dev/null && echo $(DISTRIBUTION_PYTHON) || echo python3)
PORT ?= 8000
VAR ?= var

.PHONY: run shell test test-fast test-versions lint types fmt install release
.SILENT:

run: .python
	exec $(PYTHON) -m dev run --port '$(PORT)' --var '$(VAR)'

shell: .python
	exec $(PYTHON) -m dev shell --var '$(VAR)'

test test-fast test-versions lint types fmt install: .python
	exec $(PYTHON) -m dev $@

release: .python
	exec $(PYTHON) -m dev release $(if $(WHEELS),--wheels)

.PHONY: .python
.python:
	command -v $(PYTHON) >/dev/null || { echo "error: no $(PYTHON): apt-get install python3 python3-venv" >&2; exit 1; }
