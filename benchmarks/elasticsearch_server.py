"""A real Elasticsearch of one node for a benchmark."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.elasticsearch import Elasticsearch
from dev.processes import free_port, guard


@contextmanager
def elasticsearch(heap_mb: int) -> Iterator[Elasticsearch]:
    """Yield a running node with an empty directory, which is deleted after the benchmark."""
    directory = Path(tempfile.mkdtemp(prefix="opsportal-benchmark-"))
    (directory / "run").mkdir()
    watchdog = guard(directory / "run", remove=directory)
    try:
        server = Elasticsearch(directory, port=free_port(), heap_mb=heap_mb)
        server.start()
        yield server
    finally:
        watchdog.communicate(timeout=60)
