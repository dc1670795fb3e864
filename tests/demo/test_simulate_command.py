"""`manage.py simulate` as a process: it lives on, stops at once when asked,
and goes on where it stopped.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from apps.clusters.schedulers.simulated import open_accounting

ROOT = Path(__file__).parents[2]
DEMO = os.environ | {"DEMO": "true"}  # which installs the command

pytestmark = pytest.mark.slow


def command(directory: Path, *more: str) -> list[str]:
    options = [
        "--cluster",
        "sim",
        "--spool",
        str(directory / "spool"),
        "--dir",
        str(directory),
        "--days",
        "0.2",
    ]
    return [sys.executable, "manage.py", "simulate", *options, *more]


def ended(directory: Path) -> int:
    store = open_accounting(directory)
    try:
        return int(store.execute("SELECT count(*) FROM attempt").fetchone()[0])
    finally:
        store.close()


def test_once_writes_the_history_and_ends(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path, "--once"), cwd=ROOT, env=DEMO, check=True, capture_output=True, text=True
    )
    assert re.match(r"sim: [45]\.\d h written in ", done.stdout)
    assert done.stderr == ""
    assert ended(tmp_path) > 50


@pytest.mark.slow
def test_live_jobs_end_until_sigterm_stops_it(tmp_path: Path) -> None:
    often = ["--days", "0.05", "--jobs-per-day", "20000"]  # a job ends every four seconds
    with subprocess.Popen(
        command(tmp_path, *often), cwd=ROOT, env=DEMO, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert "written" in process.stdout.readline()
        before = ended(tmp_path)
        until = time.monotonic() + 120
        while ended(tmp_path) == before and time.monotonic() < until:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        status = process.wait(timeout=120)

    assert status == 0
    assert ended(tmp_path) > before
