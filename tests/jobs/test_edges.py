"""The thin edges: the command, the tasks, the admin."""

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse
from django.utils import timezone

from apps.clusters.models import Cluster
from apps.core.tasks import deliver_waiting
from apps.jobs import tasks
from apps.jobs.models import AccountMap, Collection, HourlyTotals, Job
from tests.factories.jobs import bare, record, store


def recent(number, **changes):
    return record(number, ended_at=timezone.now() - timedelta(minutes=30), **changes)


def test_collect_once_makes_the_cluster_and_brings_all_up_to_now(db, planned, capsys):
    ended_at = timezone.now() - timedelta(days=9)
    planned.records = [bare(1, submitted_at=ended_at - timedelta(hours=1)), recent(2)]
    since = (timezone.now() - timedelta(days=10)).isoformat()
    call_command("collect", cluster="alps", scheduler="planned", since=since, once=True)
    assert Cluster.objects.get().scheduler == "planned"
    assert sorted(Job.objects.values_list("job_id", flat=True)) == ["1", "2"]
    assert HourlyTotals.objects.count() == 2
    assert capsys.readouterr().out.splitlines() == ["1 new, 0 corrected", "1 new, 0 corrected"]


def test_collect_of_an_unknown_cluster_says_what_to_do(db):
    with pytest.raises(CommandError, match="--scheduler"):
        call_command("collect", cluster="nosuch", once=True)


@pytest.mark.parametrize("since", ["yesterday", "2026-13-01T00:00Z"])
def test_collect_since_no_time_says_so(alps, since):
    with pytest.raises(CommandError, match="Invalid time"):
        call_command("collect", cluster="alps", since=since, once=True)


def test_collect_once_ends_with_an_error_when_the_cluster_cannot_be_asked(alps, planned, capsys):
    planned.records, planned.fault = [recent(1)], RuntimeError("no sacct")
    with pytest.raises(SystemExit) as end:
        call_command("collect", cluster="alps", once=True)
    assert end.value.code == 1
    assert "no sacct" in capsys.readouterr().err


def test_task_collects_each_cluster_that_collects(alps, jura, planned, monkeypatch):
    sent = []
    monkeypatch.setattr(tasks, "enqueue", lambda task, **arguments: sent.append((task, arguments)))
    Cluster.objects.filter(pk=jura.pk).update(collects=False)
    planned.records = [recent(1)]
    tasks.collect_all()
    assert sent == [("jobs.collect_cluster", {"cluster_id": alps.pk})]
    tasks.collect_cluster(cluster_id=alps.pk)
    tasks.collect_cluster(cluster_id=jura.pk)
    tasks.collect_cluster(cluster_id=0)
    assert list(Collection.objects.values_list("cluster__name", flat=True)) == ["alps"]
    tasks.recompute_totals()
    assert HourlyTotals.objects.get().jobs == 1


@pytest.mark.parametrize("model", ["job", "collection", "hourlytotals", "accountmap"])
def test_admin_lists_and_never_changes_what_is_counted(alps, nova, admin, client, model):
    store(alps, record(1))
    tasks.recompute_totals()
    client.force_login(admin)
    assert client.get(reverse(f"admin:jobs_{model}_changelist")).status_code == 200
    adds = client.get(reverse(f"admin:jobs_{model}_add")).status_code
    assert adds == (200 if model == "accountmap" else 403)


def test_admin_maps_an_account(alps, nova, admin, client):
    (job,) = store(alps, record(1, account="pool"))
    client.force_login(admin)
    client.post(
        reverse("admin:jobs_accountmap_add"),
        {"account": "pool", "kind": "account", "experiment": nova.pk, "cluster": ""},
    )
    deliver_waiting()
    job.refresh_from_db()
    assert (AccountMap.objects.get().experiment, job.experiment) == (nova, nova)
