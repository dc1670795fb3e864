"""Where a run keeps its things, all under its VAR directory."""

import hashlib
import os
import re
import shutil
import stat
from pathlib import Path

from dev.messages import SetupError

SOCKET_PATH_BYTES = 107  # the kernel's limit
LONGEST_SOCKET_NAME = "/.s.PGSQL.5432"


def _can_hold_sockets(directory: Path) -> bool:
    """Short enough for the kernel, and plain enough to stand in any URL as it is."""
    path = f"{directory}{LONGEST_SOCKET_NAME}"
    return len(os.fsencode(path)) <= SOCKET_PATH_BYTES and bool(re.fullmatch(r"[\w./-]+", path, re.ASCII))


class Layout:
    """The directories of one run; making one creates nothing."""

    def __init__(self, var: Path) -> None:
        self.var = var.absolute()
        self.run = self.var / "run"
        self.log = self.var / "log"
        self.postgres = self.var / "postgres"
        self.valkey = self.var / "valkey"
        near = self.var / "sockets"
        self.sockets = near if _can_hold_sockets(near) else self._far()

    def _far(self) -> Path:
        """A short directory beside the other temporary files, for a VAR whose path is too long or odd for a socket."""
        base = Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp")
        digest = hashlib.sha256(os.fsencode(self.var)).hexdigest()[:12]
        return base / f"opsportal-{os.getuid()}-{digest}"

    def create(self) -> None:
        """Make the directories. Raises `SetupError` when one cannot be made or is not ours."""
        try:
            for directory in (self.var, self.run, self.log, self.valkey):
                directory.mkdir(parents=True, exist_ok=True)
            self.run.chmod(0o700)
            self.sockets.mkdir(mode=0o700, exist_ok=True)
            found = self.sockets.lstat()
            if not os.access(self.var, os.W_OK | os.X_OK):
                raise PermissionError(13, "no permission to write in", str(self.var))
        except OSError as error:
            raise SetupError(
                f"{error.filename}: {error.strerror}: choose another directory: make run VAR=DIR"
            ) from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.getuid(), 65534):
            raise SetupError(f"{self.sockets} belongs to another user: remove it, or choose a shorter VAR")

    def leave(self) -> None:
        """Remove the sockets' directory where it is not under VAR."""
        if self.var not in self.sockets.parents:
            shutil.rmtree(self.sockets, ignore_errors=True)
