"""Where the machines of a benchmark keep their files."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.processes import guard


@contextmanager
def machines_directory(kept: Path | None) -> Iterator[Path]:
    """Make a directory for machines; afterwards their processes are stopped.

    `kept` is a new directory that stays, with the logs. None makes one that is removed.
    """
    scratch = Path(tempfile.mkdtemp(prefix="opsportal-failover-"))
    base = kept or scratch / "machines"
    base.mkdir()
    # PostgreSQL and the users of jobs are other users; slurmd checks that they get to its spool.
    for directory in (scratch, base):
        directory.chmod(0o755)
    (base / "run").mkdir()
    watchdog = guard(base / "run", remove=scratch)
    try:
        yield base
    finally:
        watchdog.stdin.close()
        watchdog.wait(timeout=600)
