"""`/metrics`: who may read it, and that it says what the health page says."""

import os
import re
import time
from dataclasses import dataclass
from datetime import timedelta

import pytest
from celery.signals import task_failure
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from apps.archive.models import ArchivedJob
from apps.core.domain.events import publish
from apps.core.domain.health import Check, beat_heart
from apps.core.models import Delivery, Heartbeat
from apps.core.web import views as readiness_views
from apps.jobs.models import Collection
from apps.portal.web import views
from apps.statusboard.domain.incidents.incidents import open_incident
from tests.factories import clusters
from tests.factories.statusboard import service


@dataclass(frozen=True)
class FailedTask:
    """What Celery names as the sender of a failure."""

    name: str


def read(client, **headers):
    response = client.get("/metrics", headers=headers)
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(response.content.decode())
        for sample in family.samples
    }


@pytest.mark.parametrize("given", ["", "Bearer wrong", "Basic cmlnaHQ=", "right"])
def test_stranger_needs_the_token(client, db, settings, given):
    settings.METRICS_TOKEN = "right"
    response = client.get("/metrics", headers={"Authorization": given})
    assert (response.status_code, response.headers["WWW-Authenticate"]) == (
        401,
        'Bearer realm="metrics"',
    )


def test_no_token_set_opens_to_no_token(client, db, settings):
    settings.METRICS_TOKEN = ""
    for header in ("Bearer ", "Bearer", ""):
        assert client.get("/metrics", headers={"Authorization": header}).status_code == 401


def test_token_or_the_opg_gets_in(client, db, settings, shifter, liaison):
    settings.METRICS_TOKEN = "right"
    assert read(client, Authorization="Bearer right")[("opsportal_check_ok", "database")] == 1
    client.force_login(liaison)
    assert client.get("/metrics").status_code == 403
    client.force_login(shifter)
    assert read(client)[("opsportal_check_ok", "beat")] == 0


def test_it_says_what_the_health_page_says(client, shifter, nova):
    at = timezone.now()
    beat_heart(name="beat", at=at - timedelta(seconds=30))
    detail = {"captured": 12, "waiting": 3, "unreadable_count": 40, "missed": 6}
    detail |= {
        "behind": 7,
        "lag_seconds": 90.5,
        "handed_over": 5,
        "refused": 2,
        "journal_bytes": 4096,
    }
    beat_heart(name='capture alps on a"b\n', at=at, detail=detail)
    Heartbeat.objects.create(name="capture odd on ctl1", at=at, detail=[1])
    open_incident(
        service=service("samweb", at - timedelta(days=1)),
        state="down",
        title="503",
        by=shifter,
        at=at,
    )
    service("castor", at, monitoring="none")
    event = publish(kind="experiment.created", target=nova, by="test", at=at)
    Delivery.objects.all().delete()  # those of subscribers to these kinds of events
    for attempts in (0, 2):
        Delivery.objects.create(
            event=event, subscriber=f"test.{attempts}", due_at=at, attempts=attempts
        )
    cluster = clusters.cluster("alps", "slurm")
    Collection.objects.create(
        cluster=cluster, collected_until=at - timedelta(hours=1), last_error="no answer"
    )
    client.force_login(shifter)
    metrics = read(client)
    states = {
        key[1:] for key, value in metrics.items() if key[0] == "opsportal_service_state" and value
    }
    assert states == {("samweb", "down"), ("castor", "unknown")}
    assert 0 <= metrics[("opsportal_service_state_age_seconds", "samweb")] < 90
    assert [
        metrics[("opsportal_service_open_incidents", slug)] for slug in ("samweb", "castor")
    ] == [
        1,
        0,
    ]
    place = ("alps", 'a"b\n')
    assert {
        name: metrics[(name, *place)] for name, *labels in metrics if tuple(labels) == place
    } == {
        "opsportal_capture_captured_total": 12,
        "opsportal_capture_missed_total": 6,
        "opsportal_capture_waiting": 3,
        "opsportal_capture_unreadable": 40,
        "opsportal_capture_behind": 7,
        "opsportal_capture_lag_seconds": 90.5,
        "opsportal_capture_handed_over_total": 5,
        "opsportal_capture_refused": 2,
        "opsportal_capture_journal_bytes": 4096,
    }
    assert metrics[("opsportal_capture_waiting", "odd", "ctl1")] == 0
    assert 29 < metrics[("opsportal_heartbeat_age_seconds", "beat")] < 90
    assert (
        metrics[("opsportal_deliveries_waiting",)],
        metrics[("opsportal_deliveries_failing",)],
    ) == (
        2,
        1,
    )
    assert metrics[("opsportal_queue_length", "events")] == 2
    assert metrics[("opsportal_queue_failing", "events")] == 1
    assert 0 <= metrics[("opsportal_queue_oldest_seconds", "events")] < 90
    assert metrics[("opsportal_accounting_ok", "alps")] == 0
    assert metrics[("opsportal_accounting_lag_seconds", "alps")] >= 3600
    assert metrics[("opsportal_plugin_problems", "opsportal.archive_sinks")] == 0


def test_failed_responses_and_tasks_are_counted_for_all_processes(client, shifter, monkeypatch):
    def fail(**_):
        raise ValueError("a bug")

    client.force_login(shifter)
    before = read(client)
    monkeypatch.setattr(views, "home_page", fail)
    client.raise_request_exception = False
    assert client.get("/").status_code == 500
    monkeypatch.setattr(readiness_views, "check_readiness", lambda: [Check("queue", False, "away")])
    assert client.get("/readyz").status_code == 503
    for name in ("jobs.collect_all", "jobs.collect_all", "made.up"):
        task_failure.send(sender=FailedTask(name))

    after = read(client)
    added = {
        key: after[key] - before[key]
        for key in after
        if "errors_total" in key[0] or "failures_total" in key[0]
    }
    assert {key: value for key, value in added.items() if value} == {
        ("opsportal_http_errors_total", "500"): 1,
        ("opsportal_task_failures_total", "jobs.collect_all"): 2,
        ("opsportal_task_failures_total", "other"): 1,
    }


def test_size_of_the_database_and_age_of_the_newest_dump(client, shifter, settings, tmp_path):
    client.force_login(shifter)
    settings.BACKUP_DIR = None
    figures = read(client)
    assert figures[("opsportal_database_bytes",)] > 1_000_000
    assert ("opsportal_backup_age_seconds",) not in figures

    settings.BACKUP_DIR = tmp_path
    (tmp_path / "interrupted").touch()
    assert ("opsportal_backup_age_seconds",) not in read(client)
    (tmp_path / "opsportal.dump").write_text("a dump")
    os.utime(tmp_path / "opsportal.dump", (time.time() - 7200,) * 2)
    assert 7100 < read(client)[("opsportal_backup_age_seconds",)] < 7500


def test_no_jobs_are_counted(client, shifter, django_assert_max_num_queries):
    client.force_login(shifter)
    with django_assert_max_num_queries(17) as asked:
        read(client)
    assert not any(
        re.search(ArchivedJob._meta.db_table + "|jobs_job", query["sql"]) for query in asked
    )
