"""A short directory for sockets, and processes that end with the test."""

import shutil
import tempfile
from pathlib import Path

import pytest

from dev.layout import Layout
from dev.processes import stop_all


@pytest.fixture
def layout():
    """A run's directories, created; whatever has a pid file there is stopped in the end."""
    made = Layout(Path(tempfile.mkdtemp(prefix="opsportal-dev-")) / "var")
    made.create()
    yield made
    stop_all(made.run)
    shutil.rmtree(made.var.parent)
