"""Files that commands write."""

import os
from pathlib import Path
from typing import TextIO

from django.core.management.base import CommandError


def open_new_file(path: Path) -> TextIO:
    """Open a new file that only its owner can read. Raises `CommandError`, also if it exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    return os.fdopen(descriptor, "w", encoding="utf-8")
