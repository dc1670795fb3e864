"""Directories of a run, all under VAR."""

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
    """Whether a path is short enough for sockets and needs no quoting in URLs."""
    path = f"{directory}{LONGEST_SOCKET_NAME}"
    needs_no_quoting = re.fullmatch(r"[\w./-]+", path, re.ASCII) is not None
    return needs_no_quoting and len(os.fsencode(path)) <= SOCKET_PATH_BYTES


class Layout:
    """The directories of one run; nothing is created until `create`."""

    def __init__(self, var: Path) -> None:
        self.var = var.absolute()
        self.run = self.var / "run"
        self.log = self.var / "log"
        self.postgres = self.var / "postgres"
        self.valkey = self.var / "valkey"
        self.sockets = self.var / "sockets"
        if not _can_hold_sockets(self.sockets):
            self.sockets = self._directory_outside_var()

    def _directory_outside_var(self) -> Path:
        """Return a directory with a short path for the sockets of this VAR."""
        base = Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp")
        digest = hashlib.sha256(os.fsencode(self.var)).hexdigest()[:12]
        return base / f"opsportal-{os.getuid()}-{digest}"

    def create(self) -> None:
        """Create the directories.

        Raises `SetupError` if one cannot be created or belongs to another user.
        """
        try:
            for directory in (self.var, self.run, self.log, self.valkey):
                directory.mkdir(parents=True, exist_ok=True)
            self.run.chmod(0o700)
            self.sockets.mkdir(mode=0o700, exist_ok=True)
            status = self.sockets.lstat()
            if not os.access(self.var, os.W_OK | os.X_OK):
                raise PermissionError(13, "no permission to write in", str(self.var))
        except OSError as error:
            raise SetupError(
                f"{error.filename}: {error.strerror}: choose another directory: make run VAR=DIR"
            ) from error
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (os.getuid(), 65534):
            raise SetupError(
                f"{self.sockets} belongs to another user: remove it, or choose a shorter VAR"
            )

    def leave(self) -> None:
        """Remove the directory of sockets if it is not under VAR."""
        if self.var not in self.sockets.parents:
            shutil.rmtree(self.sockets, ignore_errors=True)
