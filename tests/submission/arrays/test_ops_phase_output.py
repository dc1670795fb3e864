"""`ops-phase output` and its twin in Python, as jobs run them, against a running portal."""

import hashlib
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from apps.datasets.models import OutputFile
from tests.submission.arrays.test_job_files import token_of
from tests.submission.arrays.test_output_files import array
from tests.submission.test_keep_up import detector, keep_up

__all__ = ["array", "detector", "keep_up"]  # fixtures

PROGRAM = Path(__file__).parents[3] / "clients/ops-phase/ops-phase"
TOOLS = (
    "awk cat cut date find getconf grep head id ls md5sum mkdir mv rm rmdir sed sh sort tail tr "
    "uname wc"
)
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def away() -> dict[str, str]:
    """Return the environment of a job that cannot reach the portal."""
    return {"OPSPORTAL_URL": "http://127.0.0.1:1"}


@pytest.fixture
def environment(tmp_path, live_server, array) -> dict[str, str]:
    """Return the environment of the job that reads file b."""
    token = token_of(array)
    return {
        "PATH": str(tmp_path / "bin"),
        "TMPDIR": str(tmp_path),
        "SLURM_ARRAY_JOB_ID": array.spool_id,
        "SLURM_ARRAY_TASK_ID": "1",
        "OPSPORTAL_URL": live_server.url,
        "OPSPORTAL_PHASE_TOKEN": token,
    }


@pytest.fixture
def run(tmp_path, environment):
    """Run the program under dash as the script of a job does; return what it prints as errors."""

    def execute(*arguments, tools="curl python3", **more) -> str:
        directory = tmp_path / "bin"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for name in (*TOOLS.split(), *tools.split()):
            target = sys.executable if name == "python3" else shutil.which(name)
            (directory / name).symlink_to(target)
        process = subprocess.run(
            [shutil.which("dash"), PROGRAM, *arguments],
            env=environment | more,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert process.returncode == 0
        return process.stderr

    return execute


def listed() -> dict[str, tuple[int, str]]:
    rows = OutputFile.objects.order_by("name").values_list("name", "size_bytes", "checksum")
    return {name: (size, checksum) for name, size, checksum in rows}


def test_a_file_is_reported_with_two_words(run, tmp_path, array):
    content = bytes(range(256)) * 10_000
    adler32 = f"adler32:{zlib.adler32(content):08x}"
    md5 = f"md5:{hashlib.md5(content, usedforsecurity=False).hexdigest()}"
    expected = {"curl python3": adler32, "wget python3": adler32, "curl": md5}
    for tools, checksum in expected.items():
        (tmp_path / tools).write_bytes(content)
        assert run("output", tools, tools=tools) == ""
        run("flush")  # The first answer of a busy server may be late.
        assert listed()[tools] == (len(content), checksum)
    file = OutputFile.objects.get(name="curl")
    assert (file.number, file.counts, file.by) == (1, False, f"job {array.spool_id}_1")


def test_everything_about_a_file(run, tmp_path):
    name = 'a "quoted\\" name; $(x).root'
    (tmp_path / name).write_bytes(b"")
    (tmp_path / "-n").write_bytes(b"12")
    options = ("--events", "12", "--run", "7", "--parent", "/store/b")
    assert run("output", f"./{name}", *options) == ""
    file = OutputFile.objects.get()
    assert (file.name, file.size_bytes, file.events, file.run) == (name, 0, 12, 7)
    assert (file.checksum, file.parents.get().name) == ("adler32:00000001", "b")
    errors = run("output", name, "./-n", "--events", "3")
    assert "--events is for one file" in errors
    assert sorted(OutputFile.objects.values_list("name", "events")) == [("-n", None), (name, None)]


def test_files_wait_for_the_portal(run, tmp_path, away):
    for name in "xyz":
        (tmp_path / name).write_text(name)
    assert run("output", "x", "y", **away) == ""
    assert run("output", "z", **away) == ""
    assert not OutputFile.objects.exists()
    assert run("flush") == ""
    assert list(listed()) == ["x", "y", "z"]
    assert not list(tmp_path.glob("ops-phase.*/f.*"))


def test_a_refused_file_costs_no_other(run, tmp_path, away):
    for name in "xyz":
        (tmp_path / name).write_text(name)
    run("output", "x", **away)
    run("output", "y", "--parent", "a", **away)
    run("output", "z", **away)
    errors = run("flush")
    assert list(listed()) == ["x", "z"]
    assert errors.count("refused") == 1
    assert 'the portal refused the file (HTTP 400): {"name":"y"' in errors


def test_no_file_and_no_token_fails_a_job(run, tmp_path):
    (tmp_path / "new\nline").write_text("x")
    (tmp_path / " x").write_text("x")
    (tmp_path / "ok").write_text("x")
    errors = run(
        "output", "none", "new\nline", " x", str(tmp_path), "ok", "--events", "many", "--run"
    )
    assert errors.count("it is not reported") == 2
    assert errors.count("a name that cannot be reported") == 2
    assert "--events needs a number: many" in errors
    assert list(listed()) == ["ok"]
    assert "HTTP 401" in run("output", "ok", OPSPORTAL_PHASE_TOKEN="no")
    assert run("output", "ok", OPSPORTAL_PHASE_TOKEN="") == ""
    run("output")
    run("output", "ok", TMPDIR="/proc/none")


def test_a_job_that_starts_again_replaces_its_earlier_files(run, tmp_path, away):
    for name in "wxyz":
        (tmp_path / name).write_text(name)
    run("output", "w")
    run("output", "x", **away)
    again = {"SLURM_RESTART_COUNT": "1"}
    run("output", "y", **again, **away)
    run("output", "z", **again, **away)
    run("flush", **again)
    run("output", "x", **again)
    assert list(listed()) == ["x", "y", "z"]


def test_python_twin(environment, tmp_path, away):
    (tmp_path / "é.root").write_bytes(b"abc")
    script = (
        "import ops_phase, os\n"
        "url = os.environ.pop('OPSPORTAL_URL')\n"
        "ops_phase.output('é.root', events=3, run=7, parents=['/x/b'])\n"
        "ops_phase.output('bad.root', parents=['a'])\n"
        "ops_phase.output('none')\n"
        "os.environ['OPSPORTAL_URL'] = url\n"
    )
    (tmp_path / "bad.root").write_bytes(b"")
    process = subprocess.run(
        [sys.executable, "-c", script],
        env=environment | {"PYTHONPATH": str(PROGRAM.parent), "PYTHONIOENCODING": "ascii"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "output ?.root" in process.stdout
    assert "'none' is not reported" in process.stderr
    assert process.stderr.count("refused the file (HTTP 400)") == 1
    assert listed() == {"é.root": (3, f"adler32:{zlib.adler32(b'abc'):08x}")}
    file = OutputFile.objects.get()
    assert (file.events, file.run, file.parents.get().name) == (3, 7, "b")
