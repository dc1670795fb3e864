"""Every command of docs/slurm.md and docs/archive.md runs as it is printed there, on a real Slurm.

Captures, workers and the commands of a shell are processes; other commands of `manage.py` run in
this process, since each would take seconds to load Django.
"""

import io
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import redirect_stdout, suppress

import pytest
from django.core.management import execute_from_command_line

from apps.archive.domain.capture_hosts import create_capture_host
from apps.archive.models import ArchivedJob, SinkState
from apps.clusters.domain import ensure_cluster
from apps.clusters.models import Cluster
from dev.processes import free_port
from tests.archive.conftest import ROOT
from tests.factories.archive import START

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(300),
]
#: Starts of what needs a machine of its own: the fixture `slurm` runs bin/slurm-up, tests/deploy
#: the packages.
ELSEWHERE = ("apt-get ", "bin/slurm-up ", "DIR/<cluster>/", "LOG_ROOTS=")
#: What runs without end, and what it says once it works.
ENDLESS = {
    r"manage\.py capture( |$)": "capturing the jobs of ",
    r"\bcelery\b": ".> archive",
    r"\bgunicorn\b": "Listening at",
}
PROGRAM = re.compile(r"(?:\.venv/bin/python )?\bmanage\.py\b")
#: What need not be a process.
COMMAND = re.compile(rf"{PROGRAM.pattern} (?!capture\b)([^|&;]*)$")
OPTIONAL = re.compile(r"\[([^][]*)\]")


def commands_of(page):
    """Return the indented commands, whole even where one goes on in the next line."""
    text = (ROOT / "docs" / page).read_text().replace("\\\n", "")
    lines = re.findall(r"^    (\S.*)$", text, re.MULTILINE)
    return [line for line in lines if not line.startswith(ELSEWHERE)]


def with_options(command):
    """Return the command with all that is optional, of alternatives the first."""
    return OPTIONAL.sub(lambda found: found[1].split("|")[0].strip(), command)


class Shell:
    """Runs commands with what is theirs here in place of the names that the documentation uses."""

    def __init__(self, environment, names):
        self.environment, self.names = environment, names

    def run(self, command):
        """Run a command to its end, or until it says that it does what it does without end;
        return what it says.
        """
        for shown, here in self.names.items():
            command = re.sub(rf"(?<![\w/-]){re.escape(shown)}(?![\w-])", str(here), command)
        if run_here := COMMAND.fullmatch(command):
            return call_here(shlex.split(run_here[1]))
        command = PROGRAM.sub(f"{sys.executable} {ROOT}/manage.py", command.removesuffix(" &"))
        if command.startswith("export "):
            self.environment |= dict(word.split("=", 1) for word in shlex.split(command)[1:])
            self.environment.pop("SECRET_KEY", None)
            return ""
        process = subprocess.Popen(
            ["bash", "-e", "-c", command],
            env=self.environment,
            cwd=ROOT,
            text=True,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        sign = next((sign for name, sign in ENDLESS.items() if re.search(name, command)), None)
        sign = None if "--once" in command else sign
        said = ""
        try:
            while (not sign or sign not in said) and (line := process.stdout.readline()):
                said += line
            assert process.poll() is None if sign else process.wait(timeout=60) == 0, (
                command,
                said,
            )
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=60)
        return said


def call_here(arguments):
    """Run a command of `manage.py` in this process, and return what it prints."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(output):
        execute_from_command_line(["manage.py", *arguments])
        output.flush()
    return output.buffer.getvalue().decode()


@pytest.fixture
def job(slurm, portal):
    """A finished job in the archive of cluster `test`."""
    job_id = slurm.submit("#!/bin/sh\necho hello\n")
    portal.capture_once(slurm.state_dir, cluster=slurm.cluster)
    slurm.wait_ended([job_id])
    assert ArchivedJob.objects.filter(job_id=job_id).exists()
    return ArchivedJob.objects.get(job_id=job_id)


@pytest.fixture
def shell(slurm, portal, job, tmp_path, settings):
    settings.VAR_DIR = tmp_path / "var"
    Cluster.objects.update(options={"conf": str(slurm.conf)})
    ensure_cluster(name="alsp", scheduler="slurm", by=None, at=START)
    environment = (
        portal.environment
        | slurm.environment
        | {
            "SBATCH_OUTPUT": "/dev/null",
            "PATH": f"{slurm.environment['PATH']}:{os.environ['PATH']}",
        }
    )
    names = {
        "alps": slurm.cluster,
        # Jobs of earlier tests are not in this archive, and may have left the spool.
        "2026-11-01": job.submitted_at.isoformat(),
        "/var/spool/slurmctld": slurm.state_dir,
        "/var/spool/slurm": slurm.state_dir,
        "/tmp/slurm/state": slurm.state_dir,
        "/tmp/slurm/env": slurm.directory / "env",
        "/var/lib/opsportal/journal": tmp_path / "journal",
    }
    return Shell(environment, names)


def test_commands_of_the_slurm_page(shell, slurm):
    commands = commands_of("slurm.md")
    assert len(commands) >= 12
    said = {command: shell.run(command) for command in commands}
    [shown] = [text for command, text in said.items() if command.startswith("scontrol show config")]
    assert all(
        name in shown for name in ("StateSaveLocation", "MinJobAge", "SlurmUser", "ClusterName")
    )
    assert not Cluster.objects.filter(name="alsp").exists()
    assert "opsportal" in slurm.run("sacctmgr", "-n", "list", "user", "opsportal")


def test_commands_of_the_archive_page(shell, slurm, job, tmp_path, live_server):
    token = tmp_path / "token"
    _, given = create_capture_host(name="elsewhere", clusters=[slurm.cluster], by=None, at=START)
    token.write_text(given)
    shell.environment["ARCHIVE_PORTAL_TOKEN_FILE"] = str(token)
    SinkState.objects.create(name="files:///removed", url="files:///removed")
    shell.names |= {
        "--cluster NAME": f"--cluster {slurm.cluster}",
        "--spool DIR": f"--spool {slurm.state_dir}",
        "--journal DIR": f"--journal {tmp_path / 'another'}",
        "--portal URL": f"--portal {live_server.url} ",
        "--to URL": f"--to files://{tmp_path}/files",
        "--retry NAME": "--retry files:///removed",
        "--drop NAME": "--drop files:///removed",
        "--forget NAME": "--forget files:///removed",
        "JOB": job.job_id,
        "ID": job.job_id,
        "TIME": job.submitted_at.isoformat(),
        "DATE": "2026-11-01",
        "…": "k" * 50,
        "/etc/opsportal/token": token,
        "/etc/opsportal-key": tmp_path / "key",
        "https://opsportal.example.org/": live_server.url,
        "postgresql:///opsportal": shell.environment["DATABASE_URL"],
        "redis://localhost/0": shell.environment["REDIS_URL"],
        "files:///archive": f"files://{tmp_path}/archive",
        ".venv/bin/celery": f"{sys.executable} -m celery",
        ".venv/bin/gunicorn": f"{sys.executable} -m gunicorn",
        "127.0.0.1:8000": f"127.0.0.1:{free_port()}",
    }
    commands = [with_options(command) for command in commands_of("archive.md")]
    assert len(commands) >= 15
    said = {command: shell.run(command) for command in commands}
    assert any(
        "SLURM_SUBMIT_DIR=" in text
        for command, text in said.items()
        if command.startswith("manage.py archive show")
    )
    assert not SinkState.objects.filter(name="files:///removed").exists()
    [script] = (tmp_path / "files" / slurm.cluster).glob(f"*/job.{job.job_id}_script")
    assert script.read_bytes() == b"#!/bin/sh\necho hello\n"
