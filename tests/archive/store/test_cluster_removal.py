"""A cluster that a mistyped name has made goes with all that is its own;
the totals are as if it had never been.
"""

import threading
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from apps.archive.domain import retention
from apps.archive.domain.cluster_removal import remove_cluster
from apps.archive.domain.retention import pin_job
from apps.archive.models import ArchivedJob, Blob
from apps.clusters.models import Cluster
from apps.core.domain.health import beat_capture
from apps.core.domain.locks import exclusive_lock
from apps.core.domain.outbox import deliver
from apps.core.errors import InvalidTransition
from apps.core.models import Delivery, Event
from apps.jobs.domain.collection.accounting import _COLLECTOR_LOCK
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.enums import Counted
from apps.jobs.models import AccountMap, DirtyHour, HourlyEnds, HourlyTotals, Job
from apps.production.models import StageHistory
from apps.progress.domain.stage_history import count_request
from apps.submission.models import Assignment
from tests.factories import archive, clusters, jobs
from tests.factories.archive import START, captured_job
from tests.factories.requests import request_in, stage

pytestmark = pytest.mark.django_db


@pytest.fixture
def wrong(nova, liaison, approver, admin):
    """Clusters alps and alsp with the same two jobs; one is of a request,
    and one script is the same for both.
    """
    request = request_in(
        "queued",
        by=liaison,
        experiment=nova,
        approver=approver,
        stages=(stage("generation", jobs=2),),
    )
    for name in ("alps", "alsp"):
        cluster = clusters.cluster(name)
        jobs.ran(cluster, request.key, "generation", jobs.record(1))
        jobs.store(cluster, jobs.record(2, account="guest"))
        archive.store(
            captured_job(1, cluster=name), captured_job(2, cluster=name, script=name.encode())
        )
    recompute_dirty_hours(at=START)
    count_request(request=request)
    AccountMap.objects.create(cluster=cluster, account="pool", experiment=nova)
    pin_job(
        job=ArchivedJob.objects.filter(cluster=cluster).first(), by=admin, reason="why", at=START
    )
    return cluster


def call(*arguments):
    printed = StringIO()
    call_command("cluster", *arguments, stdout=printed)
    return printed.getvalue()


def figures():
    return [
        list(model.objects.order_by("pk").values())
        for model in (Cluster, Job, ArchivedJob, HourlyTotals, AccountMap)
    ]


def test_dry_run_counts_and_changes_nothing(wrong):
    before = figures()
    printed = call("remove", "alsp", "--dry-run")
    assert printed.startswith("would delete cluster alsp with\n")
    for line in ("2 jobs", "2 archived jobs", "1 account maps", "2 hourly totals", "1 pins"):
        assert f" {line}\n" in printed
    assert "to recount: NOVA-0001\n" in printed
    assert figures() == before


def test_cluster_goes_and_the_other_is_counted_as_before(wrong, monkeypatch):
    monkeypatch.setattr("apps.jobs.domain.collection.accounting.CHUNK", 1)
    monkeypatch.setattr(retention, "BATCH", 1)
    printed = call("remove", "alsp")
    assert printed.startswith("deleted cluster alsp with\n")
    assert {
        row.cluster.name
        for model in (Job, ArchivedJob, HourlyTotals, HourlyEnds)
        for row in model.objects.all()
    } == {"alps"}
    assert sum(HourlyTotals.objects.values_list("jobs", flat=True)) == Job.objects.count() == 2
    assert not DirtyHour.objects.filter(counts=Counted.JOBS).exists()
    assert not Blob.objects.filter(
        jobs_by_script=None, jobs_by_environment=None, jobs_by_description=None
    ).exists()
    call_command("archive", "verify")
    event = Event.objects.get(kind="cluster.removed")
    assert (event.target_label, event.data["rows"]["jobs"], event.data["requests"]) == (
        "alsp",
        2,
        ["NOVA-0001"],
    )
    assert StageHistory.objects.get().attempts == 2
    for delivery in Delivery.objects.filter(delivered_at=None):
        # Events about jobs of the cluster are delivered too.
        assert deliver(delivery_id=delivery.pk, at=START)
    assert StageHistory.objects.get().attempts == 1


def test_removal_goes_on_after_a_kill(wrong, monkeypatch):
    monkeypatch.setattr("apps.archive.domain.cluster_removal.delete_batch", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        remove_cluster(cluster=wrong, by="test", at=START)
    wrong.refresh_from_db()
    assert not wrong.collects
    monkeypatch.undo()
    call("remove", "alsp")
    assert list(Cluster.objects.values_list("name", flat=True)) == ["alps"]


def test_cluster_that_capture_would_create_again_stays(wrong):
    now = timezone.now()
    beat_capture(cluster="alsp", host="ctl1", at=now, detail={})
    for arguments in (("remove", "alsp"), ("remove", "alsp", "--dry-run")):
        with pytest.raises(
            CommandError, match="capture alsp on ctl1 is running and would create the cluster again"
        ):
            call(*arguments)
    beat_capture(cluster="alsp", host="ctl1", at=now - timedelta(minutes=5), detail={})
    call("remove", "alsp")


def test_cluster_that_requests_use_stays(wrong):
    request = Job.objects.filter(cluster=wrong).exclude(request=None).get().request
    Assignment.objects.create(request=request, cluster=wrong, assigned_at=START, assigned_by="test")
    with pytest.raises(
        CommandError, match="alsp: the portal's assignments of requests refer to it"
    ):
        call("remove", "alsp")
    assert Job.objects.filter(cluster=wrong).count() == 2


@pytest.mark.django_db(transaction=True)
def test_cluster_that_is_being_collected_stays(wrong):
    answers = []

    def remove():
        try:
            remove_cluster(cluster=wrong, by="test", at=START)
        except InvalidTransition as error:
            answers.append(str(error))
        connection.close()

    with exclusive_lock(_COLLECTOR_LOCK, wrong.pk):
        thread = threading.Thread(target=remove)
        thread.start()
        thread.join(timeout=20)
    assert answers == ["alsp is being collected now. Retry in a moment."]


def test_unknown_cluster_is_named(db):
    with pytest.raises(CommandError, match="Cluster nowhere not found"):
        call("remove", "nowhere")
