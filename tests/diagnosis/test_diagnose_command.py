"""`manage.py diagnose`: one JSON object for any log file, clear errors for anything else."""

import io
import json
import os

import pytest
from django.core.management import CommandError, call_command

LOG = "start\n---- FileOpenError BEGIN\n    [FATAL] Auth failed\n"


def run(*arguments: str) -> dict:
    out = io.StringIO()
    call_command("diagnose", *arguments, stdout=out)
    return json.loads(out.getvalue())


@pytest.fixture
def log(tmp_path):
    file = tmp_path / "job.log"
    file.write_text(LOG)
    return str(file)


def test_verdict_is_printed_with_its_evidence(log):
    found = run(
        log, "--scheduler", "slurm", "--state", "FAILED", "--exit-code", "1", "--experiment", "dune"
    )
    assert (found["verdict"], found["advice"], found["category"]) == ("service", "hold", "service")
    first = found["evidence"][0]
    assert {name: first[name] for name in ("line", "offset", "pattern", "role", "text")} == {
        "line": 2,
        "offset": 6,
        "pattern": "ART-FILEOPEN",
        "role": "symptom",
        "text": "---- FileOpenError BEGIN",
    }
    assert found["reasons"][0] == {
        "kind": "catalogue",
        "text": "Known error XRD-AUTH at line 3: cause, service, xrootd",
        "target": "stdout:31",
    }


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        (["--state", "TIMEOUT"], "resource"),
        (["--state", "out_of_memory"], "resource"),
        (["--state", "CANCELLED by 1000"], "user"),
        (["--state", "NODE_FAIL"], "service"),
        (["--state", "FAILED", "--exit-code", "1"], "service"),
    ],
)
def test_state_counts(log, arguments, verdict):
    assert run(log, *arguments)["verdict"] == verdict


def test_signal_may_stand_in_the_exit_code_as_slurm_writes_it(tmp_path):
    file = tmp_path / "empty.log"
    file.touch()
    assert run(str(file), "--state", "FAILED", "--exit-code", "0:11")["verdict"] == "code"
    assert run(str(file), "--state", "FAILED", "--signal", "11")["verdict"] == "code"
    assert run(str(file))["verdict"] == "unknown"


def test_large_log_is_read_to_its_end_with_line_numbers(tmp_path):
    file = tmp_path / "large.log"
    with file.open("wb") as stream:
        stream.truncate(65 * 1024 * 1024)
        stream.seek(0, os.SEEK_END)
        stream.write(b"\n---- BadAlloc BEGIN\n")
    found = run(str(file))
    assert found["evidence"][0]["line"] == 2
    assert found["evidence"][0]["offset"] == 65 * 1024 * 1024 + 1
    assert not any(reason["text"].startswith("Only") for reason in found["reasons"])


@pytest.mark.parametrize("name", ["none.log", "", "fifo", "closed/x"])
def test_file_that_cannot_be_read_is_an_error(tmp_path, name):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(CommandError, match=r"no such file|not a regular file"):
        run(str(tmp_path / name))


@pytest.mark.parametrize(
    "arguments", [["--state", "exploded"], ["--exit-code", "x"], ["--signal", "x"]]
)
def test_argument_that_makes_no_sense_is_an_error(log, arguments):
    with pytest.raises(CommandError):
        run(log, *arguments)
