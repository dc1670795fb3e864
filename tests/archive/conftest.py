import io
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection

from apps.archive.domain.capture_hosts import add_token_beside_portal
from apps.archive.domain.search import word_index
from apps.archive.models import ArchivedJob
from tests.factories.archive import START, archive_all

ROOT = Path(__file__).parents[2]
#: With LONG_FAULTS=1, faults come as often and last as long as the issue of the archive asked for.
KILLS, AWAY_SECONDS = (100, 60) if os.environ.get("LONG_FAULTS") else (20, 5)


@pytest.fixture
def spool(tmp_path):
    directory = tmp_path / "spool"
    directory.mkdir()
    return directory


@pytest.fixture
def portal(live_server, tmp_path):
    """Runs `manage.py` and captures with this test's database and its server."""
    url = (
        urlsplit(os.environ["DATABASE_URL"])
        ._replace(path=f"/{connection.settings_dict['NAME']}")
        .geturl()
    )
    return Portal(
        os.environ
        | {"DATABASE_URL": url, "VAR_DIR": str(tmp_path / "var"), "PORTAL_URL": live_server.url}
    )


class Portal:
    """Starts processes of the portal, and runs commands in this process where a process is not
    the subject.
    """

    def __init__(self, environment):
        self.environment = environment
        self._tokens = {}  # the database may be away when capture is started again

    def start(self, *arguments, **environment):
        """Start `manage.py`."""
        return start_process("manage.py", *arguments, env=self.environment | environment)

    def start_capture(self, spool, *arguments, cluster="alps", **environment):
        """Start the program, with a token and nothing of the portal's own settings."""
        if cluster not in self._tokens:
            token = add_token_beside_portal(name="here", cluster=cluster, by="test", at=START)
            self._tokens[cluster] = token
        variables = {
            "ARCHIVE_PORTAL_TOKEN": self._tokens[cluster],
            "CAPTURE_JOURNAL": f"{self.environment['VAR_DIR']}/journal",
            "CAPTURE_PORTAL": self.environment["PORTAL_URL"],
            "MASKING_KEY": settings.MASKING_KEY,
        }
        command = ("-m", "capture", *capture_arguments(spool, *arguments, cluster=cluster))
        return start_process(*command, env=variables | environment)

    def capture_to_intake(self, spool, *arguments, cluster="alps"):
        """Capture what is in the spool, for workers to archive;
        return what capture wrote to its outputs.
        """
        process = self.start_capture(spool, "--once", *arguments, cluster=cluster)
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err.decode()
        return out, err.decode()

    def capture_once(self, spool, *arguments, cluster="alps"):
        """Capture what is in the spool, and archive it;
        return what capture wrote to its outputs.
        """
        outputs = self.capture_to_intake(spool, *arguments, cluster=cluster)
        archive_all()
        return outputs

    @contextmanager
    def capturing(self, spool, *arguments):
        """Capture until the end of the block, and yield the process."""
        with until_killed(self.start_capture(spool, *arguments)) as process:
            yield process

    def archive(self, *arguments):
        """Run `manage.py archive` and return what it writes."""
        output = io.TextIOWrapper(io.BytesIO())
        with redirect_stdout(output):
            call_command("archive", *arguments, stdout=output)
        output.flush()
        return output.buffer.getvalue()

    def listed(self, cluster="alps"):
        return [
            json.loads(line) for line in self.archive("list", "--cluster", cluster).splitlines()
        ]


def capture_arguments(spool, *arguments, cluster="alps"):
    return (
        "--cluster",
        cluster,
        "--scheduler",
        "slurm",
        "--spool",
        str(spool),
        *map(str, arguments),
    )


def start_process(*command, **options):
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


@contextmanager
def until_killed(capture):
    """Wait until this process captures, and kill it at the end of the block."""
    try:
        assert capture.stdout.readline() == b"capturing the jobs of alps\n", capture.stderr.read()
        yield capture
    finally:
        capture.kill()
        capture.communicate()


def archived() -> int:
    """Archive what was handed over, and return how many jobs there are now."""
    archive_all()
    return ArchivedJob.objects.count()


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def index_words(at=START) -> int:
    """Index all there is and return how many jobs."""
    done = 0
    while word_index.jobs_waiting(at_most=1):
        done += word_index.index_batch(at=at)
    return done
