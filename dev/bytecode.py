"""Compiles the environment and the project once, so that no process has to.

Each process of the portal imports some two thousand modules. Where `PYTHONDONTWRITEBYTECODE` is
set, as many CI systems and containers do, none of them would keep what it compiled: half of its
start.
"""

import compileall
import os
import re
from collections.abc import Iterable
from pathlib import Path

#: A third of what there is, which no process of the portal imports: tests of packages, and what has
#: a compiled twin, an asynchronous one or a hundred brothers.
_UNUSED = re.compile(
    r"/site-packages/(.*/tests/|mypyc?/|pip/|pygments/lexers/|playwright/async_api/)"
)


def compile_packages(directory: Path) -> None:
    """Compile all packages of an environment, on all processors."""
    _compile([directory], skip=_UNUSED)


def compile_project(directories: Iterable[Path]) -> None:
    """Compile what has changed in these directories since the last time.

    One that is read-only stays as it is.
    """
    _compile([directory for directory in directories if os.access(directory, os.W_OK)])


def _compile(directories: Iterable[Path], skip: re.Pattern[str] | None = None) -> None:
    # Errors are left to whoever imports the module: some packages contain files for other versions
    # of Python.
    for directory in directories:
        compileall.compile_dir(
            directory, maxlevels=20, quiet=2, rx=skip, workers=os.cpu_count() or 1
        )
