"""Torque's spool, as a pbs_server writes it, looked at between any two of its operations."""

import os
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.clusters.schedulers.base import (
    EntryIncomplete,
    EntryUnreadable,
    EntryVanished,
    Identity,
    SpooledJob,
    SpoolEntry,
    SpoolError,
)
from apps.clusters.schedulers.environment import variables_in
from apps.clusters.schedulers.torque.description import (
    read_description,
    split_variables,
    with_variables,
)
from apps.clusters.schedulers.torque.spool import TorqueSpool
from tests.factories.torque_spool import SERVER, TorqueJob, TorqueServer, do

SAMPLES = Path(__file__).parents[3] / "shared" / "samples" / "torque"


@pytest.fixture(params=[False, True], ids=["flat", "subdirectories"])
def server(request, tmp_path) -> TorqueServer:
    return TorqueServer(tmp_path, subdirectories=request.param)


def read_only_entry(spool: TorqueSpool) -> SpooledJob:
    (entry,) = spool.scan()
    return spool.read(entry)


names = st.from_regex(rb"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
# XML has no control characters; a carriage return it has by its number.
values = st.text(
    st.characters(
        codec="utf-8", categories=("L", "N", "P", "S"), include_characters=" \n\t\r\\,='\"<&"
    )
)
jobs = st.builds(
    TorqueJob,
    number=st.just(0),
    chunks=st.lists(st.binary(max_size=50), min_size=1, max_size=4).map(tuple),
    variables=st.lists(st.tuples(names, values.map(str.encode)), max_size=5).map(tuple),
    tasks=st.integers(0, 2),
    saves=st.integers(0, 5),
)


@dataclass
class Seen:
    """What was read of one job, by its key."""

    read: list[SpooledJob] = field(default_factory=list)
    identities: set[Identity] = field(default_factory=set)


def look(spool: TorqueSpool, seen: dict[str, Seen]) -> None:
    """Read what can be read now; anything but incomplete or gone is an error."""
    for entry in spool.scan():
        try:
            job = spool.read(entry)
        except (EntryIncomplete, EntryVanished):
            continue
        this = seen.setdefault(job.job_id, Seen())
        this.read.append(job)
        this.identities.add(spool.identity(entry))


@settings(max_examples=60, deadline=None)
@given(
    submitted=st.lists(jobs, min_size=1, max_size=3),
    turns=st.lists(st.integers(0, 5), max_size=120),
    subdirectories=st.booleans(),
    version=st.sampled_from([5, 6]),
)
def test_whenever_it_is_looked_at_a_job_is_whole_or_not_there(
    submitted, turns, subdirectories, version
) -> None:
    submitted = [replace(job, number=110 + number) for number, job in enumerate(submitted)]
    # It escapes nothing: what ends a variable cannot be told from a value that holds it.
    if version == 6:
        submitted = [replace(job, variables=without_separators(job.variables)) for job in submitted]
    with tempfile.TemporaryDirectory() as home:
        server = TorqueServer(Path(home), subdirectories=subdirectories, version=version)
        spool, seen = TorqueSpool(server.jobs), {}
        running: list[Iterator[None]] = [whole_life(server, job) for job in submitted]
        for turn in turns:
            if turn >= len(running):
                look(spool, seen)
            else:
                next(running[turn], None)
        for steps in running:
            do(steps)
        look(spool, seen)

    assert seen.keys() == {job.id for job in submitted}
    for job in submitted:
        assert {(read.script, read.variables) for read in seen[job.id].read} == {
            (job.script, job.variables)
        }
        assert {read.submitted_at for read in seen[job.id].read} == {
            datetime.fromtimestamp(job.created_at, UTC)
        }
        assert len(seen[job.id].identities) == 1


def without_separators(variables):
    return tuple(
        (name, value.replace(b",", b";").replace(b"\n", b" ")) for name, value in variables
    )


def whole_life(server: TorqueServer, job: TorqueJob) -> Iterator[None]:
    yield from server.submission(job)
    yield from server.life(job)


@given(variables=st.lists(st.tuples(names, values.map(str.encode)), min_size=1).map(tuple))
def test_lines_of_variables_come_back_as_they_were(variables) -> None:
    content = b"<job><attributes><Variable_List>X=1\n</Variable_List></attributes></job>"

    assert read_description(with_variables(content, variables)).variables == variables


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        (b"A=1,B=x,y,C=a=b", ((b"A", b"1"), (b"B", b"x,y"), (b"C", b"a=b"))),
        (b"A=one\ntwo,B=", ((b"A", b"one\ntwo"), (b"B", b""))),
        (b"A=1,BASH_FUNC_m%%=() {  x,y\n}", ((b"A", b"1"), (b"BASH_FUNC_m%%", b"() {  x,y\n}"))),
        (b"A=x\\,y\nB=one\\\ntwo\n", ((b"A", b"x,y"), (b"B", b"one\ntwo"))),
        (b"A=x,y=z", ((b"A", b"x"), (b"y", b"z"))),  # cannot be told apart
        (b"", ()),
    ],
)
def test_both_forms_of_the_variable_list(text, variables) -> None:
    assert split_variables(text) == variables


def test_archived_job_has_what_torque_says_of_it(server) -> None:
    job = TorqueJob(
        4711,
        variables=((b"PBS_O_HOME", b"/home/ana"), (b"TEXT", "é, a=b".encode())),
        attributes={"Account_Name": "atlas", "submit_args": "-A atlas run.sh", "cookie": "C00C1E"},
    )
    do(server.submission(job))

    spooled = read_only_entry(TorqueSpool(server.jobs))

    assert spooled.job_id == f"4711.{SERVER}"
    assert (spooled.user, spooled.account, spooled.name) == ("ana", "atlas", "events")
    assert spooled.arguments == "-A atlas run.sh"
    assert spooled.submitted_at == datetime.fromtimestamp(job.created_at, UTC)
    assert tuple(variables_in(spooled.environment)) == spooled.variables == job.variables
    assert spooled.caveat == ""
    assert spooled.description == server.description(job).replace(b"-A atlas run.sh", b"").replace(
        b"C00C1E", b""
    )


@pytest.mark.parametrize("version", [5, 6])
def test_masked_value_is_masked_in_the_description_too(tmp_path, version) -> None:
    server = TorqueServer(tmp_path, version=version)
    secret = (b"TOKEN", b"s3cr<t&, it's")
    do(server.submission(TorqueJob(1, variables=((b"A", b"1"), secret, (b"B", b"x&y")))))
    spool = TorqueSpool(server.jobs)
    spooled = read_only_entry(spool)

    masked = spool.with_environment(
        spooled, [(n, b"<masked:1>" if n == b"TOKEN" else v) for n, v in spooled.variables]
    )

    assert dict(spooled.variables)[b"TOKEN"] == secret[1]
    assert read_description(masked.description).variables == masked.variables
    assert dict(masked.variables) == {b"A": b"1", b"TOKEN": b"<masked:1>", b"B": b"x&y"}
    assert b"s3cr" not in masked.description + masked.environment
    assert masked.environment.startswith(struct.pack("=I", 3))
    assert spool.with_environment(spooled, spooled.variables) == spooled


def test_description_that_could_hold_a_masked_value_is_left_out() -> None:
    content = b"<job><attributes><Variable_List><![CDATA[TOKEN=s3cret]]></Variable_List></attributes></job>"

    assert read_description(content).variables == ((b"TOKEN", b"s3cret"),)
    assert with_variables(content, [(b"TOKEN", b"*")]) == b""


@pytest.mark.parametrize(
    "script", [b"", b"#!/bin/sh\r\necho x\r\n", b"# caf\xe9", b"\0\xff" * 100_000]
)
def test_script_comes_through_as_it_is(server, script) -> None:
    do(
        server.submission(
            TorqueJob(
                7, chunks=[script[i : i + 65536] for i in range(0, len(script), 65536)] or [b""]
            )
        )
    )

    assert read_only_entry(TorqueSpool(server.jobs)).script == script


def test_variables_that_are_no_utf_8_come_through_as_they_are(server) -> None:
    variables = ((b"CITY", b"K\xf6ln"), (b"PLAIN", b"x"))
    do(server.submission(TorqueJob(7, variables=variables)))
    spool = TorqueSpool(server.jobs)

    spooled = read_only_entry(spool)

    assert spooled.variables == variables
    masked = spool.with_environment(spooled, [(b"CITY", b"K\xf6ln"), (b"PLAIN", b"y")])
    assert read_description(masked.description).variables == masked.variables


def test_both_layouts_at_once(tmp_path) -> None:
    server = TorqueServer(tmp_path)
    do(server.submission(TorqueJob(1)))
    spool = TorqueSpool(server.jobs)
    assert spool.watched() == [server.jobs]

    (server.jobs / "2").mkdir()
    server.subdirectories = True
    do(server.submission(TorqueJob(12, tasks=1)))

    entries = {entry.job_id: entry for entry in spool.scan()}
    assert {job_id: spool.read(entry).job_id for job_id, entry in entries.items()} == {
        f"1.{SERVER}": f"1.{SERVER}",
        f"12[].{SERVER}": f"12[].{SERVER}",
    }
    assert spool.watched() == [server.jobs, server.jobs / "2"]


def test_tasks_are_no_entries(server) -> None:
    job = TorqueJob(33, tasks=3)
    do(whole_life(server, job))
    spool = TorqueSpool(server.jobs)

    assert [entry.job_id for entry in spool.scan()] == [f"33[].{SERVER}"]
    assert spool.entry_at(server.path(33, ".JB", 1)) is None
    assert spool.entry_at(server.path(33, ".SC")) == next(spool.scan())


def test_id_of_an_array_stays_while_its_description_is_swapped(server) -> None:
    job = TorqueJob(33, tasks=1, saves=3)
    do(server.submission(job))
    spool = TorqueSpool(server.jobs)
    read_only_entry(spool)

    ids = {entry.job_id for _ in server.life(job) for entry in spool.scan()}
    do(server.purge(job))

    assert ids == {f"33[].{SERVER}"}
    assert list(spool.scan()) == []
    do(server.submission(TorqueJob(33)))
    assert read_only_entry(spool).job_id == f"33.{SERVER}"


def test_events_that_are_about_no_job(server, tmp_path) -> None:
    spool = TorqueSpool(server.jobs)

    assert spool.entry_at(server.jobs) is None
    assert spool.entry_at(tmp_path / f"1.{SERVER}.SC") is None
    assert spool.entry_at(server.jobs / "x" / f"1.{SERVER}.SC") is None
    assert spool.entry_at(server.jobs / f"{SERVER}.SC") is None
    assert spool.entry_at(server.jobs / f"1.{SERVER}.JC") is None


def test_script_left_alone_is_captured_after_a_while(server) -> None:
    do(server.submission(TorqueJob(5)))
    server.path(5, ".JB").unlink()

    patient = TorqueSpool(server.jobs)
    with pytest.raises(EntryIncomplete):
        read_only_entry(patient)
    spooled = read_only_entry(TorqueSpool(server.jobs, alone_seconds=0))

    assert (spooled.script, spooled.environment) == (b"#!/bin/sh\n", struct.pack("=I", 0))
    assert spooled.caveat == "Torque kept no description of this job."


def test_reserved_name_is_never_taken_for_a_description(server) -> None:
    steps = server.submission(TorqueJob(5, chunks=[b"#!/bin/sh\n", b"echo\n"]))
    next(steps)
    next(steps)

    with pytest.raises(EntryIncomplete):
        read_only_entry(TorqueSpool(server.jobs, alone_seconds=0))


BOMB = b"""<?xml version="1.0"?><!DOCTYPE job [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<job><attributes><Job_Name>&b;</Job_Name></attributes></job>"""
FILE = b'<!DOCTYPE job [<!ENTITY a SYSTEM "/etc/passwd">]><job><attributes><Job_Name>&a;</Job_Name></attributes></job>'


@pytest.mark.parametrize(
    "content", [BOMB, FILE, b"no XML", b"<job>", b"<a/>", b"\xff\xfe", b"<job></job>"]
)
def test_description_that_is_none_costs_no_script(server, content) -> None:
    do(server.submission(TorqueJob(5)))
    server.path(5, ".JB").write_bytes(content)

    spooled = read_only_entry(TorqueSpool(server.jobs))

    assert (spooled.script, spooled.variables, spooled.description) == (b"#!/bin/sh\n", (), b"")
    assert spooled.caveat == "Its .JB is not the XML of a job."


@pytest.mark.parametrize("suffix", [".JB", ".SC"])
def test_no_symlink_is_followed(server, tmp_path, suffix) -> None:
    do(server.submission(TorqueJob(5)))
    (tmp_path / "elsewhere").write_bytes(b"<job/>")
    server.path(5, suffix).unlink()
    server.path(5, suffix).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(EntryUnreadable):
        read_only_entry(TorqueSpool(server.jobs))


def test_no_symlink_to_a_subdirectory_is_followed(tmp_path) -> None:
    server = TorqueServer(tmp_path / "a")
    other = TorqueServer(tmp_path / "b")
    do(other.submission(TorqueJob(5)))
    (server.jobs / "5").symlink_to(other.jobs)
    spool = TorqueSpool(server.jobs)

    assert list(spool.scan()) == []
    with pytest.raises(EntryUnreadable):
        spool.read(SpoolEntry(f"5.{SERVER}", server.jobs / "5" / f"5.{SERVER}.SC"))


def test_directory_in_place_of_a_file_and_a_fifo(server) -> None:
    do(server.submission(TorqueJob(5)))
    server.path(5, ".SC").unlink()
    os.mkfifo(server.path(5, ".SC"))
    with pytest.raises(EntryUnreadable):
        read_only_entry(TorqueSpool(server.jobs))

    server.path(5, ".SC").unlink()
    server.path(5, ".SC").mkdir()
    with pytest.raises(EntryUnreadable):
        read_only_entry(TorqueSpool(server.jobs))


def test_purged_job_is_gone(server) -> None:
    job = TorqueJob(5, tasks=1)
    do(whole_life(server, job))
    spool = TorqueSpool(server.jobs)
    (entry,) = spool.scan()

    for _ in server.purge(job):
        if not entry.path.exists():
            with pytest.raises(EntryVanished):
                spool.read(entry)
            assert list(spool.scan()) == []
            assert spool.identity(entry) == Identity(0, 0)


def test_what_is_no_directory_is_no_spool(tmp_path) -> None:
    with pytest.raises(SpoolError, match="no Torque spool: No such file"):
        TorqueSpool(tmp_path / "none")


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no samples here")
def test_samples_of_real_files(tmp_path) -> None:
    description = read_description((SAMPLES / "adaptivecomputing-job.xml").read_bytes())
    assert description.attributes["Job_Owner"] == "adaptive@cvizino-centos6-test"
    assert dict(description.variables)[b"PBS_O_MAIL"] == b"/var/spool/mail/adaptive"
    assert len(description.variables) == 10

    array = read_only_entry(TorqueSpool(SAMPLES / "torque_job.2"))
    assert array.job_id == "2[].mymaster.mycluster"
    assert array.script.endswith(b"sleep 100\n")
