"""Files of the setup: created whole, never replaced, read by root and one group alone.

Symbolic links are not followed: a user who can write in one of these directories could redirect
root with them.
"""

import fcntl
import os
import re
import shlex
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opsportal.setup.errors import SetupError

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

#: NAME=VALUE as systemd and a shell read it alike: the value is a word of plain characters, or in
#: quotes and without any character that one of both treats specially there.
_SAME_LINE = re.compile(
    r"""[A-Za-z_][A-Za-z0-9_]*=([A-Za-z0-9_@%+=:,./-]*|'[^'\\]*'|"[^"\\$`]*")"""
)


@dataclass(frozen=True)
class Owner:
    """The system user of the portal."""

    name: str
    uid: int
    gid: int

    @property
    def secret_mode(self) -> int:
        """Mode of a secret: root writes it and the group reads it, or the user alone does both."""
        return 0o640 if os.geteuid() == 0 else 0o600

    @property
    def directory_mode(self) -> int:
        return 0o750 if os.geteuid() == 0 else 0o700


def exists(path: Path) -> bool:
    """Return whether there is a file or directory, of any kind."""
    return os.path.lexists(path)


def check_directory(path: Path) -> None:
    """Raise `SetupError` unless this is a directory in which nobody else can write."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise SetupError(f"{path} is no directory (symbolic links are not followed): remove it")
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & 0o022:
        raise SetupError(f"Other users can write in {path}: chown root {path}; chmod 750 {path}")


def create_directory(path: Path, *, mode: int, uid: int, gid: int) -> None:
    """Create a directory, which is closed until it has its owner. Parents are created like others.

    Raises `SetupError`.
    """
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(path, uid, gid, follow_symlinks=False)
        path.chmod(mode)
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror}") from error


def create_file(path: Path, text: str, owner: Owner) -> None:
    """Create a file with this text. It appears complete, and never replaces another.

    Raises `SetupError`.
    """
    new = f".{path.name}.new"
    try:
        directory = os.open(path.parent, _READ | os.O_DIRECTORY)
        try:
            with suppress(FileNotFoundError):
                os.unlink(new, dir_fd=directory)  # of a setup that was killed
            descriptor = os.open(new, _CREATE, 0o600, dir_fd=directory)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                if os.geteuid() == 0:
                    os.fchown(descriptor, 0, owner.gid)
                os.fchmod(descriptor, owner.secret_mode)
                os.fsync(descriptor)
            # Unlike a rename, a link fails if the name is taken.
            os.link(
                new, path.name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False
            )
            os.unlink(new, dir_fd=directory)
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror}") from error


def read_file(path: Path) -> str:
    """Return the text of a file that holds secrets, without its line end.

    Raises `SetupError` if it is missing, no regular file, a symbolic link, or readable by every
    user.
    """
    try:
        descriptor = os.open(path, _READ | os.O_NONBLOCK)
        with os.fdopen(descriptor, encoding="utf-8") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise SetupError(f"{path} is no file: remove it")
            if status.st_mode & 0o007:
                raise SetupError(f"Every user of this host can use {path}: chmod 640 {path}")
            return file.read().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = "is a symbolic link, which is not followed" if path.is_symlink() else str(error)
        raise SetupError(f"{path}: {why}") from error


def lock(directory: Path) -> int:
    """Wait until no other setup, and no command that it started, works here.

    Returns the descriptor, which commands inherit: one that outlives a killed setup keeps the lock.
    Raises `SetupError`.
    """
    try:
        descriptor = os.open(directory, _READ | os.O_DIRECTORY)
    except OSError as error:
        raise SetupError(f"{directory}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("Waiting for another setup, or for what a killed one has started.", flush=True)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def fits_env_file(value: str) -> bool:
    """Return whether systemd and a shell read the same value, once it is in single quotes."""
    return value.isprintable() and "'" not in value and "\\" not in value


def env_faults(text: str) -> dict[int, str]:
    """Return the lines of a file of settings that systemd and a shell may read differently.

    By number of the line: the name of the setting, never its value.
    """
    faults = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#") and not _SAME_LINE.fullmatch(stripped):
            faults[number] = stripped.partition("=")[0][:64]
    return faults


def format_env(settings: Mapping[str, str]) -> str:
    """Return the text of a file that systemd and a shell read in the same way."""
    lines = ["# Settings of the portal, by `opsportal setup`. docs/settings.md lists all of them."]
    for name, value in settings.items():
        lines.append(f"{name}={shlex.quote(value) if value else ''}")
    return "\n".join(lines) + "\n"


def parse_env(text: str, path: Path) -> dict[str, str]:
    """Return the settings in such a file. Raises `SetupError`, which names the line."""
    settings = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", ";")):
            continue
        name, equals, quoted = stripped.partition("=")
        try:
            parts = shlex.split(quoted)
        except ValueError as error:
            raise SetupError(f"{path}, line {number}: {error}") from error
        if not equals or not name.isidentifier() or len(parts) > 1:
            raise SetupError(f"{path}, line {number}: must be NAME=VALUE, quoted if it has blanks")
        settings[name] = "".join(parts)
    return settings
