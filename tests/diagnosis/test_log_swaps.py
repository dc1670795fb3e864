"""The user of a job exchanges its log, or the directory of it, while the log is opened, thousands of times."""

import multiprocessing
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL
from pathlib import Path

import pytest

from apps.diagnosis.engine.access import LogAccess
from apps.diagnosis.engine.tail import LogError, open_log, read_back

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
OWNER = 65534
SECONDS = 2
_AT_CWD, _EXCHANGE = -100, 2


def exchange_for_ever(log: Path, other: Path) -> None:
    rename = CDLL(None).renameat2
    while True:
        rename(_AT_CWD, bytes(log), _AT_CWD, bytes(other), _EXCHANGE)


@contextmanager
def exchanging(log: Path, other: Path) -> Iterator[None]:
    """Let another process exchange two names in a loop."""
    process = multiprocessing.get_context("spawn").Process(target=exchange_for_ever, args=(log, other), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


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

    texts, refusals = set(), 0
    with exchanging(*exchanged):
        ends = time.monotonic() + 30
        enough = None
        while time.monotonic() < min(ends, enough or ends):
            try:
                with open_log(log, access) as descriptor:
                    texts.add(read_back(descriptor).data)
            except LogError:
                refusals += 1
                enough = enough or time.monotonic() + SECONDS
    assert texts == {b"mine\n"}
    assert refusals > 100
