"""Open scripts and logs at paths given by users, with the permissions of that user.

The privileges of this process are not used. Symlinks cannot redirect it, and devices and FIFOs are
not opened.
"""

import errno
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_LATER = {
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EHOSTDOWN,
    errno.ENOTCONN,
    errno.EMFILE,
    errno.ENFILE,
}
# EAGAIN: the file has a lease.
_LATER |= {errno.EAGAIN}
READ = 4
SEARCH = 1
_ACL = "system.posix_acl_access"
# O_PATH opens no device and does not block on a FIFO.
_OPENED = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_ONLY = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotReadable(Exception):
    """The file cannot be read; the message is the reason."""


class NotNow(NotReadable):
    """The file cannot be read now, because its server is unavailable, but possibly later."""


@dataclass(frozen=True, slots=True)
class FileReader:
    """The user who reads a file.

    Unknown users and root may read only what everyone may read.
    """

    uid: int = -1
    groups: frozenset[int] = frozenset()

    def may(self, descriptor: int, right: int) -> bool:
        """Return whether owner, group and mode grant a right, as the kernel would decide.

        Group permissions are ignored if the file has an access list.
        """
        status = os.fstat(descriptor)
        if status.st_uid == self.uid:
            return bool(status.st_mode & right << 6)
        if status.st_gid in self.groups and not _has_acl(descriptor):
            return bool(status.st_mode & right << 3)
        return bool(status.st_mode & right)


def account_of(user: str | int) -> FileReader:
    """Return the account of a user of this host, by name or uid."""
    try:
        if isinstance(user, str):
            entry = pwd.getpwnam(user)
        else:
            entry = pwd.getpwuid(user)
    except (KeyError, ValueError, OverflowError):
        return FileReader() if isinstance(user, str) else FileReader(user)
    if entry.pw_uid == 0:
        return FileReader()
    return FileReader(entry.pw_uid, frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid)) - {0})


@contextmanager
def opened_directory(path: Path, check: Callable[[int, Path], None]) -> Iterator[int]:
    """Open the directories of an absolute path one by one with O_PATH, without following symlinks.

    `check` is called with descriptor and path of each directory except `/`, and may raise. Raises
    `OSError`.
    """
    opened = Path("/")
    directory = os.open(opened, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in path.parts[1:]:
            parent = directory
            directory = os.open(name, _OPENED | os.O_DIRECTORY, dir_fd=directory)
            os.close(parent)
            opened /= name
            check(directory, opened)
        yield directory
    finally:
        os.close(directory)


@contextmanager
def opened_file(directory: int, name: str, check: Callable[[int], None]) -> Iterator[int]:
    """Open a file in an open directory for reading, after `check` has accepted its descriptor.

    The file is not touched before that. Raises `OSError`: `ELOOP` for a symlink, `EAGAIN` for a
    file whose lease would make the kernel wait.
    """
    handle = os.open(name, _OPENED, dir_fd=directory)
    try:
        if stat.S_ISLNK(os.fstat(handle).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        check(handle)
        descriptor = os.open(f"/proc/self/fd/{handle}", _READ_ONLY)
    finally:
        os.close(handle)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_as(
    account: FileReader | None, path: Path, *, max_bytes: int
) -> tuple[bytes, os.stat_result]:
    """Return the content and status of a file.

    Symlinks are followed where the account has access. Without an account, the permissions of this
    process apply, and a symlink is refused. Raises `NotReadable`.
    """

    def check_directory(directory: int, _: Path) -> None:
        if account and not account.may(directory, SEARCH):
            raise NotReadable("the job's owner cannot access this directory")

    def check_file(handle: int) -> None:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise NotReadable("not a regular file")
        if account and not account.may(handle, READ):
            raise NotReadable("the job's owner may not read it")
        if status.st_size > max_bytes:
            raise NotReadable(f"{status.st_size} bytes, more than {max_bytes}")

    try:
        followed = path if account else path.parent
        real = Path(os.path.realpath(followed, strict=True), *path.relative_to(followed).parts)
        with (
            opened_directory(real.parent, check_directory) as directory,
            opened_file(directory, real.name, check_file) as descriptor,
        ):
            status = os.fstat(descriptor)
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(status.st_size), status
    except OSError as error:
        kind = NotNow if error.errno in _LATER else NotReadable
        raise kind(error.strerror or str(error)) from error
    except ValueError as error:
        # The path contains a NUL.
        raise NotReadable(str(error)) from error


def _has_acl(descriptor: int) -> bool:
    try:
        return bool(os.getxattr(f"/proc/self/fd/{descriptor}", _ACL))
    except OSError:
        return False
