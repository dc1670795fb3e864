"""Accounting rows become records: whatever the free text holds,
and however often a job was started.
"""

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.schedulers.base import Flagged, JobRecord, JobState, SchedulerError
from apps.clusters.schedulers.slurm.accounting import (
    FIELDS,
    Attempt,
    finished_jobs,
    group_rows,
    number_attempts,
    read_records,
)
from apps.clusters.schedulers.slurm.sacct import (
    read_duration,
    read_size,
    read_task_ids,
    read_time,
    split_rows,
)
from apps.clusters.schedulers.slurm.scheduler import Slurm

SAMPLES = Path(__file__).parents[2].parent / "shared" / "samples" / "slurm"
T0 = 1_700_000_000
SINCE = datetime.fromtimestamp(T0, UTC)
UNTIL = SINCE + timedelta(hours=1)

# Answers as sacct does: its fields, the delimiter it is given, every row whose id or time is asked
# for. Queries by ID come later, and may find other rows.
FAKE_SACCT = """#!{python}
import json, os, sys
options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
config = json.load(open("{config}"))
if "helpformat" in options:
    print("  ".join(config["fields"]))
    sys.exit()
assert (os.environ["TZ"], os.environ["SLURM_TIME_FORMAT"], os.environ["LC_ALL"]) == ("UTC", "%s", "C")
assert "SACCT_FORMAT" not in os.environ
for row in config["later" if "jobs" in options else "rows"]:
    job, _, step = row["JobID"].partition(".")
    if "jobs" in options and job.split("_")[0] not in options["jobs"].replace("_", ",").split(","):
        continue
    if "state" in options and not step and row["State"].split(" ")[0] not in options["state"].split(","):
        continue
    for name in options["format"].split(","):
        sys.stdout.write(row[name] + options["delimiter"])
    print()
"""


def row(job_id: str = "5", **values: str) -> dict[str, str]:
    raw_id = job_id.partition("_")[0]
    defaults = {
        **dict.fromkeys(FIELDS, ""),
        "JobID": job_id,
        "JobIDRaw": raw_id,
        "State": "COMPLETED",
        "ExitCode": "0:0",
        "NodeList": "wn1",
        "Submit": str(T0),
        "Start": str(T0 + 5),
        "End": str(T0 + 65),
        "ElapsedRaw": "60",
        "TotalCPU": "00:30.500",
        "User": "alice",
        "UID": "1000",
        "WorkDir": "/home/alice",
        "SubmitLine": "sbatch x.sh",
        "AllocCPUS": "2",
        "ReqMem": "200M",
        "TimelimitRaw": "5",
        "JobName": "reco",
        "Reason": "None",
    }
    return defaults | values


def make_slurm(
    tmp_path: Path,
    rows: list[dict[str, str]],
    fields: list[str] = FIELDS,
    *,
    options: dict[str, str] | None = None,
    later: list[dict[str, str]] | None = None,
) -> Slurm:
    config, program = tmp_path / "config.json", tmp_path / "sacct"
    config.write_text(
        json.dumps({"rows": rows, "later": rows if later is None else later, "fields": fields})
    )
    program.write_text(FAKE_SACCT.format(python=sys.executable, config=config))
    program.chmod(0o755)
    return Slurm("c1", {"bin": str(tmp_path), **(options or {})})


def collect(slurm: Slurm) -> list[JobRecord]:
    return list(slurm.finished_jobs(since=SINCE, until=UNTIL))


def read_one(job: dict[str, str], *steps: dict[str, str]) -> JobRecord:
    (rows,) = group_rows([job, *steps])
    (record,) = read_records(rows, {rows.identity: Attempt(1, SINCE)})
    return record


def test_row_with_steps_becomes_a_whole_record(tmp_path: Path) -> None:
    rows = [
        row(Comment="campaign=mc26a", Partition="batch", Account="hep", MaxRSS=""),
        row("5.batch", MaxRSS="12392K", TotalCPU="00:30.250", User=""),
        row("5.0", MaxRSS="1M", TotalCPU="00:00.250", User=""),
    ]

    assert collect(make_slurm(tmp_path, rows)) == [
        JobRecord(
            job_id="5",
            raw_id=5,
            spool_id="5",
            attempt=1,
            state=JobState.COMPLETED,
            exit_code=0,
            signal=0,
            submitted_at=SINCE,
            started_at=SINCE + timedelta(seconds=5),
            ended_at=SINCE + timedelta(seconds=65),
            host="wn1",
            cpus=2,
            cpu_seconds=30.5,
            wall_seconds=60,
            max_memory_bytes=12392 * 1024,
            requested_memory_bytes=200 * 2**20,
            time_limit_seconds=300,
            partition="batch",
            account="hep",
            user="alice",
            name="reco",
            comment="campaign=mc26a",
            work_dir="/home/alice",
            submit_line="sbatch x.sh",
            uid=1000,
        )
    ]


@pytest.mark.parametrize(
    ("state", "exit_code", "expected"),
    [
        ("FAILED", "42:0", (JobState.FAILED, 42, 0, "")),
        ("FAILED", "0:11", (JobState.FAILED, 0, 11, "")),
        ("TIMEOUT", "0:0", (JobState.TIMEOUT, 0, 0, "")),
        ("OUT_OF_MEMORY", "0:125", (JobState.OUT_OF_MEMORY, 0, 125, "")),
        ("NODE_FAIL", "1:0", (JobState.NODE_FAIL, 1, 0, "")),
        ("CANCELLED", "0:0", (JobState.CANCELLED, 0, 0, "")),
        ("CANCELLED by 0", "0:0", (JobState.CANCELLED, 0, 0, "root")),
        ("CANCELLED by 1000", "0:0", (JobState.CANCELLED, 0, 0, "alice")),
        ("CANCELLED by 1001", "0:15", (JobState.CANCELLED, 0, 15, "1001")),
    ],
)
def test_state_is_read_with_its_exit_code(
    state: str, exit_code: str, expected: tuple[JobState, int, int, str]
) -> None:
    record = read_one(row(State=state, ExitCode=exit_code))

    assert (record.state, record.exit_code, record.signal, record.cancelled_by) == expected


@pytest.mark.parametrize("start", ["None", "Unknown", str(T0 + 65)])
def test_job_without_a_node_never_started(start: str) -> None:
    record = read_one(
        row(State="CANCELLED by 0", Start=start, NodeList="None assigned", Reason="JobHeldUser")
    )

    assert (record.started_at, record.host, record.reason) == (None, "", "JobHeldUser")


@pytest.mark.parametrize("limit", ["UNLIMITED", "Partition_Limit", ""])
def test_limit_that_is_no_number_is_none(limit: str) -> None:
    assert read_one(row(TimelimitRaw=limit)).time_limit_seconds is None


def test_components_of_a_heterogeneous_job_have_their_own_spool_entry() -> None:
    record = read_one(row("87+1", JobIDRaw="88"))

    assert (record.job_id, record.raw_id, record.spool_id) == ("87+1", 88, "88")


def test_array_cancelled_while_it_waits_becomes_a_record_for_each_task(tmp_path: Path) -> None:
    waiting = row("86_[2-4,9%2]", State="CANCELLED by 0", NodeList="None assigned", Start="None")

    records = collect(make_slurm(tmp_path, [row("86_1", JobIDRaw="90"), waiting]))

    assert [(r.job_id, r.raw_id, r.spool_id) for r in records] == [
        ("86_1", 90, "86"),
        *((f"86_{task}", 86, "86") for task in (2, 3, 4, 9)),
    ]


def test_task_that_started_as_its_array_was_cancelled_is_one_job(tmp_path: Path) -> None:
    cancelled = {"State": "CANCELLED by 1000"}
    started = row("86_0", JobIDRaw="90", **cancelled)
    array = row("86_[0-2%1]", NodeList="None assigned", Start="None", **cancelled)

    records = collect(make_slurm(tmp_path, [started, array]))
    assert [(r.job_id, r.raw_id) for r in records] == [("86_0", 90), ("86_1", 86), ("86_2", 86)]


def test_array_that_is_split_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    cancelled = {"State": "CANCELLED by 1000", "NodeList": "None assigned", "Start": "None"}
    other = row("4")
    array = row("5_[1-2%1]", **cancelled)
    tasks = [row(f"5_{task}", **cancelled) for task in (1, 2)]

    slurm = make_slurm(tmp_path, [other, array], later=[other, *tasks])
    assert [record.job_id for record in collect(slurm)] == ["4", "5_1", "5_2"]

    slurm = make_slurm(tmp_path, [other, tasks[0], array], later=[other, *tasks])
    assert [record.job_id for record in collect(slurm)] == ["4", "5_1", "5_2"], "each task once"


def test_job_that_is_not_in_its_own_history_is_flagged(tmp_path: Path) -> None:
    lost = row("5", Submit="Unknown")
    slurm = make_slurm(tmp_path, [row("4"), lost])
    record, flagged = slurm.finished_jobs(since=SINCE, until=UNTIL)
    assert isinstance(record, JobRecord)
    assert isinstance(flagged, Flagged)
    assert flagged.reason == "The job is not in its own history."


def test_paths_in_accounting_have_their_patterns_filled_in() -> None:
    record = read_one(row("86_3", JobIDRaw="90", StdOut="/logs/%A_%4a.out", StdErr="/logs/%j.err"))

    assert (record.stdout_path, record.stderr_path) == ("/logs/86_0003.out", "/logs/90.err")


def test_field_that_this_slurm_does_not_know_is_empty(tmp_path: Path) -> None:
    known = [name for name in FIELDS if name not in ("StdOut", "StdErr", "SubmitLine")]

    (record,) = collect(make_slurm(tmp_path, [row(StdOut="/x", SubmitLine="sbatch y")], known))

    assert (record.stdout_path, record.submit_line, record.name) == ("", "", "reco")


def test_interval_is_half_open(tmp_path: Path) -> None:
    ends = {
        "1": SINCE - timedelta(seconds=1),
        "2": SINCE,
        "3": UNTIL - timedelta(seconds=1),
        "4": UNTIL,
    }
    submitted = str(T0 - 60)
    rows = [
        row(job_id, Submit=submitted, Start=submitted, End=str(int(end.timestamp())))
        for job_id, end in ends.items()
    ]

    assert [record.job_id for record in collect(make_slurm(tmp_path, rows))] == ["2", "3"]


def test_row_that_is_not_whole_yet_is_held_back_for_a_while(tmp_path: Path) -> None:
    slurm = make_slurm(
        tmp_path,
        [row(WorkDir="", JobName="allocation", End=str(T0 + 60)), row("6", End=str(T0 + 60))],
    )

    def found(settled_before: int) -> list[str]:
        before = SINCE + timedelta(seconds=settled_before)
        records = finished_jobs(
            slurm._sacct, cluster="c1", since=SINCE, until=UNTIL, settled_before=before
        )
        return [record.job_id for record in records]

    assert found(settled_before=60) == ["6"]
    assert found(settled_before=61) == ["5", "6"]


@pytest.mark.parametrize(
    "change", [{"ExitCode": ""}, {"End": "Unknown"}, {"JobID": "x"}, {"JobIDRaw": ""}]
)
def test_bad_row_is_flagged_and_no_other_is_lost(tmp_path: Path, change: dict[str, str]) -> None:
    bad = row("6") | change

    slurm = make_slurm(tmp_path, [row("5"), bad, row("7")])
    read = list(slurm.finished_jobs(since=SINCE, until=UNTIL))

    assert [record.job_id for record in read if isinstance(record, JobRecord)] == ["5", "7"]
    assert [json.loads(flagged.raw) for flagged in read if isinstance(flagged, Flagged)] == [[bad]]


def test_state_that_is_unknown_flags_the_row() -> None:
    flagged = read_one(row(State="STRANGE"))

    assert isinstance(flagged, Flagged)
    assert flagged.reason == "The row cannot be read: 'strange' is not a valid JobState"
    assert (flagged.record, json.loads(flagged.raw)[0]["State"]) == (None, "STRANGE")


def test_command_that_fails_is_a_scheduler_error(tmp_path: Path) -> None:
    (tmp_path / "sacct").write_text("#!/bin/sh\necho 'slurmdbd: no connection' >&2\nexit 1\n")
    (tmp_path / "sacct").chmod(0o755)

    with pytest.raises(SchedulerError, match="sacct: slurmdbd: no connection"):
        collect(Slurm("c1", {"bin": str(tmp_path)}))


def test_command_that_is_missing_is_a_scheduler_error(tmp_path: Path) -> None:
    with pytest.raises(SchedulerError, match="sacct: cannot be run: No such file"):
        collect(Slurm("c1", {"bin": str(tmp_path)}))


def test_command_that_hangs_is_a_scheduler_error(tmp_path: Path) -> None:
    (tmp_path / "sacct").write_text("#!/bin/sh\nexec sleep 10\n")
    (tmp_path / "sacct").chmod(0o755)

    with pytest.raises(SchedulerError, match=r"no answer within 0\.05 s"):
        collect(Slurm("c1", {"bin": str(tmp_path), "timeout_seconds": "0.05"}))


def test_unknown_option_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown options of the slurm adapter: shell"):
        Slurm("c1", {"shell": "x"})


# --- attempts


def attempts(*rows: tuple[int, str, str]) -> list[tuple[int, int]]:
    """Number the attempts of one job from (submitted, state, submit line);
    return number and first submission.
    """
    given = [
        row(Submit=str(submitted), State=state, SubmitLine=line) for submitted, state, line in rows
    ]
    numbered = number_attempts(given)
    return [
        (
            numbered["5", r["Submit"]].number,
            int(numbered["5", r["Submit"]].submitted_at.timestamp()),
        )
        for r in given
    ]


def test_requeued_job_counts_its_attempts_from_the_first_submission() -> None:
    assert attempts((30, "FAILED", "x"), (10, "NODE_FAIL", "x"), (20, "REQUEUED", "x")) == [
        (3, 10),
        (1, 10),
        (2, 10),
    ]


def test_job_id_given_out_again_is_another_job() -> None:
    assert attempts((10, "FAILED", "x"), (20, "FAILED", "x")) == [(1, 10), (1, 20)]
    assert attempts((10, "NODE_FAIL", "x"), (20, "FAILED", "y")) == [(1, 10), (1, 20)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["REQUEUED", "FAILED"]), st.sampled_from("xy")),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_attempt_has_its_number_for_good(
    history: list[tuple[str, str]], data: st.DataObject
) -> None:
    rows = [(10 * n, state, line) for n, (state, line) in enumerate(history, start=1)]
    now = data.draw(st.integers(min_value=1, max_value=len(rows)))

    assert attempts(*rows)[:now] == attempts(*rows[:now])


def test_attempts_of_a_job_are_numbered_by_its_whole_history(tmp_path: Path) -> None:
    before = row(Submit=str(T0 - 500), Start=str(T0 - 400), End=str(T0 - 300), State="REQUEUED")

    (record,) = collect(make_slurm(tmp_path, [before, row(State="FAILED", ExitCode="4:0")]))

    assert (record.attempt, record.submitted_at) == (2, SINCE - timedelta(seconds=500))


# --- the output of sacct, and its values

text = st.text(
    alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12
)


@given(st.lists(st.lists(text, min_size=3, max_size=3), max_size=5))
def test_rows_of_any_text_come_apart_as_they_were(rows: list[list[str]]) -> None:
    delimiter = "\x1f0123abcd0123abcd\x1f"
    rows = [["7", *values[1:]] for values in rows]
    output = "".join(delimiter.join(values) + delimiter + "\n" for values in rows)

    assert list(split_rows(output, delimiter, 3)) == rows


@given(st.integers(min_value=1, max_value=len("1|a|b|\n2|c|d|") - 1))
def test_output_that_breaks_off_is_an_error_or_whole_rows(length: int) -> None:
    output = "1|a|b|\n2|c|d|\n"[:length]

    if length in (6, 7):
        assert list(split_rows(output, "|", 3)) == [["1", "a", "b"]]
    else:
        with pytest.raises(SchedulerError, match="breaks off"):
            list(split_rows(output, "|", 3))


@given(
    st.integers(0, 40),
    st.integers(0, 23),
    st.integers(0, 59),
    st.integers(0, 59),
    st.integers(0, 999),
)
def test_duration_is_read_in_each_form(
    days: int, hours: int, minutes: int, seconds: int, milli: int
) -> None:
    expected = days * 86400 + hours * 3600 + minutes * 60 + seconds

    assert read_duration(f"{days}-{hours:02}:{minutes:02}:{seconds:02}") == expected
    assert read_duration(f"{hours:02}:{minutes:02}:{seconds:02}") == expected - days * 86400
    assert read_duration(f"{minutes:02}:{seconds:02}.{milli:03}") == pytest.approx(
        minutes * 60 + seconds + milli / 1000
    )


@pytest.mark.parametrize(
    ("size", "expected"),
    [("0", 0), ("225280", 225280), ("12392K", 12689408), ("1.50G", 1610612736), ("4Gn", 2**32)],
)
def test_size_is_read_with_its_unit(size: str, expected: int) -> None:
    assert read_size(size) == expected


@pytest.mark.parametrize("size", ["", "?", "12X", "-1"])
def test_size_that_is_none_is_none(size: str) -> None:
    assert read_size(size) is None


@pytest.mark.parametrize("time", ["", "None", "Unknown", "0", "²"])
def test_time_that_is_none_is_none(time: str) -> None:
    assert read_time(time) is None


def test_array_expression_is_read_whole() -> None:
    assert read_task_ids("1,4-6,10-20:5%3") == [1, 4, 5, 6, 10, 15, 20]
    with pytest.raises(ValueError, match="no array expression"):
        read_task_ids("1,2,...")


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples of a real Slurm are not here")
def test_every_job_of_a_real_slurm_is_read() -> None:
    # The sample is plain `sacct -P`: rows with `|` or a newline in a name cannot be told apart, and
    # are left out.
    header, *lines = (SAMPLES / "sacct" / "main.psv").read_text().splitlines()
    names = header.split("|")
    whole = [line.split("|") for line in lines if line.count("|") == header.count("|")]
    rows = [dict.fromkeys(FIELDS, "") | dict(zip(names, values, strict=True)) for values in whole]
    for item in rows:
        for name in ("Submit", "Start", "End"):
            if item[name][:1].isdigit():
                item[name] = str(int(datetime.fromisoformat(item[name] + "+00:00").timestamp()))
    ended = [rows for rows in group_rows(rows) if read_time(rows.job["End"])]

    records = [
        record
        for rows in ended
        for record in read_records(rows, {rows.identity: Attempt(1, SINCE)})
    ]

    assert len(records) >= 30
    assert {record.state for record in records} >= {
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.TIMEOUT,
        JobState.CANCELLED,
        JobState.REQUEUED,
        JobState.NODE_FAIL,
    }
    timed_out = next(record for record in records if record.job_id == "83")
    assert (timed_out.state, timed_out.wall_seconds, timed_out.host) == (
        JobState.TIMEOUT,
        76,
        "wn1",
    )


@pytest.mark.parametrize(
    ("options", "own_name", "refused"),
    [
        ({}, "c1", False),
        ({}, "C1", False),
        ({}, "", False),
        ({}, "alps", True),
        ({"cluster_name": "alps"}, "alps", False),
        ({"cluster_name": "jura"}, "alps", True),
    ],
)
def test_jobs_of_a_cluster_with_another_name_are_not_collected_again(
    tmp_path, options, own_name, refused
):
    slurm = make_slurm(tmp_path, [row("5", Cluster=own_name)], options=options)
    if refused:
        with pytest.raises(
            SchedulerError, match=r"Slurm calls this cluster “alps”, but here it is “(c1|jura)”"
        ):
            collect(slurm)
    else:
        assert [job.job_id for job in collect(slurm)] == ["5"]
