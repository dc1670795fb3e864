"""Decide which files may be read as logs of a job.

The user of the job chooses the path and may name another user's file.
"""

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from apps.clusters.schedulers.user_files import FileReader


@dataclass(frozen=True, slots=True)
class LogAccess:
    """The accounts that may own the logs of a job: its user, and those allowed for its cluster.

    Paths must be below one of `roots`. `uid` is None if the job has no ordinary user known on this
    host. A `reader` is an account that must have the right to search each directory of the path and
    to read the file.
    """

    roots: tuple[Path, ...]
    user: str = ""
    uid: int | None = None
    allowed_uids: frozenset[int] = frozenset()
    reader: FileReader | None = None

    def file_problem(self, status: os.stat_result) -> str:
        """Return why a file is no log of any job; "" if it may be one."""
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file"
        if status.st_nlink > 1:
            return (
                f"hard link: the file has {status.st_nlink} names, and another of them may be "
                "private"
            )
        return ""

    def owner_problem(self, status: os.stat_result) -> str:
        """Return why a file of this owner is no log of this job; "" if it may be one."""
        if self._accepts(status.st_uid):
            return ""
        owner = _name_of(status.st_uid)
        if self.uid is not None:
            return f"owned by {owner}, but the job ran as {self.user}"
        if self.user:
            who = f"the job's user {self.user} is not an ordinary account on this host"
        else:
            who = "job has no user"
        return f"{who}, and its cluster does not allow logs owned by {owner}"

    def directory_problem(self, status: os.stat_result) -> str:
        """Return why a directory on the way to a log cannot be trusted; "" if it can.

        Without the sticky bit, an account that may write to a directory may replace files of
        others.
        """
        if status.st_mode & stat.S_ISVTX:
            return ""
        if status.st_mode & stat.S_IWOTH:
            return "is writable by everyone"
        if (
            status.st_mode & stat.S_IWGRP
            and status.st_uid != 0
            and not self._accepts(status.st_uid)
        ):
            return f"is writable by its group and owned by {_name_of(status.st_uid)}"
        return ""

    def _accepts(self, uid: int) -> bool:
        return uid == self.uid or uid in self.allowed_uids


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
