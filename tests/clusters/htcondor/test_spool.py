"""A schedd's spool, read as jobs."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from apps.clusters.schedulers.base import (
    EntryIncomplete,
    EntryUnreadable,
    EntryVanished,
    SpoolEntry,
)
from apps.clusters.schedulers.htcondor.spool import HTCondorSpool
from tests.clusters.htcondor.conftest import entry_of
from tests.factories.htcondor_spool import OWNER, v2

SECRET = "s3cr3t 'of' \"mine\""
DIGEST = b"""FACTORY.Iwd=/home
executable=run.sh
environment="A=1 TOKEN='s3cr3t ''of'' ""mine""' B=$(item)"
arguments=$(item) --token 's3cr3t ''of'' "mine"'
Queue 2 item from condor_submit.7.items
"""


def test_a_job_is_read_with_all_that_the_queue_says(schedd, read):
    schedd.submit(
        7,
        [{"Arguments": "--seed 1", "Environment": v2({"A": "it's", "N": ""})}],
        AccountingGroup="mice.prod",
        JobBatchName="night",
        QDate=1_763_000_000,
        ClaimId="secret",
    )

    job = read(7)

    assert (job.user, job.account, job.name, job.arguments) == (
        OWNER,
        "mice.prod",
        "night",
        "--seed 1",
    )
    assert job.submitted_at == datetime.fromtimestamp(1_763_000_000, UTC)
    assert job.variables == ((b"A", b"it's"), (b"N", b""))
    assert b'\nAccountingGroup = "mice.prod"\n' in job.description
    assert b"# job 7.0: what differs\nEnvironment" in job.description
    assert b"secret" not in job.description


def test_the_submit_description_is_kept_where_the_schedd_has_it(schedd, read):
    directory = schedd.spool / "7"
    directory.mkdir()
    (directory / "condor_submit.7.digest").write_bytes(DIGEST)
    (directory / "condor_submit.7.items").write_bytes(b"one\ntwo\n")
    schedd.submit(7, [], JobMaterializeDigestFile="condor_submit.7.digest")

    job = read(7)

    assert job.description.endswith(
        b"# condor_submit.7.digest\n" + DIGEST + b"# condor_submit.7.items\none\ntwo\n"
    )


@pytest.mark.parametrize("name", ["Environment", "Env"])
def test_masked_values_are_masked_in_the_description_too(schedd, spool, read, name):
    directory = schedd.spool / "7"
    directory.mkdir()
    (directory / "condor_submit.7.digest").write_bytes(DIGEST)
    written = v2({"A": "1", "TOKEN": SECRET}) if name == "Environment" else f"A=1|TOKEN={SECRET}"
    schedd.submit(
        7, JobMaterializeDigestFile="x", EnvDelim="|", Args=f"--token {SECRET}", **{name: written}
    )
    if name == "Env":
        schedd.append(b"104 07.-1 Environment\n")
    job = read(7)
    assert b"s3cr3t" in job.description

    masked = spool.with_environment(
        job, [(n, b"<masked:1>" if n == b"TOKEN" else v) for n, v in job.variables]
    )

    assert masked.variables == ((b"A", b"1"), (b"TOKEN", b"<masked:1>"))
    assert b"s3cr3t" not in masked.description + masked.environment
    assert b"A=1 TOKEN=<masked:1> B=$(item)" in masked.description
    assert masked.description.count(b"<masked:1>") == 3
    assert spool.with_environment(job, job.variables) == job


@pytest.mark.parametrize(
    ("command", "masked"),
    [
        (b'env = "A=1 PIN=1234"', b'env = "A=1 PIN=<m>"'),
        (b"Environment= A=1;PIN=1234", b"Environment = A=1;PIN=<m>"),
        (b"  env=A=1; PIN=1234", b"env = A=1;PIN=<m>"),
        (b'environment="PIN=\'12"', b'environment = "<masked>"'),
        (b"env = A=1234", b"env = A=1234"),
    ],
)
def test_short_secrets_are_masked_where_a_submit_description_sets_them(
    schedd, spool, read, command, masked
):
    (schedd.spool / "7").mkdir()
    (schedd.spool / "7" / "condor_submit.7.digest").write_bytes(command + b"\n")
    schedd.submit(7, Environment="PIN=1234", JobMaterializeDigestFile="x")
    job = read(7)

    changed = spool.with_environment(job, [(b"PIN", b"<m>")])

    assert changed.description.endswith(b"# condor_submit.7.digest\n" + masked + b"\n")
    assert b'\nEnvironment = "PIN=<m>"\n' in changed.description


def test_names_for_events_are_those_of_the_scan(schedd, spool):
    schedd.submit(7)
    entry = entry_of(spool, 7)

    assert spool.entry_at(entry.path) == entry
    assert not spool.is_index(schedd.log)
    schedd.submit(8)
    assert spool.is_index(schedd.log)
    assert spool.is_index(schedd.log)
    assert len(list(spool.scan())) == 2
    schedd.set("8.0", JobStatus=2)
    assert not spool.is_index(schedd.log)
    schedd.remove(8)
    assert spool.is_index(schedd.log)
    assert not spool.is_index(schedd.spool / "7" / "job_queue.log")
    assert spool.entry_at(schedd.log) is None
    assert spool.entry_at(Path("/elsewhere/cluster 7")) is None


def test_an_entry_is_the_same_after_the_queue_is_compacted_and_another_in_a_new_queue(
    schedd, spool
):
    schedd.submit(7, QDate=100)
    before = spool.identity(entry_of(spool, 7))
    schedd.set("7.0", JobStatus=2)
    schedd.compact()
    entry = entry_of(spool, 7)
    assert spool.identity(entry) == before

    schedd.ads.clear()
    schedd.submit(7, QDate=200)
    schedd.compact()

    assert spool.identity(entry_of(spool, 7)) != before


def test_a_job_whose_files_are_on_their_way_is_not_complete(schedd, spool, read):
    schedd.submit(7, [{"JobStatus": 5, "HoldReasonCode": 16}])
    with pytest.raises(EntryIncomplete, match="not spooled yet"):
        read(7)

    schedd.set("7.0", JobStatus=1, StageInFinish=1_763_000_000)

    assert read(7).job_id == "7"


def test_a_cluster_without_a_job_is_not_complete(schedd, read):
    schedd.submit(7, [])

    with pytest.raises(EntryIncomplete, match="no job yet"):
        read(7)


def test_a_job_that_has_left_the_queue_is_read_still(schedd, read):
    schedd.submit(7, Cmd="short.sh")
    schedd.remove(7)

    assert b'Cmd = "short.sh"' in read(7).description


def test_a_job_of_another_queue_is_gone(schedd, spool):
    with pytest.raises(EntryVanished):
        spool.read(SpoolEntry("8", schedd.spool / "cluster 8"))
    assert spool.identity(SpoolEntry("8", schedd.spool / "cluster 8")).inode == 0


@pytest.mark.parametrize("value", [10**17, -5])
def test_a_job_of_no_time_is_reported_and_the_others_are_read(schedd, read, value):
    schedd.submit(7, QDate=value)
    schedd.submit(8)

    with pytest.raises((EntryUnreadable, EntryIncomplete)) as error:
        read(7)
    assert "cluster 7" in str(error.value)
    assert read(8).job_id == "8"


def test_quotes_that_do_not_match_are_reported(schedd, read):
    schedd.submit(7, Environment="A='1")

    with pytest.raises(EntryUnreadable, match="quote"):
        read(7)


@pytest.mark.parametrize(
    "environment",
    [
        "a=" + "b'c'" * 300_000,
        " ".join(f"TOKEN{n}=secret{n}" for n in range(60_000)),
        "A='" + "''" * 300_000 + "'",
    ],
    ids=["parts", "secrets", "quotes"],
)
def test_an_environment_made_to_take_long_does_not(schedd, spool, read, environment):
    schedd.submit(7, Environment=environment)
    start = time.process_time()

    job = read(7)
    masked = spool.with_environment(job, [(name, b"<m>") for name, _ in job.variables])

    assert time.process_time() - start < 10
    assert b"secret" not in masked.description.replace(b"too many secrets", b"")


def test_a_value_cannot_forge_a_record_or_a_line(schedd, read):
    """A newline never gets into the log; what looks like one stays in its value."""
    schedd.submit(7, Args='\\n103 08.-1 Cmd "x"', JobBatchName='"; Cmd = "evil')
    schedd.submit(8)

    job = read(7)

    assert job.arguments == '\\n103 08.-1 Cmd "x"'
    assert job.name == '"; Cmd = "evil'
    assert job.description.count(b"\nCmd = ") == 1
    assert b'Cmd = "/bin/true"' in read(8).description


def test_a_real_ad_is_read(schedd, spool, read):
    sample = Path(__file__).parents[4] / "shared" / "samples" / "htcondor" / "job.old.ad"
    if not sample.exists():
        pytest.skip("no samples here")
    lines = sample.read_bytes().splitlines()
    schedd.append(b"101 015.-1 Job Machine\n101 15.0 Job Machine\n")
    for line in lines:
        name, _, value = line.partition(b" = ")
        schedd.append(b"103 015.-1 %s %s\n" % (name, value))

    job = read(15)

    assert (job.user, job.arguments) == ("bbockelm", "faux")
    assert job.submitted_at == datetime.fromtimestamp(1357311627, UTC)
    assert [line for line in lines if line not in job.description] == [b'Arguments = "faux"']
    assert isinstance(spool, HTCondorSpool)
