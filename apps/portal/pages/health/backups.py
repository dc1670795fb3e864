"""The dumps in BACKUP_DIR."""

import stat
from pathlib import Path


def newest_dump_at(directory: Path) -> float | None:
    """Return when the newest dump was written, in seconds since 1970; None if there is none.

    Empty files do not count, since an interrupted dump may be empty. Raises `OSError`.
    """
    newest: float | None = None
    for path in directory.iterdir():
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and status.st_size:
            newest = max(newest or 0.0, status.st_mtime)
    return newest
