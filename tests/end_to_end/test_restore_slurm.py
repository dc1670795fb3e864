"""A copy of the database is restored while a real Slurm has jobs that the copy does not know."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from apps.jobs.models import Job
from apps.production.domain.holds import lift_hold
from apps.production.models import Hold, Request
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.models import Assignment, KnownDatabase, Submission, UnknownArray
from apps.submission.tasks import look_after_restore, send_to
from tests.end_to_end.test_submission_slurm import Portal

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(900),
]
JOBS, ARRAY_SIZE = 4, 2


class Copies:
    """A copy of the test's database, and a way to go on with it."""

    def __init__(self) -> None:
        self.original = connection.settings_dict["NAME"]
        self.copy = f"{self.original}_copy"

    def make(self) -> None:
        self._run(f'CREATE DATABASE "{self.copy}" TEMPLATE "{self.original}"')

    def restore(self) -> None:
        self._go_on_with(self.copy)

    def remove(self) -> None:
        self._go_on_with(self.original)
        self._run(f'DROP DATABASE IF EXISTS "{self.copy}" WITH (FORCE)')

    def _go_on_with(self, name: str) -> None:
        connection.close()
        connection.settings_dict["NAME"] = name

    def _run(self, statement: str) -> None:
        parameters = connection.get_connection_params()
        connection.close()
        address = {key: parameters[key] for key in ("user", "host", "port") if key in parameters}
        with psycopg.connect(dbname="postgres", autocommit=True, **address) as server:
            # One that is in use cannot be copied, nor removed.
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname IN (%s, %s)",
                [self.original, self.copy],
            )
            server.execute(statement)


@pytest.fixture
def copies() -> Iterator[Copies]:
    copies = Copies()
    yield copies
    copies.remove()


def names_in_slurm(slurm, request_key: str) -> list[str]:
    rows = slurm.run("sacct", "-nPX", "-S", "now-2days", "-o", "JobName%100,JobID").splitlines()
    arrays = {tuple(row.partition("_")[0].split("|")) for row in rows}
    return sorted(name for name, _ in arrays if name.startswith(f"{request_key}."))


def test_nothing_runs_twice_after_a_restore(
    slurm,
    cluster,
    start,
    copies: Copies,
    tmp_path: Path,
    approver,
):
    request = start("#!/bin/bash\n", jobs=JOBS)
    # Slurm knows jobs of other tests, whose requests have the same key.
    Request.objects.update(key="RESTORED-0001")
    request.refresh_from_db()
    cluster.submission |= {"array_size": ARRAY_SIZE}
    cluster.save()
    portal = Portal(cluster, slurm, tmp_path / "journal")
    cluster.submits = False
    cluster.save()
    send_to(cluster_id=cluster.pk)
    cluster.submits = True
    cluster.save()
    assignment = Assignment.objects.get(request=request)
    assert plan_next(assignment=assignment, at=timezone.now()).state == "planned"
    copies.make()

    portal.turn()
    sent = {row.name: row.spool_id for row in Submission.objects.filter(request=request)}
    assert len(sent) == JOBS // ARRAY_SIZE
    assert names_in_slurm(slurm, request.key) == sorted(sent)

    copies.restore()
    known = Submission.objects.get(request=request)
    assert known.state == "planned"
    assert portal.turn() == [known], "it was looked up, and found"
    known.refresh_from_db()
    assert (known.state, known.spool_id) == ("sent", sent[known.name])
    everything = Hold.objects.get()
    assert (everything.stage, everything.experiment) == (None, None)
    assert KnownDatabase.objects.count() == 2

    portal.collect(dict.fromkeys(sent.values(), ARRAY_SIZE))
    look_after_restore()
    unknown = UnknownArray.objects.get()
    assert unknown.spool_id in set(sent.values()) - {known.spool_id}
    stage_hold = Hold.objects.get(stage__request=request)
    assert unknown.spool_id in stage_hold.reason

    lift_hold(hold=everything, by=approver, at=timezone.now())
    assert portal.turn() == []
    assert names_in_slurm(slurm, request.key) == sorted(sent)
    assert Job.objects.filter(spool_id=unknown.spool_id).count() == ARRAY_SIZE

    lift_hold(hold=stage_hold, by=approver, at=timezone.now() + timedelta(seconds=1))
    (again,) = portal.turn()
    assert again.tasks == JOBS - ARRAY_SIZE, "a person said so"
