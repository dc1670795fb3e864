"""Torque's accounting files: what each line means, over days, and with text of users in it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.schedulers.base import Flagged, JobRecord, JobState, LogPaths, SchedulerError
from apps.clusters.schedulers.torque.logs import directives
from apps.clusters.schedulers.torque.records import read_facts
from apps.clusters.schedulers.torque.scheduler import Torque
from tests.factories.torque_spool import TorqueJob, TorqueServer, do

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
ID = "4711.pbs.example.org"


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def stamp(minutes: float) -> int:
    return int(at(minutes).timestamp())


@pytest.fixture
def server(tmp_path) -> TorqueServer:
    return TorqueServer(tmp_path)


@pytest.fixture
def torque(server) -> Torque:
    return Torque(
        "old", {"accounting": str(server.accounting), "jobs": str(server.jobs), "time_zone": "UTC"}
    )


def start(server, minutes=5, job_id=ID, **changes) -> str:
    """Write what comes before an end; return the facts that are in each line from the start on."""
    facts = {
        "user": "ana",
        "group": "users",
        "account": "atlas",
        "jobname": "events",
        "queue": "long",
        "ctime": stamp(0),
        "qtime": stamp(0),
        "start": stamp(minutes),
        "owner": "ana@login",
        "exec_host": "node1/0-3,7+node2/0",
        "Resource_List.mem": "4gb",
        "Resource_List.walltime": "01:00:00",
        **changes,
    }
    text = " ".join(f"{name}={value}" for name, value in facts.items())
    server.record(at(0), "Q", job_id, "queue=long")
    server.record(at(minutes), "S", job_id, text)
    return text


def end(server, text, minutes, status, *, used="00:10:00", job_id=ID) -> None:
    server.record(
        at(minutes),
        "E",
        job_id,
        f"{text} session=7 end={stamp(minutes)} Exit_status={status} resources_used.cput=00:30:00 "
        f"resources_used.mem=1024kb resources_used.vmem=9gb resources_used.walltime={used}",
    )


def collect(torque, since=-1.0, until=100_000.0) -> list[JobRecord]:
    return list(torque.finished_jobs(since=at(since), until=at(until)))


def test_every_fact_of_an_end(server, torque) -> None:
    end(server, start(server), 15, 0)

    assert collect(torque) == [
        JobRecord(
            job_id=ID,
            raw_id=4711,
            spool_id=ID,
            attempt=1,
            state=JobState.COMPLETED,
            exit_code=0,
            signal=0,
            submitted_at=at(0),
            started_at=at(5),
            ended_at=at(15),
            host="node1,node2",
            cpus=6,
            cpu_seconds=1800,
            wall_seconds=600,
            max_memory_bytes=1024**2,
            requested_memory_bytes=4 * 1024**3,
            time_limit_seconds=3600,
            partition="long",
            account="atlas",
            user="ana",
            name="events",
        )
    ]


@pytest.mark.parametrize(
    ("status", "used", "state", "exit_code", "signal"),
    [
        (0, "00:10:00", JobState.COMPLETED, 0, 0),
        (3, "00:10:00", JobState.FAILED, 3, 0),
        (139, "00:10:00", JobState.FAILED, 139, 0),
        (267, "00:10:00", JobState.FAILED, 0, 11),
        (271, "00:10:00", JobState.FAILED, 0, 15),
        (271, "01:00:07", JobState.TIMEOUT, 0, 0),
        (265, "01:00:07", JobState.TIMEOUT, 0, 0),
        (0, "01:00:07", JobState.COMPLETED, 0, 0),
        (-11, "00:10:00", JobState.TIMEOUT, 0, 0),
        (-12, "00:10:00", JobState.TIMEOUT, 0, 0),
        (-10, "00:10:00", JobState.OUT_OF_MEMORY, 0, 0),
        (-4, "00:00:00", JobState.FAILED, 0, 0),
    ],
)
def test_exit_status(server, torque, status, used, state, exit_code, signal) -> None:
    end(server, start(server), 66, status, used=used)

    (record,) = collect(torque)

    assert (record.state, record.exit_code, record.signal) == (state, exit_code, signal)


def test_deleted_while_it_ran_is_one_record_with_its_end(server, torque) -> None:
    text = start(server)
    server.record(at(10), "D", ID, "requestor=boss@login")
    end(server, text, 11, 271, used="00:06:00")

    (record,) = collect(torque)

    assert (record.state, record.cancelled_by, record.ended_at) == (
        JobState.CANCELLED,
        "boss",
        at(11),
    )
    assert (record.exit_code, record.signal) == (0, 0)


def test_deletion_of_a_running_job_waits_for_the_end(server, torque, time_machine) -> None:
    start(server)
    server.record(at(10), "D", ID, "requestor=boss@login")

    time_machine.move_to(at(15))
    assert collect(torque) == []
    time_machine.move_to(at(25))
    assert [(record.state, record.ended_at) for record in collect(torque)] == [
        (JobState.CANCELLED, at(10))
    ]


@pytest.mark.parametrize(("kind", "reason"), [("D", ""), ("A", "aborted by the server")])
def test_never_started(server, torque, kind, reason) -> None:
    server.record(at(0), "Q", ID, "queue=long")
    server.record(at(3), kind, ID, "requestor=ana@login" if kind == "D" else "")

    (record,) = collect(torque)

    assert (record.state, record.reason, record.started_at) == (JobState.CANCELLED, reason, None)
    assert (record.submitted_at, record.ended_at, record.host, record.cpus) == (at(0), at(3), "", 0)


def test_rerun_is_an_attempt_of_its_own_whatever_the_interval(server, torque) -> None:
    start(server)
    server.record(at(20), "R", ID, "")
    text = start(server, 30)
    end(server, text, 50, 0)

    records = collect(torque)

    assert [(r.attempt, r.state, r.started_at, r.ended_at, r.submitted_at) for r in records] == [
        (1, JobState.REQUEUED, at(5), at(20), at(0)),
        (2, JobState.COMPLETED, at(30), at(50), at(0)),
    ]
    assert collect(torque, 40) == records[1:]
    assert collect(torque, -1, 40) == records[:1]


def test_beginning_days_before_is_found(server, torque) -> None:
    start(server)
    server.record(at(2000), "R", ID, "")
    days = 60 * 24 * 9
    end(server, start(server, 2100), days, 0)

    (record,) = collect(torque, days - 5, days + 5)

    assert (record.attempt, record.started_at) == (2, at(2100))


def test_number_used_again_is_another_job(server, torque) -> None:
    end(server, start(server), 15, 0)
    server.record(at(60), "Q", ID, "queue=long")
    server.record(at(61), "D", ID, "requestor=ana@login")

    assert [(record.submitted_at, record.state) for record in collect(torque)] == [
        (at(0), JobState.COMPLETED),
        (at(60), JobState.CANCELLED),
    ]


def test_tasks_share_the_script_of_their_array(server, torque) -> None:
    for task in (0, 1):
        job_id = f"88[{task}].pbs.example.org"
        end(server, start(server, job_id=job_id, jobname=f"events-{task}"), 15, 0, job_id=job_id)

    assert {(record.job_id, record.spool_id, record.raw_id) for record in collect(torque)} == {
        (f"88[{task}].pbs.example.org", "88[].pbs.example.org", 88) for task in (0, 1)
    }


def test_times_are_of_the_zone_that_is_given(server) -> None:
    (server.accounting / "20260310").write_text(
        "03/10/2026 23:30:00;Q;1.srv;queue=long\n03/10/2026 23:40:00;D;1.srv;requestor=ana@login\n"
    )
    torque = Torque("old", {"accounting": str(server.accounting), "time_zone": "America/Chicago"})
    end_of_it = datetime(2026, 3, 11, 4, 40, tzinfo=UTC)

    (record,) = torque.finished_jobs(since=end_of_it, until=end_of_it + timedelta(seconds=1))

    assert (record.submitted_at, record.ended_at) == (end_of_it - timedelta(minutes=10), end_of_it)


def test_bad_lines_are_flagged(server, torque) -> None:
    end(server, start(server), 15, 0)
    end(server, start(server, job_id="6.srv"), 15, "none", job_id="6.srv")
    server.record(at(15), "E", "bad id", "Exit_status=0")
    with (server.accounting / "20260310").open("ab") as file:
        file.write(
            b"99/99/2026 12:00:00;E;5.srv;Exit_status=0\n\xff\xfe\nno line\n03/10/2026 12:20:00;D;7.srv;reques"
        )

    collected = collect(torque)
    assert [record.job_id for record in collected if isinstance(record, JobRecord)] == [ID]
    flagged = "\n".join(record.raw for record in collected if isinstance(record, Flagged))
    assert all(text in flagged for text in ("5.srv", "6.srv", "bad id", "no line"))


def test_text_of_users_hides_no_facts(server, torque) -> None:
    text = start(server, jobname="x user=root account=other end=1 Exit_status=0 ctime=1")
    end(server, text, 15, 3)

    (record,) = collect(torque)

    assert (record.user, record.account, record.exit_code, record.ended_at) == (
        "ana",
        "atlas",
        3,
        at(15),
    )
    assert record.submitted_at == at(0)


@given(st.text())
def test_any_text_has_facts_or_none(text) -> None:
    assert all(isinstance(value, str) for value in read_facts(text).values())


def test_directory_away_is_worth_trying_again(tmp_path) -> None:
    with pytest.raises(SchedulerError, match="no accounting: No such file"):
        collect(Torque("old", {"accounting": str(tmp_path / "none")}))
    with pytest.raises(SchedulerError, match="the option `accounting` is not set"):
        collect(Torque("old", {}))


@pytest.mark.parametrize(
    "options", [{"acounting": "/x"}, {"accounting": "/x", "time_zone": "Mars/Base"}]
)
def test_wrong_options(options) -> None:
    with pytest.raises(ValueError):
        Torque("old", options)


RECORD = JobRecord(
    job_id=ID,
    raw_id=4711,
    spool_id=ID,
    attempt=1,
    state=JobState.FAILED,
    exit_code=1,
    signal=0,
    submitted_at=at(0),
    started_at=at(5),
    ended_at=at(15),
    name="events",
    user="ana",
)
TASK = replace(
    RECORD, job_id="88[3].pbs.example.org", spool_id="88[].pbs.example.org", name="events-3"
)
HOME = {"PBS_O_WORKDIR": "/data/run", "PBS_O_HOME": "/home/ana"}


@pytest.mark.parametrize(
    ("record", "directive", "stdout", "stderr"),
    [
        (RECORD, b"", "/data/run/events.o4711", "/data/run/events.e4711"),
        (TASK, b"", "/data/run/events.o88-3", "/data/run/events.e88-3"),
        (RECORD, b"#PBS -j oe", "/data/run/events.o4711", "/data/run/events.o4711"),
        (RECORD, b"#PBS -j eo -l nodes=1", "/data/run/events.e4711", "/data/run/events.e4711"),
        (RECORD, b"#PBS -o logs/out -e /var/err", "/data/run/logs/out", "/var/err"),
        (RECORD, b"#PBS -o node1:/a/$PBS_JOBID.log", f"/a/{ID}.log", "/data/run/events.e4711"),
        (RECORD, b"#PBS -o $HOME/${PBS_JOBNAME}", "/home/ana/events", "/data/run/events.e4711"),
        (RECORD, b"#PBS -o /logs/", f"/logs/{ID}.OU", "/data/run/events.e4711"),
        (RECORD, b"echo\n#PBS -o /not/this", "/data/run/events.o4711", "/data/run/events.e4711"),
    ],
)
def test_paths_worked_out(torque, record, directive, stdout, stderr) -> None:
    script = b"#!/bin/sh\n" + directive + b"\n./run\n"

    assert torque.log_paths(record, script=script, environment=HOME) == LogPaths(
        Path(stdout), Path(stderr), "derived"
    )


def test_paths_in_the_description_come_first(server, torque) -> None:
    do(server.submission(TorqueJob(4711)))

    paths = torque.log_paths(RECORD, script=b"", environment={})

    assert paths == LogPaths(
        Path("/home/ana/events.o4711"), Path("/home/ana/events.e4711"), "scheduler"
    )
    assert torque.log_paths(replace(RECORD, job_id="1.srv"), script=b"", environment=HOME) is None
    assert torque.log_paths(replace(RECORD, started_at=None), script=b"#", environment=HOME) is None


@given(st.binary(max_size=200))
def test_any_script_has_directives_or_none(script) -> None:
    assert isinstance(directives(b"#PBS " + script), dict)


def test_a_line_with_an_unknown_option_costs_no_other() -> None:
    assert directives(b"#PBS -o a.out\n#PBS -? x\n#PBS 'open\n#PBS -j oe\n") == {
        "-o": "a.out",
        "-j": "oe",
    }
