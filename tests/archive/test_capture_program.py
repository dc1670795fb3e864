"""The program that capture becomes: what is in its processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from capture import kept_plan
from capture.plan import Plan
from capture.watch.base import Watch

from .conftest import ROOT, archived, capture_arguments, until_killed, wait_for
from .spool_writer import write_job

LOADED = """
import sys
import capture.main
from apps.clusters.schedulers.registry import SCHEDULERS
for name in ("slurm", "torque", "htcondor"):
    SCHEDULERS.get(name)
print(*{"django", "celery", "pydantic", "psycopg", "urllib3", "rest_framework"} & sys.modules.keys())
"""


def test_nothing_of_django_is_loaded_to_read_a_spool():
    loaded = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )
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


def test_plan_is_kept_until_what_it_is_made_of_changes(tmp_path):
    secret, directory = tmp_path / "secret", tmp_path / "journal" / "alps"
    secret.write_text("geheim")
    arguments = ["--cluster=alps", "--journal", str(tmp_path / "journal")]
    environment = {"MASKING_KEY_FILE": str(secret), "CAPTURE_WATCH": "auto", "LANG": "C"}
    kept = b"plan", ["/spool"]
    kept_plan.keep(
        kept,
        str(directory),
        arguments=arguments,
        environment=environment,
        names=["MASKING_KEY", "CAPTURE_WATCH"],
    )

    def taken(arguments=arguments, **changes):
        return kept_plan.take(arguments=arguments, environment=environment | changes)

    assert (directory / "plan").stat().st_mode & 0o777 == 0o600
    assert taken() == taken(LANG="de_DE") == kept
    assert (
        taken(CAPTURE_WATCH="polling")
        is taken(MASKING_KEY="x")
        is taken([*arguments, "--once"])
        is None
    )
    secret.write_text("geheimer")
    assert taken() is None
    secret.unlink()
    assert taken() is None
    (directory / "plan").write_bytes(b"")
    assert taken() is None


def test_second_start_does_without_django_and_misses_nothing_that_came_while_it_began(
    portal, spool
):
    write_job(spool, 1)
    command = ("capture", *capture_arguments(spool))
    with until_killed(portal.start(*command)):
        wait_for(lambda: archived() == 1)
    with until_killed(portal.start(*command, DJANGO_SETTINGS_MODULE="nowhere")):
        write_job(spool, 2)
        wait_for(lambda: archived() == 2)
