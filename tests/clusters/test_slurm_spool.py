"""Slurm's spool is read exactly, and nothing in it is trusted."""

import os
import struct
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.schedulers.base import (
    EntryIncomplete,
    EntryUnreadable,
    EntryVanished,
    SpooledJob,
    SpoolEntry,
    SpoolError,
)
from apps.clusters.schedulers.slurm.spool import SlurmSpool

SAMPLES = Path(__file__).parents[2].parent / "shared" / "samples" / "slurm" / "spool"
SCRIPT = b"#!/bin/sh\necho caf\xe9\n"
VARIABLES = [b"HOME=/home/u", b"BASH_FUNC_f%%=() {  echo a=b;\n}", b"EMPTY=", b"LATIN=caf\xe9"]


def environment_file(variables: list[bytes]) -> bytes:
    return struct.pack("=I", len(variables)) + b"".join(text + b"\0" for text in variables)


def write_job(
    root: Path,
    job_id: int,
    script: bytes = SCRIPT + b"\0",
    environment: bytes = environment_file(VARIABLES),
) -> SpoolEntry:
    directory = root / f"hash.{job_id % 10}" / f"job.{job_id}"
    directory.mkdir(parents=True)
    (directory / "environment").write_bytes(environment)
    (directory / "script").write_bytes(script)
    return SpoolEntry(str(job_id), directory)


def test_read_returns_the_bytes_as_they_were_written(tmp_path: Path) -> None:
    entry = write_job(tmp_path, 86)
    os.utime(entry.path / "script", ns=(0, 1_700_000_000_123_456_789))

    job = SlurmSpool(tmp_path).read(entry)

    assert job == SpooledJob(
        job_id="86",
        submitted_at=datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC),
        script=SCRIPT,
        environment=environment_file(VARIABLES),
    )
    assert job.variables == (
        (b"HOME", b"/home/u"),
        (b"BASH_FUNC_f%%", b"() {  echo a=b;\n}"),
        (b"EMPTY", b""),
        (b"LATIN", b"caf\xe9"),
    )


@pytest.mark.parametrize("script", [b"\0", b"no final newline\0", b"#!/bin/sh\r\n\0", b"two\0\0"])
def test_read_takes_just_one_nul_from_the_script(tmp_path: Path, script: bytes) -> None:
    assert SlurmSpool(tmp_path).read(write_job(tmp_path, 1, script=script)).script == script[:-1]


@pytest.mark.parametrize("length", range(len(SCRIPT) + 1))
def test_read_of_a_half_written_script_says_incomplete(tmp_path: Path, length: int) -> None:
    entry = write_job(tmp_path, 1, script=SCRIPT[:length])

    with pytest.raises(EntryIncomplete, match="script"):
        SlurmSpool(tmp_path).read(entry)


@given(st.integers(min_value=0, max_value=len(environment_file(VARIABLES)) - 1))
def test_read_of_a_half_written_environment_says_incomplete(
    tmp_path_factory: pytest.TempPathFactory, n: int
) -> None:
    root = tmp_path_factory.mktemp("spool")
    entry = write_job(root, 1, environment=environment_file(VARIABLES)[:n])

    with pytest.raises(EntryIncomplete, match="environment"):
        SlurmSpool(root).read(entry)


@pytest.mark.parametrize("missing", ["script", "environment"])
def test_read_before_a_file_is_made_says_incomplete(tmp_path: Path, missing: str) -> None:
    entry = write_job(tmp_path, 1)
    (entry.path / missing).unlink()

    with pytest.raises(EntryIncomplete, match=missing):
        SlurmSpool(tmp_path).read(entry)


def test_read_of_a_removed_job_says_vanished(tmp_path: Path) -> None:
    spool = SlurmSpool(tmp_path)

    with pytest.raises(EntryVanished):
        spool.read(SpoolEntry("1", tmp_path / "hash.1" / "job.1"))


def test_read_of_a_job_removed_meanwhile_says_vanished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = write_job(tmp_path, 1)
    real_open = os.open

    def open_after_purge(path: str, flags: int, *, dir_fd: int | None = None) -> int:
        if path == "environment":
            for name in ("environment", "script"):
                (entry.path / name).unlink()
            entry.path.rmdir()
        return real_open(path, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", open_after_purge)
    with pytest.raises(EntryVanished):
        SlurmSpool(tmp_path).read(entry)


def test_read_of_an_empty_environment_finds_no_variable(tmp_path: Path) -> None:
    assert (
        SlurmSpool(tmp_path)
        .read(write_job(tmp_path, 1, environment=struct.pack("=I", 0)))
        .variables
        == ()
    )


@pytest.mark.parametrize("name", ["script", "environment"])
@pytest.mark.parametrize("kind", ["symlink", "directory", "fifo"])
def test_read_refuses_what_is_no_regular_file(tmp_path: Path, name: str, kind: str) -> None:
    entry = write_job(tmp_path, 1)
    path = entry.path / name
    path.rename(tmp_path / "elsewhere")
    match kind:
        case "symlink":
            path.symlink_to(tmp_path / "elsewhere")
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)

    with pytest.raises(EntryUnreadable, match=name):
        SlurmSpool(tmp_path).read(entry)


@pytest.mark.parametrize("level", ["hash.1", "hash.1/job.1"])
def test_read_follows_no_symlinked_directory(tmp_path: Path, level: str) -> None:
    (tmp_path / "spool").mkdir()
    entry = write_job(tmp_path / "spool", 1)
    link = tmp_path / "spool" / level
    link.rename(tmp_path / "elsewhere")
    link.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(EntryUnreadable):
        SlurmSpool(tmp_path / "spool").read(entry)


def test_read_refuses_a_file_over_the_limit(tmp_path: Path) -> None:
    entry = write_job(tmp_path, 1, script=b"x" * 2000 + b"\0")

    with pytest.raises(EntryUnreadable, match="2001 bytes, more than 1000"):
        SlurmSpool(tmp_path, max_file_bytes=1000).read(entry)


def test_read_refuses_an_entry_of_another_directory(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    entry = write_job(tmp_path / "other", 1)

    with pytest.raises(EntryUnreadable, match="not a job of"):
        SlurmSpool(tmp_path / "spool").read(entry)


def test_scan_lists_jobs_alone(tmp_path: Path) -> None:
    entries = [write_job(tmp_path, job_id) for job_id in (1, 11, 20)]
    for name in (
        "hash.1/job.",
        "hash.1/job.x",
        "hash.1/job.1\n",
        "hash.1/job.٣",
        "hash.1/core",
        "hash.x/job.1",
        "job.3",
    ):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "job_state.new").touch()

    assert sorted(SlurmSpool(tmp_path).scan()) == sorted(entries)


def test_scan_of_a_fresh_spool_is_empty(tmp_path: Path) -> None:
    assert list(SlurmSpool(tmp_path).scan()) == []


def test_scan_names_an_unreadable_directory_after_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(tmp_path, 1)
    entry = write_job(tmp_path, 2)
    real_open = os.open

    def refuse_first(path: str | Path, flags: int, *, dir_fd: int | None = None) -> int:
        if str(path).endswith("hash.1"):
            raise PermissionError(13, "Permission denied")
        return real_open(path, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse_first)
    scan = SlurmSpool(tmp_path).scan()
    assert next(scan) == entry
    with pytest.raises(SpoolError, match=r"hash\.1: Permission denied"):
        next(scan)


@pytest.mark.parametrize("kind", ["file", "symlink"])
def test_what_is_no_hash_directory_is_named_and_never_followed(tmp_path: Path, kind: str) -> None:
    (tmp_path / "spool").mkdir()
    write_job(tmp_path, 2)
    entry = write_job(tmp_path / "spool", 3)
    path = tmp_path / "spool" / "hash.2"
    path.touch() if kind == "file" else path.symlink_to(tmp_path / "hash.2")
    spool = SlurmSpool(tmp_path / "spool")

    scan = spool.scan()

    assert next(scan) == entry
    with pytest.raises(SpoolError, match=r"hash\.2: Not a directory"):
        next(scan)
    assert path not in spool.watched()


def test_watched_grows_with_the_hash_directories(tmp_path: Path) -> None:
    spool = SlurmSpool(tmp_path)
    assert spool.watched() == [tmp_path]

    write_job(tmp_path, 7)

    assert spool.watched() == [tmp_path, tmp_path / "hash.7"]


@pytest.mark.parametrize(
    "name", ["hash.6/job.86", "hash.6/job.86/script", "hash.6/job.86/environment"]
)
def test_entry_at_a_job_is_its_entry(tmp_path: Path, name: str) -> None:
    expected = SpoolEntry("86", tmp_path / "hash.6" / "job.86")

    assert SlurmSpool(tmp_path).entry_at(tmp_path / name) == expected


@pytest.mark.parametrize(
    "name",
    ["", "hash.6", "job_state.new", "hash.6/x", "hash.6/job.86/other", "hash.6/job.-1", ".."],
)
def test_entry_at_anything_else_is_none(tmp_path: Path, name: str) -> None:
    assert SlurmSpool(tmp_path).entry_at(tmp_path / name) is None


def test_entry_at_a_path_outside_is_none(tmp_path: Path) -> None:
    assert SlurmSpool(tmp_path).entry_at(Path("/hash.6/job.86")) is None


def test_spool_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match="no Slurm spool"):
        SlurmSpool(tmp_path / "absent")


def test_with_environment_masks_one_variable_alone(tmp_path: Path) -> None:
    spool = SlurmSpool(tmp_path)
    job = spool.read(
        write_job(tmp_path, 1, environment=environment_file([b"A=1", b"bare", b"TOKEN=t=0", b"Z="]))
    )

    masked = spool.with_environment(
        job, [(n, b"***" if n == b"TOKEN" else v) for n, v in job.variables]
    )

    assert masked.environment == environment_file([b"A=1", b"bare", b"TOKEN=***", b"Z="])
    assert masked.script == job.script


def test_with_environment_refuses_a_nul(tmp_path: Path) -> None:
    spool = SlurmSpool(tmp_path)
    job = spool.read(write_job(tmp_path, 1))

    with pytest.raises(ValueError, match="NUL"):
        spool.with_environment(job, [(b"A", b"1\0B=2")])


no_nul = st.binary(max_size=40).map(lambda text: text.replace(b"\0", b""))


@given(
    script=st.binary(max_size=200),
    variables=st.lists(no_nul, max_size=8, unique_by=lambda t: t.partition(b"=")[0]),
)
def test_any_job_comes_back_identical(
    tmp_path_factory: pytest.TempPathFactory, script: bytes, variables: list[bytes]
) -> None:
    root = tmp_path_factory.mktemp("spool")
    spool = SlurmSpool(root)
    job = spool.read(write_job(root, 5, script + b"\0", environment_file(variables)))

    assert (job.script, job.environment) == (script, environment_file(variables))
    assert spool.with_environment(job, job.variables) == job


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples of a real Slurm are not here")
def test_samples_of_a_real_slurm_come_back_identical(tmp_path: Path) -> None:
    sources = sorted(SAMPLES.glob("job.*"))
    entries = [
        write_job(
            tmp_path,
            int(d.suffix[1:]),
            (d / "script").read_bytes(),
            (d / "environment").read_bytes(),
        )
        for d in sources
    ]
    spool = SlurmSpool(tmp_path)

    assert sorted(spool.scan()) == sorted(entries) != []
    for source, entry in zip(sources, entries, strict=True):
        job = spool.read(entry)
        assert job.script + b"\0" == (source / "script").read_bytes()
        assert job.environment == (source / "environment").read_bytes()
        assert spool.with_environment(job, job.variables) == job
