"""The program that capture becomes: what is in its processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from apps.archive.capture.plan import Plan
from apps.archive.capture.watch.base import Watch

from .conftest import ROOT

LOADED = """
import sys
import apps.archive.capture.main
from apps.clusters.schedulers.registry import SCHEDULERS
for name in ("slurm", "torque", "htcondor"):
    SCHEDULERS.get(name)
print(*{"django", "celery", "pydantic", "psycopg", "urllib3", "rest_framework"} & sys.modules.keys())
"""


def test_nothing_of_django_is_loaded_to_read_a_spool():
    loaded = subprocess.run([sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True)
    assert loaded.stdout == "\n"


def test_plan_goes_through_memory_alone(tmp_path):
    plan = Plan(
        cluster="alps",
        scheduler="slurm",
        spool=tmp_path,
        directory=tmp_path / "journal",
        once=True,
        patience_seconds=1.5,
        rescan_seconds=10,
        watch=Watch.AUTO,
        mask_names="TOKEN",
        masking_key=b"key",
        portal="https://portal.example.org/",
        token="geheim",
        broker="",
        most_bytes=1000,
        host="scheduler-1",
        sinks=(),
        log_format="%(message)s",
        log_levels={"": "INFO"},
    )
    descriptor = plan.keep()
    assert os.get_inheritable(descriptor)
    assert str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith("/memfd:")
    assert Plan.take(descriptor) == plan
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)
