"""Errors that no catalogue knows: traces, words of the system, and what a job recovered from."""

import codecs
import gzip
import lzma
import os

import pytest
import zstandard

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.engine.base import Block, JobFacts
from apps.diagnosis.engine.diagnose import Diagnosis, diagnose, read_log
from apps.diagnosis.engine.formats.plain_lines import clean, peel
from apps.diagnosis.engine.logs import compressed
from apps.diagnosis.engine.registry import classifiers

TRACE = (
    'Traceback (most recent call last):\n  File "/site-packages/x.py", line 3, in read\n    '
    "f.read()\n"
)


def judge(text: str | bytes, facts: JobFacts | None = None) -> Diagnosis:
    data = text if isinstance(text, bytes) else text.encode()
    return diagnose(facts or JobFacts(), [Block(data, 0, len(data), 1)], classifiers=classifiers())


CASES = {
    "stale handle in a traceback": (
        TRACE + "OSError: [Errno 116] Stale file handle\n",
        "service",
        4,
    ),
    "full disk in a traceback": (
        TRACE + "OSError: [Errno 28] No space left on device: 'a'\n",
        "resource",
        4,
    ),
    "file that is not there": (
        TRACE + "FileNotFoundError: [Errno 2] No such file or directory: 'a.cfg'\n",
        "code",
        4,
    ),
    "file that a door does not give": (
        "Failed to open the file 'root://door.example.org//store/a.root'\n",
        "service",
        1,
    ),
    "server on the job's own host": (
        "curl: (7) Failed to connect to localhost port 80: Connection refused\n",
        "code",
        1,
    ),
    "name of an exception of its own": (TRACE + "pkg.mine.BadRun: run 7\n", "code", 4),
    "traceback with a prefix on each line": (
        "".join(
            f"2026-01-02 10:00:00,123 ERROR {line}\n"
            for line in (TRACE + "KeyError: 'x'").split("\n")
        ),
        "code",
        4,
    ),
    "exception that another one hides": (
        (
            f"{TRACE}TimeoutError: [Errno 110] Connection timed out\n\n"
            "During handling of the above exception, another exception "
            f"occurred:\n\n{TRACE}RuntimeError: cannot load\n"
        ),
        "service",
        4,
    ),
    "message of MATLAB": (
        "{\bIndex exceeds array bounds.\n\nError in cocluster (line 38)\ntmpA = A(1, 2);\n\n}\b\n",
        "code",
        1,
    ),
    "message of a function of MATLAB": (
        (
            "{\bError using load\nUnable to read file '/data/run 7.mat'. No such file or "
            "directory.\n\n}\b\n"
        ),
        "code",
        2,
    ),
    "task of Nextflow that a program's status explains": (
        (
            "Caused by:\n  Process `FETCH` terminated with an error exit status (56)\n\n"
            "Command executed:\n\n  curl -L https://data.example.org/a.gz -o a.gz\n\nCommand "
            "exit status:\n  56\n"
        ),
        "service",
        2,
    ),
    "command that was not there, told calmly": (
        (
            "18:49:57,550 [Runner] [INFO ]  Exit code: 127\n18:49:57,551 [Runner] [INFO ]  "
            "Removing a folder\n"
        ),
        "code",
        1,
    ),
    "file that an old client of XRootD was refused": (
        (
            "200612 14:32:22 222869 Xrd: CheckErrorStatus: Server [se.example.org] declared: "
            "Unable to access file; "
            "file does not exist.(error code: 3011)\n"
        ),
        "service",
        1,
    ),
    "file that a killed process did not write": (
        (
            "sh: line 1:  2597 Killed    ./align in.fa > out.sai\nmd5sum: out.sai: No such file "
            "or directory\n"
        ),
        "resource",
        1,
    ),
    "last submission of a shared log": (
        (
            "000 (7.000.000) 12/09 09:28:17 Job submitted from host: <192.0.2.1:9618>\n...\n"
            "022 (7.000.000) 12/09 09:28:19 Job disconnected, attempting to reconnect\n...\n"
            "000 (8.000.000) 12/09 10:00:00 Job submitted from host: <192.0.2.1:9618>\n...\n"
            "009 (8.000.000) 12/09 10:10:00 Job was aborted by the user.\n\tvia condor_rm (by "
            "user alice)\n...\n"
        ),
        "user",
        8,
    ),
    "root cause of java": (
        (
            'Exception in thread "main" a.b.LoadException: no\n\tat a.b.C(C.java:1)\n'
            "Caused by: java.io.IOException: No space left on device\n\t... 2 more\n"
        ),
        "resource",
        3,
    ),
    "message under its heading": (
        "Program:     gmx grompp\n\nFatal error:\nToo many warnings (1).\n",
        "code",
        4,
    ),
    "limit that pbs reports": (
        "step 7\n=>> PBS: job killed: walltime 70 exceeded limit 60\n",
        "resource",
        2,
    ),
    "limit that lsf reports": (
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\n",
        "resource",
        1,
    ),
    "owner who killed it": (
        "TERM_OWNER: job killed by owner.\nExited with exit code 130.\n",
        "user",
        1,
    ),
    "kill that mpi reports": (
        "mpirun noticed that process rank 1 exited on signal 9 (Killed).\n",
        "resource",
        1,
    ),
    "step that was cancelled for a task": (
        (
            "srun: error: n1: task 7: Aborted\nslurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT "
            "2026-01-01T00:00 ***\n"
        ),
        "code",
        1,
    ),
    "progress bar before it": ("10%|#  \r99%|###\rRuntimeError: shape is invalid\n", "code", 1),
    "colours": ("\x1b[31mERROR\x1b[0m: \x1b[1mcannot find the geometry\x1b[0m\n", "code", 1),
    "banner of a solver": (
        "%%%%%%%%\n  Error in routine electrons (1):\n  charge is wrong\n%%%%%%%%\n",
        "code",
        3,
    ),
    "prefix of a wrapper": (
        "== CMSSW: Exception Message:\n== CMSSW: No Dictionary for class: 'x'\n",
        "code",
        2,
    ),
    "padded level of xrootd": (
        (
            "[2026-01-02 10:00:00 +0100][Error  ][XRootD    ][  5] [st:1095] Unable to get the "
            "response to request kXR\n"
        ),
        "service",
        1,
    ),
    "licence server": ("License checkout failed.\n", "service", 1),
    "submission that the scheduler lost": (
        "sbatch: error: Batch job submission failed: Unexpected message received\n",
        "service",
        1,
    ),
    "submission that the scheduler refused": (
        "sbatch: error: Batch job submission failed: Requested time limit is invalid\n",
        "code",
        1,
    ),
    "removal at a limit": (
        "Job deleted at request of root@sched1\nMOAB_INFO:  job exceeded wallclock limit\n",
        "resource",
        2,
    ),
    "scientific file": (
        "write.F90 line: 761 NetCDF: HDF error\nforrtl: error (78): process killed (SIGTERM)\n",
        "code",
        1,
    ),
    "utf-16": (
        codecs.BOM_UTF16_LE + "fine\nERROR: no such detector\n".encode("utf-16-le"),
        "code",
        2,
    ),
}


@pytest.mark.parametrize(("text", "verdict", "line"), CASES.values(), ids=CASES.keys())
def test_error_that_no_catalogue_knows(text, verdict, line):
    found = judge(text).verdict
    assert (found.verdict, found.cause.line) == (verdict, line)


RECOVERED = (
    "WARNING: [Errno 110] Connection timed out, retrying in 5 s (attempt 1 of 3)\nattempt 2 "
    "succeeded\n"
    "Error: connect to db.example.org: Connection refused\nwill try again in 2 s\nconnected "
    "to db.example.org\n"
)


@pytest.mark.parametrize(
    "case", [name for name, (_, verdict, _) in CASES.items() if verdict == "code"]
)
def test_recovered_accesses_change_nothing(case):
    text, verdict, line = CASES[case]
    text = (
        text.removeprefix(codecs.BOM_UTF16_LE).replace(b"\0", b"").decode()
        if isinstance(text, bytes)
        else text
    )
    found = judge(RECOVERED + text).verdict
    assert (found.verdict, found.cause.line) == (verdict, line + 5)


@pytest.mark.parametrize(
    "text",
    [
        RECOVERED,
        RECOVERED + "processing event 1\n" * 60,
        "ERROR: cannot read calibration, using the default\n" + "event 1\n" * 60,
        "rms error = 0.01\nerrors: 0\nFailed: 0\nw.py:3: UserWarning: failed to guess the mass\n",
        "ERROR in event 7 skipped\nJob completed successfully\n",
        "trapFpe: Floating point exception trapping enabled (FOAM_SIGFPE).\nChecking geometry\n",
        "Checking faces in error :\n  none\nERROR in cell 1 repaired\n" * 9
        + "meshing\nwriting\nEnd\n",
        "epoch 3, test error 9.3 %\ntion error 9.333\n",
        "/home/a/.bashrc: line 3: s: command not found\n" + "event 1\n" * 130,
        "*** G4Exception : X\n issued by : Y\nfailed\n*** This is just a warning message. ***\n",
    ],
)
def test_good_log_has_no_verdict(text):
    assert judge(text).verdict.verdict == "unknown"


def test_uncaught_error_is_not_sure_and_never_retried():
    verdict = judge("ERROR: it broke\n", JobFacts(state=JobState.FAILED, exit_code=1)).verdict
    assert (verdict.verdict, verdict.confidence, verdict.advice) == ("code", "low", "debug")


@pytest.mark.parametrize(
    "line",
    [
        "job script exit status 3",
        "Command 'reco' returned non-zero exit status 1.",
        "make: *** [all] Error 2",
    ],
)
def test_a_line_that_only_reports_the_failure_decides_nothing(line):
    facts = JobFacts(state=JobState.FAILED, exit_code=3)

    verdict = judge(f"spill table has a hole after spill 17; stop\n{line}\n", facts).verdict

    assert (verdict.verdict, verdict.advice, verdict.cause) == ("unknown", "escalate", None)
    assert verdict.summary == "The log reports the failure but not its cause. Read the log."
    assert any("STEP-FAILED" in reason.text for reason in verdict.reasons)


def test_trace_of_julia_is_one_error_named_by_its_type():
    text = (
        "cp: cannot stat 'a.jld2': No such file or directory\n"
        "ERROR: LoadError: DomainError with -0.98:\nsqrt was called with a negative argument.\n"
        "Stacktrace:\n  [1] error(::String)\n    @ Base ./error.jl:33\nok\n"
    )
    errors = [(hit.line, hit.pattern.id) for hit in judge(text).by_weight()]
    assert (2, "UNCAUGHT-DomainError") in errors
    assert 5 not in [line for line, _ in errors]


def test_evidence_begins_with_what_decided():
    found = judge(
        "Warning: Connection refused, retrying\n" * 9
        + "attempt 2 succeeded\n"
        + CASES["colours"][0]
    )
    assert found.by_weight()[0] == found.verdict.cause


def test_cleaning_keeps_lines_and_peeling_takes_prefixes():
    assert clean(b"a\r\nb\rc\n\x1b[1mE\x1b[0m\x00\n").split(b"\n") == [b"a", b"c", b"E", b""]
    for text in (
        "[2026-01-02T03:04:05.678Z] [rank3]: ERROR: lost",
        "Jan 02 03:04:05 ERROR - lost",
        "12: lost",
        '{"level": "error", "message": "lost"}',
        "worker_1  | lost",
    ):
        assert peel(text).message == "lost", text


@pytest.mark.parametrize(
    "pack", [gzip.compress, zstandard.compress, lzma.compress], ids=["gzip", "zstd", "xz"]
)
def test_compressed_log_is_read_also_a_damaged_one_and_a_bomb(tmp_path, pack, monkeypatch):
    monkeypatch.setattr(compressed, "OUTPUT_BYTES", 3_000_000)
    text = b"fine\n" * 200_000 + b"ERROR: no such detector\n"
    for data, whole in (
        (pack(text), True),
        (pack(os.urandom(999_999))[:-9], False),
        (pack(bytes(9_000_000)), False),
    ):
        path = tmp_path / "log"
        path.write_bytes(data)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            with compressed.opened_text(descriptor) as text_file:
                block = read_log(text_file)
        finally:
            os.close(descriptor)
        assert len(block.data) <= 4_000_000
        assert (block.data == text, block.is_whole) == (whole, True)
    assert judge(text).verdict.cause.line == 200_001


def test_binary_log_says_so():
    reasons = [reason.text for reason in judge(bytes(range(1, 32)) * 99).verdict.reasons]
    assert "Log is binary: it cannot be read as text" in reasons
