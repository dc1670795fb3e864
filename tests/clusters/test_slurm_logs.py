"""Where a job writes: as slurmctld says, or worked out from what was submitted."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.schedulers.base import JobRecord, JobState, LogPaths
from apps.clusters.schedulers.slurm.log_paths import fill_in, paths_shown, work_out_paths
from apps.clusters.schedulers.slurm.output_options import (
    OutputPatterns,
    output_of_command,
    output_of_script,
)
from apps.clusters.schedulers.slurm.scheduler import Slurm

SAMPLES = Path(__file__).parents[2].parent / "shared" / "samples" / "slurm" / "scontrol"
NOW = datetime(2026, 11, 20, 22, 41, 4, tzinfo=UTC)
SHOWN = """\
JobId=81 JobName=reco-ok
   UserId=alice(20001) GroupId=alice(20001) MCS_label=N/A
   JobState=COMPLETED Reason=None Dependency=(null)
   Requeue=1 Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode=0:0
   SubmitTime={submitted} EligibleTime={submitted}
   Command=/exp/reco.sh
   WorkDir=/exp
   Comment={comment}
   StdErr={stderr}
   StdIn=/dev/null
   StdOut={stdout}
   Power=

"""


def record(job_id: str = "81", raw_id: int = 81, **values: str) -> JobRecord:
    return JobRecord(
        **{
            "user": "alice",
            "name": "reco",
            "host": "wn[07-09],gpu1",
            "work_dir": "/exp",
            "submit_line": "sbatch x",
        }
        | values,
        job_id=job_id,
        raw_id=raw_id,
        spool_id=job_id.partition("_")[0],
        attempt=1,
        state=JobState.FAILED,
        exit_code=1,
        signal=0,
        submitted_at=NOW,
        started_at=NOW,
        ended_at=NOW,
    )


def shown(
    stdout: str = "/exp/reco-81.out",
    stderr: str = "/exp/reco-81.err",
    comment: str = "c",
    restarts: int = 0,
) -> str:
    submitted = int(NOW.timestamp())
    return SHOWN.format(
        stdout=stdout, stderr=stderr, comment=comment, restarts=restarts, submitted=submitted
    )


# --- patterns


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("slurm-%j.out", "slurm-81.out"),
        ("%A_%a_%J_%5j_%12j", "81_4294967294_81_00081_0000000081"),
        ("%x-%u-%N-%n-%s-%t", "reco-alice-wn07-0-batch-0"),
        ("100%%-%j%", "100%-81%"),
        ("%q%-%", "%q%-%"),
        ("a\\%j", "a%j"),
        ("a\\\\b%j", "a\\b%j"),
    ],
)
def test_pattern_is_filled_in_as_slurm_does(pattern: str, expected: str) -> None:
    assert fill_in(pattern, record()) == expected


def test_pattern_of_an_array_task_knows_array_and_task() -> None:
    assert fill_in("%A_%a_%4a_%b_%j", record("86_13", 90)) == "86_13_0013_3_90"


def test_value_is_not_filled_in_again() -> None:
    assert fill_in("%x.out", record(name="p%j")) == "p%j.out"


@given(st.text(max_size=30))
def test_any_pattern_gives_a_path(pattern: str) -> None:
    assert isinstance(fill_in(pattern, record()), str)


# --- options of the submission


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sbatch x.sh", OutputPatterns()),
        ("sbatch -o a x.sh", OutputPatterns("a", "")),
        ("sbatch -oa -eb x.sh", OutputPatterns("a", "b")),
        ("sbatch -Ho a x.sh", OutputPatterns("a", "")),
        ("sbatch --output=a=1 --error b x.sh", OutputPatterns("a=1", "b")),
        ("sbatch --out a --err=b x.sh", OutputPatterns("a", "b")),
        ("sbatch -o a --output=b x.sh", OutputPatterns("b", "")),
        ("sbatch x.sh -o a", OutputPatterns()),
        ("sbatch -J name -o a x.sh", OutputPatterns("a", "")),
        ("sbatch --job-name -o -o a x.sh", OutputPatterns("a", "")),
        ("sbatch --parsable --hold --exclusive -o a x.sh", OutputPatterns("a", "")),
        ("sbatch -o a --wrap=echo hi; tar -o b", OutputPatterns("a", "")),
        ("sbatch -o a : -o b x.sh", OutputPatterns("a", "")),
        ("sbatch -o", OutputPatterns()),
        ("", OutputPatterns()),
    ],
)
def test_options_of_the_command_are_read_up_to_the_script(
    line: str, expected: OutputPatterns
) -> None:
    assert output_of_command(line) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["#SBATCH -o a", "#SBATCH --error=b"], OutputPatterns("a", "b")),
        (["#SBATCH -o a", "#SBATCH -o b"], OutputPatterns("b", "")),
        (["#SBATCH -o 'with space' -e \"and # too\""], OutputPatterns("with space", "and # too")),
        (["#SBATCH -o a#1 # -e comment"], OutputPatterns("a#1", "")),
        (["# SBATCH -o a", " #SBATCH -o b", "##SBATCH -o c"], OutputPatterns()),
        (["", "# text", "#SBATCH -o a", "true", "#SBATCH -o b"], OutputPatterns("a", "")),
        (["#SBATCH -o a", "#SBATCH hetjob", "#SBATCH -o b"], OutputPatterns("a", "")),
        (["#SBATCH -J \xe9", "#SBATCH -o a"], OutputPatterns("a", "")),
    ],
)
def test_options_of_the_script_are_read_up_to_its_first_command(
    lines: list[str], expected: OutputPatterns
) -> None:
    script = "\n".join(["#!/bin/sh", *lines, "echo"]).encode("latin-1")

    assert output_of_script(script) == expected


@given(st.binary(max_size=80), st.text(max_size=80))
def test_any_submission_can_be_read(script: bytes, line: str) -> None:
    output_of_script(b"#!/bin/sh\n#SBATCH " + script)
    output_of_command(line)


@pytest.mark.parametrize(
    ("line", "environment", "script", "expected"),
    [
        ("sbatch x.sh", {}, b"#!/bin/sh\n", "/exp/slurm-81.out"),
        ("sbatch x.sh", {}, b"#!/bin/sh\n#SBATCH -o s\n", "/exp/s"),
        ("sbatch x.sh", {"SBATCH_OUTPUT": "v"}, b"#!/bin/sh\n#SBATCH -o s\n", "/exp/v"),
        ("sbatch -o /log/c x.sh", {"SBATCH_OUTPUT": "v"}, b"#!/bin/sh\n#SBATCH -o s\n", "/log/c"),
    ],
)
def test_first_of_command_environment_and_script_is_heeded(
    line: str, environment: dict[str, str], script: bytes, expected: str
) -> None:
    paths = work_out_paths(record(submit_line=line), script=script, environment=environment)

    assert paths == LogPaths(Path(expected), Path(expected), "derived")


def test_array_task_writes_to_a_file_of_its_own() -> None:
    paths = work_out_paths(
        record("86_3", 90), script=b"#!/bin/sh\n#SBATCH -e e-%a\n", environment={}
    )

    assert paths == LogPaths(Path("/exp/slurm-86_3.out"), Path("/exp/e-3"), "derived")


@pytest.mark.parametrize(
    "values", [{"submit_line": "salloc -n2"}, {"submit_line": "/usr/bin/srun x"}, {"work_dir": ""}]
)
def test_paths_of_a_job_without_a_file_are_unknown(values: dict[str, str]) -> None:
    assert work_out_paths(record(**values), script=b"", environment={}) is None


# --- slurmctld


def test_paths_shown_by_slurmctld_are_taken() -> None:
    assert paths_shown(shown(), record()) == LogPaths(
        Path("/exp/reco-81.out"), Path("/exp/reco-81.err"), "scheduler"
    )


def test_patterns_that_slurmctld_leaves_are_filled_in() -> None:
    paths = paths_shown(shown("/exp/81_%J_%4j_%b", "/exp/81.err"), record())

    assert paths
    assert paths.stdout == Path("/exp/81_81_0081_%b")


def test_line_forged_in_a_comment_is_not_taken() -> None:
    paths = paths_shown(shown(comment="x\n   StdOut=/etc/passwd\n   StdErr=/etc/shadow"), record())

    assert paths == LogPaths(Path("/exp/reco-81.out"), Path("/exp/reco-81.err"), "scheduler")


@pytest.mark.parametrize(
    "text",
    [
        shown().replace("JobId=81", "JobId=82"),
        shown().replace(f"SubmitTime={int(NOW.timestamp())}", "SubmitTime=1"),
        shown(stdout="/exp/a\\81"),
        shown(stdout="(null)"),
        "",
    ],
)
def test_answer_about_another_job_or_without_use_is_not_taken(text: str) -> None:
    assert paths_shown(text, record()) is None


def test_restarted_job_has_another_time_of_submission() -> None:
    text = shown(restarts=1).replace(f"SubmitTime={int(NOW.timestamp())}", "SubmitTime=1")

    assert paths_shown(text, record()) is not None


def make_scontrol(tmp_path: Path, text: str) -> Slurm:
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{text}\n")
    (tmp_path / "scontrol").chmod(0o755)
    return Slurm("c1", {"bin": str(tmp_path)})


def test_job_that_slurmctld_has_forgotten_is_found_in_accounting(tmp_path: Path) -> None:
    slurm = make_scontrol(
        tmp_path, "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
    )

    paths = slurm.log_paths(record(stdout_path="/log/81.out"), script=b"", environment={})

    assert paths == LogPaths(Path("/log/81.out"), Path("/log/81.out"), "accounting")


def test_paths_are_worked_out_while_slurmctld_is_down(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slurm = make_scontrol(tmp_path, "echo 'Unable to contact slurm controller' >&2; exit 1")

    paths = slurm.log_paths(record(), script=b"", environment={})

    assert paths == LogPaths(Path("/exp/slurm-81.out"), Path("/exp/slurm-81.out"), "derived")
    assert "Unable to contact slurm controller" in caplog.text


def test_component_of_a_heterogeneous_job_writes_where_its_first_does(tmp_path: Path) -> None:
    slurm = make_scontrol(tmp_path, "exit 1")

    paths = slurm.log_paths(record("87+1", 88), script=b"", environment={})

    assert paths == LogPaths(Path("/exp/slurm-87.out"), Path("/exp/slurm-87.out"), "derived")


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples of a real Slurm are not here")
def test_job_shown_by_a_real_slurm_is_read() -> None:
    text = (SAMPLES / "show-job-late.txt").read_text().partition("\n\n")[0] + "\n"
    seconds = str(int(NOW.timestamp()))

    paths = paths_shown(text.replace("2026-11-20T22:41:04", seconds), record())

    assert paths == LogPaths(
        Path("/exp/jobs/out/reco-ok-81.out"), Path("/exp/jobs/out/reco-ok-81.out"), "scheduler"
    )
