import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection

from apps.archive.capture.journal.journal import Journal
from apps.archive.capture.watch import polling
from apps.archive.capture.watch.base import Watch
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


@pytest.fixture(params=[Watch.INOTIFY, Watch.POLLING])
def watch(request, monkeypatch):
    """Each source of file events; a poll comes soon."""
    monkeypatch.setattr(polling, "POLL_SECONDS", 0.02)
    return request.param


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journal")
    yield journal
    journal.close()


@pytest.fixture
def portal(transactional_db, tmp_path):
    """Runs `manage.py` with this test's database."""
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    return Portal(os.environ | {"DATABASE_URL": url, "VAR_DIR": str(tmp_path / "var")})


class Portal:
    def __init__(self, environment):
        self.environment = environment

    def start(self, *arguments, **environment):
        return subprocess.Popen(
            [sys.executable, ROOT / "manage.py", *map(str, arguments)],
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments, expected=0, **environment):
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=240)
        assert process.returncode == expected, err.decode()
        if "--once" in arguments:
            archive_all()
        return out, err.decode()

    def capture(self, spool, *arguments, cluster="alps"):
        return ("capture", "--cluster", cluster, "--scheduler", "slurm", "--spool", spool, *arguments)

    @contextmanager
    def capturing(self, spool, *arguments, **environment):
        process = self.start(*self.capture(spool, *arguments), **environment)
        try:
            assert process.stdout.readline() == b"capturing the jobs of alps\n", process.stderr.read()
            yield process
        finally:
            process.kill()
            process.communicate()

    def listed(self, cluster="alps"):
        out, _ = self.run("archive", "list", "--cluster", cluster)
        return [json.loads(line) for line in out.splitlines()]


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
