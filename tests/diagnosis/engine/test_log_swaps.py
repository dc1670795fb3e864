"""The user of a job exchanges its log, or the directory of it, while the log is opened,
thousands of times.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from apps.diagnosis.engine.logs.access import LogAccess
from apps.diagnosis.engine.logs.tail import LogError, open_log, read_back

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
OWNER = 65534
#: So often the log is opened at least while it is exchanged. A check that can be raced fails in one
#: of fifty.
OPENINGS = 1_500
EXCHANGE = """
import sys
from ctypes import CDLL

log, other = map(str.encode, sys.argv[1:])
rename, at_cwd, exchange = CDLL(None).renameat2, -100, 2
while True:
    rename(at_cwd, log, at_cwd, other, exchange)
"""


@contextmanager
def exchanging(log: Path, other: Path) -> Iterator[None]:
    """Let another process exchange two names in a loop."""
    with subprocess.Popen([sys.executable, "-S", "-c", EXCHANGE, log, other]) as process:
        try:
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("kind", ["symlink", "directory", "hard link", "fifo", "private file"])
def test_nothing_but_the_users_own_log_is_read(tmp_path, kind):
    (tmp_path / "secret").mkdir()
    secret = tmp_path / "secret" / "log"
    secret.write_text("secret\n")
    directory = tmp_path / "root" / "jobs"
    directory.mkdir(parents=True)
    log, other = directory / "log", directory / "other"
    log.write_text("mine\n")
    for path in (directory, log):
        shutil.chown(path, OWNER, OWNER)
    exchanged = (log, other)
    match kind:
        case "symlink":
            other.symlink_to(secret)
        case "directory":
            exchanged = (directory, tmp_path / "root" / "other")
            exchanged[1].symlink_to(secret.parent)
        case "hard link":
            os.link(secret, other)
        case "fifo":
            os.mkfifo(other)
        case "private file":
            other.write_text("secret\n")
    access = LogAccess(roots=(tmp_path / "root",), user="nobody", uid=OWNER)

    texts, refusals, openings = set(), 0, 0
    with exchanging(*exchanged):
        ends = time.monotonic() + 30
        while (openings < OPENINGS or refusals <= 100) and time.monotonic() < ends:
            try:
                with open_log(log, access) as descriptor:
                    texts.add(read_back(descriptor).data)
            except LogError:
                refusals += 1
            openings += refusals > 0
    assert texts == {b"mine\n"}
    assert refusals > 100
