"""Reads a file whose path a user has given, with that user's rights, whatever rights this process has."""

import errno
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_LATER = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENOTCONN, errno.EMFILE, errno.ENFILE}
_LATER |= {errno.EAGAIN}  # its owner holds a lease on it, which would keep us waiting
_READ, _SEARCH = 4, 1
_ACL = "system.posix_acl_access"
_OPENED = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC  # opens nothing yet: a device is not touched, a FIFO does not block


class NotReadable(Exception):
    """The file is not to be had; the message is the reason."""


class NotNow(NotReadable):
    """The file cannot be read now, and perhaps later: its server is away."""


@dataclass(frozen=True, slots=True)
class Account:
    """Who reads. One that is not known, and root, may read only what everybody may."""

    uid: int = -1
    groups: frozenset[int] = frozenset()

    def may(self, status: os.stat_result, right: int, *, has_acl: bool) -> bool:
        """Decide by owner, group and mode as the kernel does; an access list's rights for groups are not trusted."""
        if status.st_uid == self.uid:
            return bool(status.st_mode & right << 6)
        if status.st_gid in self.groups and not has_acl:
            return bool(status.st_mode & right << 3)
        return bool(status.st_mode & right)


def account_of(user: str) -> Account:
    """Return the account of a user of this host."""
    try:
        entry = pwd.getpwnam(user)
    except (KeyError, ValueError):
        return Account()
    if entry.pw_uid == 0:
        return Account()
    return Account(entry.pw_uid, frozenset(os.getgrouplist(user, entry.pw_gid)) - {0})


def read_as(account: Account | None, path: Path, *, max_bytes: int) -> tuple[bytes, os.stat_result]:
    """Return what `path` holds. Symlinks are followed to where the account may go by itself. Raises `NotReadable`.

    Without an account the rights are those of this process, and a file that is a symlink is refused.
    """
    try:
        followed = path if account else path.parent
        real = Path(os.path.realpath(followed, strict=True), *path.relative_to(followed).parts)
        with _opened(account, real) as descriptor:
            status = os.fstat(descriptor)
            _check(account, descriptor, status, max_bytes=max_bytes)
            with open(f"/proc/self/fd/{descriptor}", "rb", opener=_open_at_once) as file:
                return file.read(status.st_size), status
    except OSError as error:
        kind = NotNow if error.errno in _LATER else NotReadable
        raise kind(error.strerror or str(error)) from error
    except ValueError as error:  # a NUL in the path
        raise NotReadable(str(error)) from error


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


@contextmanager
def _opened(account: Account | None, real: Path) -> Iterator[int]:
    """Open a path without symlinks name by name: one that is put there meanwhile is not followed."""
    descriptor = os.open("/", _OPENED)
    try:
        for name in real.parts[1:]:
            status = os.fstat(descriptor)
            if account and not account.may(status, _SEARCH, has_acl=_has_acl(descriptor)):
                raise NotReadable("the job's owner may not go there")
            descriptor, parent = os.open(name, _OPENED, dir_fd=descriptor), descriptor
            os.close(parent)
        yield descriptor
    finally:
        os.close(descriptor)


def _check(account: Account | None, descriptor: int, status: os.stat_result, *, max_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotReadable("not a regular file")
    if account and not account.may(status, _READ, has_acl=_has_acl(descriptor)):
        raise NotReadable("the job's owner may not read it")
    if status.st_size > max_bytes:
        raise NotReadable(f"{status.st_size} bytes, more than {max_bytes}")


def _has_acl(descriptor: int) -> bool:
    try:
        return bool(os.getxattr(f"/proc/self/fd/{descriptor}", _ACL))
    except OSError:
        return False
