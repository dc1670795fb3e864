"""Scripts are taken from where they are, with the rights of the job's owner and no more."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from apps.clusters.schedulers import user_files as files
from apps.clusters.schedulers.base import SpoolError
from apps.clusters.schedulers.htcondor import script, slow_files
from apps.clusters.schedulers.htcondor.script import COPIED, EDITED
from apps.clusters.schedulers.user_files import FileReader, NotNow, NotReadable, account_of, read_as
from tests.factories.htcondor_spool import OWNER, SCRIPT

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root may read what others may not")
OLD = time.time() - 3600


@pytest.fixture
def submit(schedd, read, home):
    """Submit a job of a file in the user's directory and read it back."""

    def submit(cmd="run.sh", **values):
        schedd.submit(7, Cmd=cmd, **{"Iwd": str(home)} | values)
        return read(7)

    return submit


def write(path, content=SCRIPT, *, mode=0o755, at=OLD):
    path.write_bytes(content)
    path.chmod(mode)
    os.utime(path, (at, at))
    return path


@pytest.mark.parametrize("is_absolute", [True, False])
def test_a_script_is_copied_from_the_users_directory(submit, home, is_absolute):
    path = write(home / "run.sh", b"#!/bin/sh\n# caf\xe9\0no last line")

    job = submit(str(path) if is_absolute else "run.sh")

    assert job.script == b"#!/bin/sh\n# caf\xe9\0no last line"
    assert job.caveat == COPIED


def test_a_script_that_is_younger_than_its_job_was_edited(submit, home):
    write(home / "run.sh", at=time.time() + 60)

    assert submit().caveat == COPIED + EDITED


def test_a_spooled_executable_is_exact(schedd, submit, home):
    write(home / "run.sh", b"another")
    directory = schedd.spool / "7"
    directory.mkdir()
    write(directory / "cluster7.ickpt.subproc0", mode=0o600)

    job = submit()

    assert (job.script, job.caveat) == (SCRIPT, "")


@ROOT_ONLY
@pytest.mark.parametrize(
    ("values", "is_read"),
    [
        ({}, True),
        ({"OsUser": OWNER}, True),
        ({"OsUser": f"{OWNER}@here"}, True),
        ({"Owner": "daemon", "OsUser": OWNER}, False),
        ({"Owner": OWNER, "OsUser": "daemon"}, False),
    ],
)
def test_nobody_reads_for_another_by_claiming_to_be_them(submit, home, values, is_read):
    os.chown(write(home / "run.sh", mode=0o700), account_of(OWNER).uid, -1)

    assert (submit(**values).script == SCRIPT) is is_read


@pytest.mark.parametrize(
    ("later", "caveat"), [(-5, ""), (5, "changed in the spool since it was submitted")]
)
def test_a_script_in_the_sandbox_of_its_job_is_exact_unless_it_was_changed(
    schedd, read, home, later, caveat
):
    schedd.spool = home  # where the owner may go
    sandbox, at = schedd.sandbox(7), int(time.time())
    write(sandbox / "run.sh", at=at + later)

    located = script.find_script(
        home,
        7,
        {
            b"cmd": b'Cmd = "run.sh"',
            b"iwd": b'Iwd = "%s"' % os.fsencode(sandbox),
            b"owner": b'Owner = "%s"' % OWNER.encode(),
            b"stageinfinish": b"StageInFinish = %d" % at,
        },
        max_bytes=1000,
        patience=slow_files.Patience(),
    )

    assert located == (SCRIPT, caveat)


def test_a_binary_is_named_by_its_hash_alone(submit, home):
    binary = b"\x7fELF" + bytes(100)
    write(home / "run.sh", binary)

    job = submit()

    assert job.script == b""
    assert "binary of 104 bytes" in job.caveat
    assert hashlib.sha256(binary).hexdigest() in job.caveat[:200]


def hidden_directory(home):
    (home / "hidden").mkdir(mode=0o700)
    write(home / "hidden" / "run.sh")
    return home / "hidden" / "run.sh"


@ROOT_ONLY
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda home: (home / "run.sh").symlink_to("/etc/shadow"), "may not read it"),
        (
            lambda home: (home / "run.sh").symlink_to(hidden_directory(home)),
            "cannot access this directory",
        ),
        (lambda home: write(home / "run.sh", mode=0o600), "may not read it"),
        (lambda home: write(home / "run.sh", mode=0o640), "may not read it"),
    ],
)
def test_what_the_owner_may_not_read_is_not_read(submit, home, make, reason):
    make(home)

    job = submit()

    assert job.script == b""
    assert job.caveat.startswith("the executable was not copied: ")
    assert reason in job.caveat


@ROOT_ONLY
def test_what_is_the_owners_alone_is_read(submit, home):
    os.chown(write(home / "run.sh", mode=0o400), account_of(OWNER).uid, 0)

    assert submit().script == SCRIPT


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: os.mkfifo(path, 0o644), "not a regular file"),
        (lambda path: path.mkdir(), "not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (lambda path: path.symlink_to(path), "symbolic links"),
        (lambda path: path.symlink_to("nowhere"), "No such file"),
        (lambda _: None, "No such file"),
        (lambda path: path.open("wb").truncate(100 * 1024**3), "more than"),
    ],
)
def test_what_is_no_script_is_said_and_the_job_kept(submit, home, make, reason):
    make(home / "run.sh")

    job = submit()

    assert job.script == b""
    assert reason in job.caveat
    assert b'Cmd = "run.sh"' in job.description


def test_a_link_to_the_owners_own_script_is_followed(submit, home):
    write(home / "run-2.sh")
    (home / "run.sh").symlink_to("run-2.sh")

    assert submit().script == SCRIPT


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"TransferExecutable": False}, "not of this host"),
        ({"Cmd": ""}, "names no executable"),
        ({"Cmd": "a\0b"}, "null byte"),
        ({"Cmd": "x" * 5000}, "name too long"),
    ],
)
def test_a_job_without_a_script_here_is_kept(submit, values, reason):
    job = submit(
        **{"cmd": "run.sh"}
        | {("cmd" if name == "Cmd" else name): value for name, value in values.items()}
    )

    assert job.script == b""
    assert reason in job.caveat


def test_a_file_server_that_is_away_lets_the_job_wait(submit, monkeypatch):
    def fail(*_, **__):
        raise NotNow("Stale file handle")

    monkeypatch.setattr(slow_files, "read_as", fail)

    with pytest.raises(NotReadable):
        fail()
    with pytest.raises(SpoolError, match="Stale"):
        submit()


def test_nobody_and_root_may_read_what_all_may():
    assert account_of("no such user") == account_of("root") == FileReader()
    assert account_of("a\0b") == FileReader()


def test_a_link_put_in_place_of_a_directory_meanwhile_is_not_followed(home, monkeypatch):
    """The path is looked up twice: what is a directory the first time may be a link the second."""
    write(home / "run.sh")
    (home / "link").symlink_to(home)
    monkeypatch.setattr(files.os.path, "realpath", lambda path, strict: str(path))

    with pytest.raises(NotReadable):
        read_as(account_of(OWNER), home / "link" / "run.sh", max_bytes=1000)
    assert read_as(account_of(OWNER), Path(home / "run.sh"), max_bytes=1000)[0] == SCRIPT
