"""A file server that really hangs delays the jobs whose scripts it has, and no others."""

import fcntl
import os
import signal
import threading

import pytest

from apps.clusters.schedulers.base import SpoolError
from apps.clusters.schedulers.htcondor import slow_files as patience_module
from apps.clusters.schedulers.htcondor.slow_files import Patience
from apps.clusters.schedulers.user_files import NotNow, NotReadable, account_of
from tests.factories.htcondor_spool import OWNER, SCRIPT
from tests.programs.hanging_server import hanging, readers_of

PATIENCE_SECONDS = 1.0
OWNERS = account_of(OWNER)


@pytest.fixture
def server(home):
    """The directory of a file server, on which two scripts are."""
    directory = home / "server"
    directory.mkdir(mode=0o755)
    for name in ("1.sh", "2.sh"):
        (directory / name).write_bytes(SCRIPT)
        (directory / name).chmod(0o755)
    return directory


@pytest.fixture
def patience():
    return Patience(seconds=PATIENCE_SECONDS)


@pytest.fixture
def readings(monkeypatch):
    """How many reads were begun, by path."""
    begun = []

    def read_as(account, path, *, max_bytes, read_as=patience_module.read_as):
        begun.append(path)
        return read_as(account, path, max_bytes=max_bytes)

    monkeypatch.setattr(patience_module, "read_as", read_as)
    return begun


def contents(patience, path):
    return patience.read_as(OWNERS, path, max_bytes=1000)[0]


def test_server_that_hangs_is_waited_for_once_and_asked_again_when_it_answers(
    server, home, patience, readings
):
    (home / "elsewhere.sh").write_bytes(b"#!/bin/sh\n")
    (home / "elsewhere.sh").chmod(0o755)

    with hanging(server):
        for name in ("1.sh", "2.sh", "1.sh"):
            with pytest.raises(NotNow, match="does not answer"):
                contents(patience, server / name)
        assert contents(patience, home / "elsewhere.sh") == b"#!/bin/sh\n"
        assert readings == [server / "1.sh", home / "elsewhere.sh"]
        [waiting] = readers_of(server / "1.sh")
    waiting.join(30)

    assert contents(patience, server / "2.sh") == SCRIPT
    assert contents(patience, server / "1.sh") == SCRIPT


def test_what_comes_late_is_not_read_again(server, patience, monkeypatch):
    answers = threading.Event()

    def slow(account, path, *, max_bytes):
        answers.wait()
        return b"late", None

    with monkeypatch.context() as patched:
        patched.setattr(patience_module, "read_as", slow)
        with pytest.raises(NotNow):
            contents(patience, server / "1.sh")
        answers.set()
    for thread in readers_of(server):
        thread.join(30)

    assert contents(patience, server / "1.sh") == b"late"
    assert contents(patience, server / "1.sh") == SCRIPT


def test_reads_that_hang_are_not_begun_without_end(server, home, monkeypatch):
    monkeypatch.setattr(patience_module, "MOST_HANGING", 1)
    patience = Patience(seconds=PATIENCE_SECONDS)
    with hanging(server):
        with pytest.raises(NotNow):
            contents(patience, server / "1.sh")
        with pytest.raises(NotNow, match="reads of other files wait"):
            contents(patience, home / "elsewhere.sh")
        [waiting] = readers_of(server)
    waiting.join(30)

    with pytest.raises(NotReadable, match="No such file"):
        contents(patience, home / "elsewhere.sh")


def test_lease_of_a_user_keeps_nobody_waiting(server, patience):
    """The kernel would let a reader wait for 45 seconds for who holds it."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    descriptor = os.open(server / "1.sh", os.O_RDWR)
    try:
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            pytest.skip(f"no leases here: {error.strerror}")
        with pytest.raises(NotNow, match="unavailable"):
            contents(patience, server / "1.sh")
    finally:
        os.close(descriptor)
        signal.signal(signal.SIGIO, before)

    assert contents(patience, server / "1.sh") == SCRIPT


def test_job_whose_script_hangs_is_told_with_its_path_and_captured_later(
    schedd, spool, read, server
):
    spool.patience = Patience(seconds=PATIENCE_SECONDS)
    schedd.submit(7, Cmd="1.sh", Iwd=str(server))
    schedd.submit(8, Cmd="/nonexistent.sh")

    with hanging(server):
        with pytest.raises(SpoolError, match=r"/server/1\.sh: its file server does not answer"):
            read(7)
        assert read(8).caveat.startswith("the executable was not copied")
    for thread in readers_of(server):
        thread.join(30)

    assert read(7).script == SCRIPT
