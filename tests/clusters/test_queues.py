"""What waits and runs, asked of the commands of three schedulers;
their answers are as their sources write them.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from apps.clusters.schedulers.base import CurrentState, SchedulerError
from apps.clusters.schedulers.commands import Commands
from apps.clusters.schedulers.htcondor.queue import read_queue as read_condor_q
from apps.clusters.schedulers.htcondor.scheduler import HTCondor
from apps.clusters.schedulers.slurm.scheduler import Slurm
from apps.clusters.schedulers.torque.queue import read_queue as read_qstat
from apps.clusters.schedulers.torque.scheduler import Torque
from tests.contracts.queue import (
    AT,
    ENDED,
    HELD,
    LIMIT_SECONDS,
    QUEUED,
    RUNNING,
    Known,
    QueueContract,
    write_program,
)

SERVER = "opt-batch.osc.edu"
SECONDS = int(AT.timestamp())
OPTIONS = {"timeout_seconds": LIMIT_SECONDS}


def job_of_torque(job_id: str, **attributes: str) -> str:
    """A job as `qstat -x` writes it: attributes as elements, the five characters of XML escaped,
    all else as it is.
    """
    given = {
        "Job_Name": "stage",
        "Job_Owner": "ana@login6.osc.edu",
        "job_state": "Q",
        "queue": "serial",
        "server": f"{SERVER}:15001",
        "ctime": str(SECONDS),
        "Hold_Types": "n",
        "Variable_List": "PBS_O_HOME=/home/ana,PBS_O_LANG=C",
        **attributes,
    }
    texts = "".join(
        f"<{name}>{escape(text, QUOTES)}</{name}>" for name, text in given.items() if text
    )
    limits = "<Resource_List><nodes>1:ppn=8</nodes><walltime>10:00:00</walltime></Resource_List>"
    return f"<Job><Job_Id>{job_id}</Job_Id>{texts}{limits}</Job>"


QUOTES = {'"': "&quot;", "'": "&apos;"}


class TorqueQueue:
    def __init__(self, directory: Path) -> None:
        self.program, self.answer = directory / "qstat", directory / "answer.xml"
        self.scheduler = Torque("old", {"bin": str(directory), **OPTIONS})

    def say(self, jobs: Sequence[Known]) -> None:
        states = {QUEUED: ("Q", "n"), RUNNING: ("R", "n"), HELD: ("H", "u"), ENDED: ("C", "n")}
        written = []
        for job in jobs:
            for task, state in enumerate(job.states):
                letter, hold = states[state]
                job_id = (
                    f"{job.number}[{task}].{SERVER}" if job.is_array else f"{job.number}.{SERVER}"
                )
                created = str(int(job.submitted_at.timestamp()))
                more = {
                    "job_state": letter,
                    "Hold_Types": hold,
                    "ctime": created,
                    "Account_Name": job.account,
                }
                written.append(job_of_torque(job_id, Job_Name=job.name, **more))
        self.answer.write_text(f'<?xml version="1.0"?>\n<Data>{"".join(written)}</Data>\n')
        write_program(
            self.program, f'[ "$*" = "-x -t" ] && [ "$PBS_QSTAT_NO_COMPLETE" ] && cat {self.answer}'
        )

    def spool_id(self, job: Known) -> str:
        return f"{job.number}[].{SERVER}" if job.is_array else f"{job.number}.{SERVER}"


class CondorQueue:
    def __init__(self, directory: Path) -> None:
        self.program, self.answer = directory / "condor_q", directory / "answer.json"
        self.scheduler = HTCondor("mice", {"bin": str(directory), "schedd": "submit-1", **OPTIONS})

    def say(self, jobs: Sequence[Known]) -> None:
        states = {QUEUED: 1, RUNNING: 2, HELD: 5, ENDED: 4}
        ads = []
        for job in jobs:
            for process, state in enumerate(job.states):
                ad = {
                    "ClusterId": job.number,
                    "ProcId": process,
                    "JobStatus": states[state],
                    "JobBatchName": job.name,
                }
                ad["QDate"] = int(job.submitted_at.timestamp())
                ads.append(
                    json.dumps(
                        ad | ({"AccountingGroup": job.account} if job.account else {}), indent=2
                    )
                )
        self.answer.write_text("[\n" + "\n,\n".join(ads) + "\n]\n" if ads else "")
        words = '"$1 $2 $3 $4 $5" = "-name submit-1 -allusers -json -attributes"'
        write_program(self.program, f"[ {words} ] && cat {self.answer}")

    def spool_id(self, job: Known) -> str:
        return str(job.number)


class SlurmQueue:
    def __init__(self, directory: Path) -> None:
        self.program = directory / "squeue"
        self.scheduler = Slurm("alps", {"bin": str(directory), **OPTIONS})

    def say(self, jobs: Sequence[Known]) -> None:
        states = {
            QUEUED: "PENDING Priority 90",
            RUNNING: "RUNNING None 90",
            HELD: "PENDING JobHeldUser 0",
        }
        lines = [
            f"line {job.number} {int(job.submitted_at.timestamp())} '{job.account}' {states[state]}"
            for job in jobs
            for state in job.states
            if state is not ENDED  # squeue was asked for the others alone
        ]
        begin = "for last do :; done\nend=${last#--format=%F}; end=${end%%%*}\n"
        line = 'line() { for field do printf \'%s%s\' "$field" "$end"; done; echo; }\n'
        write_program(self.program, begin + line + "\n".join(lines))

    def spool_id(self, job: Known) -> str:
        return str(job.number)


class TestQueueOfTorque(QueueContract):
    @pytest.fixture
    def harness(self, tmp_path):
        return TorqueQueue(tmp_path)


class TestQueueOfHTCondor(QueueContract):
    @pytest.fixture
    def harness(self, tmp_path):
        return CondorQueue(tmp_path)


class TestQueueOfSlurm(QueueContract):
    @pytest.fixture
    def harness(self, tmp_path):
        return SlurmQueue(tmp_path)


def states_of(*jobs: str) -> dict[str, CurrentState]:
    pieces = f"<Data>{''.join(jobs)}</Data>".encode()
    return {spool_id: state for spool_id, _, state, *_ in read_qstat([pieces[:100], pieces[100:]])}


@pytest.mark.parametrize(
    ("letter", "holds", "depend", "state"),
    [
        *[(letter, "n", "", QUEUED) for letter in "QWT"],
        *[(letter, "n", "", RUNNING) for letter in "RES"],
        *[("H", holds, "", HELD) for holds in ("u", "o", "s", "so", "sou")],
        ("H", "s", f"afterok:6.{SERVER}", QUEUED),
        ("H", "us", f"afterok:6.{SERVER}", HELD),
        ("H", "", "", QUEUED),
        ("C", "n", "", None),
        ("X", "n", "", None),
    ],
)
def test_letters_of_torque(letter, holds, depend, state):
    states = states_of(job_of_torque("7.server", job_state=letter, Hold_Types=holds, depend=depend))
    assert states.get("7.server") == state


def test_array_itself_and_what_is_no_job_are_not_counted():
    jobs = [
        job_of_torque("7[].server"),
        job_of_torque("7[0].server"),
        job_of_torque("x"),
        job_of_torque("8", ctime="x"),
    ]
    assert states_of(*jobs) == {"7[].server": QUEUED}


def test_bytes_of_users_pass_in_pieces_of_any_size():
    text = f"<Data>{job_of_torque('7.server', Account_Name='növa')}</Data>".encode() + b"\n"
    text = text.replace(b"PBS_O_LANG=C", b"A=\xff\xfe\x07\x00")
    for size in (1, 7, len(text)):
        pieces = [text[first : first + size] for first in range(0, len(text), size)]
        assert read_qstat(pieces) == {("7.server", SECONDS, QUEUED, "növa", ""): 1}


@pytest.mark.parametrize(
    "answer",
    [
        f"<Data>{job_of_torque('7.server')}<Job><Job_Id>8",
        '<!DOCTYPE Data [<!ENTITY a "b">]><Data><Job><Job_Id>&a;</Job_Id></Job></Data>',
        "qstat: something else",
    ],
)
def test_answer_of_torque_that_is_not_whole_is_none(answer):
    with pytest.raises(SchedulerError, match="cannot be parsed"):
        read_qstat([answer.encode()])


def test_files_that_come_in_are_no_hold_for_htcondor_and_strange_ads_are_flagged():
    ads = [
        {"ClusterId": 7, "ProcId": 0, "JobStatus": 5, "QDate": SECONDS, "HoldReasonCode": 16},
        {"ClusterId": 6, "ProcId": 0, "JobStatus": 5, "QDate": SECONDS, "HoldReasonCode": 13},
        {
            "clusterid": 7,
            "PROCID": 1,
            "JobStatus": 7,
            "QDate": SECONDS,
            "AccountingGroup": "/Expr(a.b)/",
        },
        {"ClusterId": 8, "ProcId": 0, "JobStatus": 1, "QDate": "/Expr(time() - 5)/"},
        {"ClusterId": True, "ProcId": 0, "JobStatus": 1, "QDate": SECONDS},
        {"ClusterId": 9, "JobStatus": 1, "QDate": SECONDS},
        {"ClusterId": 9, "ProcId": 0, "JobStatus": 1, "QDate": 10**30},
        ["no ad"],
    ]
    counts, flagged = read_condor_q([json.dumps(ads).encode()])
    assert [json.loads(one.raw) for one in flagged] == ads[3:]
    assert counts == {
        ("6", SECONDS, HELD, "", "13"): 1,
        ("7", SECONDS, QUEUED, "", ""): 1,
        ("7", SECONDS, RUNNING, "/Expr(a.b)/", ""): 1,
    }


@pytest.mark.parametrize(
    "answer", ['[\n{"ClusterId": 7,', "[" * 100_000, '{"ClusterId": 7}', "-- Failed to fetch ads"]
)
def test_answer_of_htcondor_that_is_not_whole_is_none(answer):
    with pytest.raises(SchedulerError, match=r"cannot be parsed|not a list"):
        read_condor_q([answer.encode()])


def asked(directory: Path, text: str, **limits: object) -> bytes:
    write_program(directory / "tell", text)
    return Commands(str(directory), **limits).output("tell")


def test_command_that_hangs_or_never_ends_is_ended(tmp_path):
    with pytest.raises(SchedulerError, match=r"no answer within 0\.2 s"):
        # The command is ended and waited for: it did not sleep on.
        asked(tmp_path, "echo begun; sleep 600", timeout_seconds=0.2)
    with pytest.raises(SchedulerError, match="more than 100,000 bytes"):
        asked(tmp_path, "exec yes", most_bytes=100_000)


def test_what_a_command_leaves_behind_is_ended_too(tmp_path):
    with pytest.raises(SchedulerError, match=r"no answer within 0\.5 s"):
        asked(tmp_path, 'sleep 600 & echo $! > "$0.left"', timeout_seconds=0.5)
    left = Path("/proc", (tmp_path / "tell.left").read_text().strip(), "cmdline")
    deadline = time.monotonic() + 60
    while left.exists() and left.read_bytes():  # one that has ended has none
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_command_gets_few_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "x")
    monkeypatch.setenv("_CONDOR_SEC", "y")
    lines = (
        asked(tmp_path, "env", inherits=("_CONDOR_",), variables={"CONDOR_CONFIG": "z"})
        .decode()
        .splitlines()
    )
    assert {"_CONDOR_SEC=y", "CONDOR_CONFIG=z", "LC_ALL=C"} <= set(lines)
    assert "SECRET_KEY=x" not in lines


def test_options_of_the_commands_are_checked():
    for options in (
        {"timeout_seconds": "0"},
        {"timeout_seconds": "x"},
        {"server": "-x"},
        {"conf": "x"},
    ):
        with pytest.raises(ValueError, match=r".+"):
            Torque("old", options)
    for options in (
        {"timeout_seconds": "4000"},
        {"schedd": "-global"},
        {"pool": "-xml"},
        {"server": "x"},
    ):
        with pytest.raises(ValueError, match=r".+"):
            HTCondor("mice", options)
