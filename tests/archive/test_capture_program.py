"""The program that capture becomes: what is in its processes, and which of them share one."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from apps.archive.capture.delivery.isolation import Nursery
from apps.archive.capture.delivery.opener import LaterSink
from apps.archive.capture.plan import Plan, PlannedSink
from apps.archive.capture.watch.base import Watch
from apps.archive.sinks.base import SinkUnavailable
from apps.core.domain.masking import Rule
from tests.factories.archive import captured_job

from .conftest import ROOT, wait_for

LOADED = """
import sys
import apps.archive.capture.main
from apps.clusters.schedulers.registry import SCHEDULERS
for name in ("slurm", "torque", "htcondor"):
    SCHEDULERS.get(name)
print(*{"django", "celery", "pydantic", "psycopg", "urllib3", "rest_framework"} & sys.modules.keys())
"""


class Telling:
    """A sink, and a place, that tells its process; it dies of job 2, and is away for the cluster `away`."""

    name = "telling"

    def write(self, jobs):
        if jobs[0].job_id == "2":
            os.kill(os.getpid(), signal.SIGKILL)
        return {0: str(os.getpid())}

    def masking_rules(self):
        return [str(os.getpid()), Rule("name", "PIN")]

    def report(self, cluster, detail):
        if cluster == "away":
            raise OSError("no answer")

    def close(self):
        pass


def process_of(place):
    return place.masking_rules()[0]


def test_nothing_of_django_is_loaded_to_read_a_spool():
    loaded = subprocess.run([sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True)
    assert loaded.stdout == "\n"


def test_place_shares_the_process_of_the_sink_it_is_beside():
    with closing(Nursery([Telling(), Telling()], [(Telling(), 1), (Telling(), None)])) as nursery:
        first, second = (sink.write([captured_job(1)])[0] for sink in nursery.sinks)
        beside, alone = nursery.places
        assert process_of(beside) == second
        assert len({first, second, process_of(alone)}) == 3
        assert process_of(alone) == process_of(alone)

        with pytest.raises(SinkUnavailable, match="its process died"):
            nursery.sinks[1].write([captured_job(2)])
        with pytest.raises(SinkUnavailable, match="its process died"):
            process_of(beside)
        assert process_of(beside) == nursery.sinks[1].write([captured_job(1)])[0] != second

        for each in (*nursery.sinks, *nursery.places):
            each.close()


def test_sink_and_place_come_and_go_in_one_process():
    with closing(Nursery([Telling()], [(Telling(), 0)])) as nursery:
        (sink,), (place,) = nursery.sinks, nursery.places
        process = process_of(place)
        for _ in range(20):
            assert sink.write([captured_job(1)]) == {0: process}
            sink.close()
        place.close()
        wait_for(lambda: not Path(f"/proc/{process}").exists())
        assert process_of(place) != process
        place.close()


def test_place_that_is_away_says_so_and_is_asked_again():
    with closing(Nursery([], [(Telling(), None)])) as nursery:
        (place,) = nursery.places
        with pytest.raises(SinkUnavailable, match="no answer"):
            place.report("away", {})
        place.report("alps", {})
        assert place.masking_rules()[1] == Rule("name", "PIN")
        place.close()


def test_sink_that_cannot_be_opened_is_away_and_refuses_nothing():
    sink = LaterSink(PlannedSink(name="none", url="nonsense:", uses_models=False), {})
    with pytest.raises(SinkUnavailable, match="it cannot be opened: no plugin"):
        sink.write([captured_job(1)])
    sink.close()


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
        sinks=(PlannedSink("store", "store:", uses_models=True),),
        places=(),
        settings={"SECRET_KEY": "for this test alone: fifty characters and more, none secret"},
        log_format="%(message)s",
        log_levels={"": "INFO"},
    )
    descriptor = plan.keep()
    assert os.get_inheritable(descriptor)
    assert str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith("/memfd:")
    assert Plan.take(descriptor) == plan
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)
