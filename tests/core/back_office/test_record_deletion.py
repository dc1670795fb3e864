"""Deletions in the back office: what goes with a record, or why it stays and what to do instead."""

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from apps.accounts.models import Membership
from apps.clusters.models import Cluster, Host, Site
from apps.core.admin import deletion
from apps.hosts.models import MeasuredState, Probe
from apps.jobs.models import Collection, HourlyTotals, QueueReading
from apps.production.models import ExperimentShare
from apps.recovery.models import RecoveryRule
from apps.statusboard.enums import Monitoring
from apps.statusboard.models import MonitoringGap, MonitoringSource, Service, StateInterval
from tests.factories import approvals, clusters, people, statusboard
from tests.pages import text_of


@pytest.fixture
def office(client, admin):
    client.force_login(admin)
    return client


def deletion_of(row) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_delete", args=[row.pk])


def test_cluster_in_use_says_by_what_and_what_to_do_instead(office, at, monkeypatch):
    monkeypatch.setattr(deletion, "MOST_COUNTED", 2)
    cluster = clusters.cluster()
    Host.objects.bulk_create(
        Host(cluster=cluster, name=f"wn-{number}", listed_at=at) for number in range(3)
    )
    page = text_of(office.post(deletion_of(cluster), {"post": "yes"}))
    assert "<h1>alps cannot be deleted</h1>" in page
    assert "alps cannot be deleted: it is used by more than 2 hosts. Untick “Collects jobs”" in page
    assert "with all its jobs, by “manage.py cluster remove”" in page
    assert "your account doesn" not in page
    assert Cluster.objects.filter(pk=cluster.pk).exists()


def test_mistyped_cluster_without_jobs_is_deleted_with_its_readings(office, at):
    cluster = clusters.cluster()
    Collection.objects.create(cluster=cluster, collected_until=at, last_error="unknown host")
    QueueReading.objects.create(cluster=cluster, last_error="unknown host")
    page = text_of(office.get(deletion_of(cluster)))
    assert "<h1>Delete the cluster “alps”?</h1>" in page
    assert "<li>1 collection</li>" in page
    assert office.post(deletion_of(cluster), {"post": "yes"}).status_code == 302
    assert not Cluster.objects.exists()
    assert not Collection.objects.exists()


def test_internal_records_are_folded_below_what_people_know(office, at, nova):
    cluster = clusters.cluster()
    Host.objects.create(cluster=cluster, name="wn-1", listed_at=at)
    sums = {"jobs": 1, "wall_seconds": 1, "core_seconds": 1, "cpu_seconds": 1}
    HourlyTotals.objects.create(
        cluster=cluster, experiment=nova, hour=at, state="completed", last_ended_at=at, **sums
    )
    probe = Probe.objects.create(name="read")
    MeasuredState.objects.create(
        cluster=cluster, probe=probe, host="wn-1", good=True, measured_at=at, since=at
    )
    page = text_of(office.get(deletion_of(cluster)))
    assert "used by 1 host and internal records of the portal. Untick" in page
    folded = page.partition("<summary>Internal records</summary>")[2]
    assert folded.count("<li>") == 2


def test_mistaken_service_and_source_are_deleted_with_what_the_portal_noted(office, at):
    source = statusboard.source(at)
    service = statusboard.service("dcahce", at, Monitoring.FEED, source=source, monitored_since=at)
    MonitoringGap.objects.create(source=source, started_at=at)
    assert StateInterval.objects.filter(service=service).exists()
    page = text_of(office.get(deletion_of(source)))
    assert "cannot be deleted: it is used by 1 service. Choose another source" in page
    page = text_of(office.get(deletion_of(service)))
    assert "<h1>Delete the service “dcahce”?</h1>" in page
    assert office.post(deletion_of(service), {"post": "yes"}).status_code == 302
    assert office.post(deletion_of(source), {"post": "yes"}).status_code == 302
    assert not MonitoringSource.objects.exists()
    assert not StateInterval.objects.exists()


def test_service_with_incidents_says_what_to_do_instead(office, at):
    source = statusboard.source(at)
    statusboard.service("dcache", at, Monitoring.FEED, source=source, monitored_since=at)
    statusboard.post(source, at, statusboard.alert(at, service="dcache"))
    page = text_of(office.get(deletion_of(Service.objects.get())))
    assert "it is used by 1 incident. Set its monitoring to “Not monitored” instead" in page
    assert "If it is a duplicate" in page


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("diagnosis/knownerror", "To retire one, untick “Enabled” on its page"),
        ("recovery/recoveryrule", "To retire one, set it to “Off” on its page"),
    ],
)
def test_records_that_are_never_deleted_say_what_to_do_instead(office, path, instead):
    assert instead in text_of(office.get(f"/admin/{path}/"))


def test_record_in_use_says_what_to_do_with_what_cannot_be_deleted(office, nova):
    RecoveryRule.objects.update(experiment=nova)
    page = text_of(office.get(deletion_of(nova)))
    assert (
        "recovery rules</a>: cannot be deleted here. Rules are kept with their decisions." in page
    )


def test_protected_record_says_what_to_do_first(office):
    site = Site.objects.create(name="CERN")
    cluster = clusters.cluster()
    Cluster.objects.filter(pk=cluster.pk).update(site=site)
    page = text_of(office.get(deletion_of(site)))
    assert "CERN cannot be deleted: it is used by 1 cluster. Move its clusters" in page
    of_site = f"/admin/clusters/cluster/?site__exact={site.pk}"
    assert f'<a href="{of_site}">1 cluster</a>: can be deleted first' in page
    assert "alps" in text_of(office.get(of_site))


def test_deletion_says_what_goes_with_the_record(office, nova, at):
    people.person("ana", ("liaison", nova))
    ExperimentShare.objects.create(experiment=nova, weight=3, by="ada", at=at)
    page = text_of(office.get(deletion_of(nova)))
    assert "<h1>Delete the experiment “NOvA”?</h1>" in page
    assert "All of these are deleted, and cannot be restored:" in page
    assert "<li>1 role</li>" in page
    assert office.post(deletion_of(nova), {"post": "yes"}).status_code == 302
    assert not ExperimentShare.objects.exists()
    assert not Membership.objects.filter(role="liaison").exists()


def test_deletion_names_no_rows_that_only_link_records(office, nova):
    rule = approvals.rule(approvals.group("convenors"), experiment=nova)
    page = text_of(office.get(deletion_of(rule)))
    assert f"<h1>Delete the approval rule “{rule}”?</h1>" in page
    assert "Nothing else is deleted with it." in page
    assert "relationship" not in page


def test_unused_record_goes_alone_and_the_log_of_changes_keeps_it(office, admin):
    probe = Probe.objects.create(name="read", script="true")
    assert "Nothing else is deleted with it." in text_of(office.get(deletion_of(probe)))
    office.post(deletion_of(probe), {"post": "yes"})
    assert not Probe.objects.filter(name="read").exists()
    page = text_of(office.get("/admin/admin/logentry/"))
    assert '<a href="/admin/admin/logentry/all/">Who changed what</a>' in page
    assert "Deleted." in page
    assert ">read<" in page
    assert admin.username in page


def test_log_of_changes_shows_values_and_is_read_only(office):
    service = Service.objects.create(slug="samweb", name="SAMWeb")
    fields = {"name": "SAM", "slug": "samweb", "monitoring": "none"}
    address = reverse("admin:statusboard_service_change", args=[service.pk])
    assert office.post(address, fields).status_code == 302
    page = text_of(office.get("/admin/admin/logentry/"))
    assert "<b>Name</b> SAMWeb → SAM" in page
    entry = LogEntry.objects.get()
    assert office.post(f"/admin/admin/logentry/{entry.pk}/delete/").status_code == 403
    assert "SAMWeb → SAM" in text_of(office.get(f"/admin/admin/logentry/{entry.pk}/change/"))
