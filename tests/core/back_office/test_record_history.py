"""The history of a record in the back office: who changed what, from which value to which."""

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Experiment
from apps.archive.models import CaptureHost
from apps.clusters.models import Cluster
from apps.core.admin.record_history import FEW_OF_THE_PORTAL
from apps.core.domain.events import publish
from apps.hosts.models import Probe
from tests.factories import clusters, people
from tests.pages import text_of

ALL_CHANGES = "/admin/admin/logentry/all/"
CLUSTER = {"name": "alps", "scheduler": "simulated", "options": "{}", "submission": "{}"}


@pytest.fixture
def office(client, admin):
    client.force_login(admin)
    return client


def change_of(row) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def history_of(office, row):
    page = office.get(change_of(row).replace("change/", "history/"))
    return page.context["history"].entries, text_of(page)


def test_changed_limit_is_shown_with_both_values(office, admin):
    cluster = clusters.cluster()
    office.post(change_of(cluster), {**CLUSTER, "max_memory_bytes": "4 GB"})
    office.post(change_of(cluster), {**CLUSTER, "max_memory_bytes": "8 GB", "collects": "on"})

    entries, page = history_of(office, cluster)

    newest = {change.field: (change.old, change.new) for change in entries[0].changes}
    assert newest["Memory limit of a job"] == ("4 GB", "8 GB")
    assert entries[0].by == admin.username
    assert 'class="old">4 GB</span> → <span class="new">8 GB' in page
    assert "Times in UTC." in page


def test_option_is_shown_by_its_key_and_secrets_are_not(office):
    cluster = clusters.cluster()
    options = '{"jobs": 5, "api_token": "hush-1", "url": "https://ops:hush-2@alps.example.org"}'
    office.post(change_of(cluster), {**CLUSTER, "options": options})

    entries, page = history_of(office, cluster)

    changes = {change.field: (change.old, change.new) for change in entries[0].changes}
    assert changes["Options: jobs"] == ("–", "5")
    assert changes["Options: api_token"] == ("(hidden)", "(hidden)")
    assert "hush" not in page
    assert "hush" not in LogEntry.objects.get().change_message


def test_change_and_its_event_are_one_entry(office, admin, nova):
    office.post(change_of(nova), {"key": "NOVA", "name": "NOvA far"})

    [entry], page = history_of(office, nova)

    assert entry.what == "Changed the experiment"
    assert [(change.old, change.new) for change in entry.changes] == [("NOvA", "NOvA far")]
    assert f'href="{change_of(nova)}"' in page
    assert Experiment.objects.get(pk=nova.pk).name == "NOvA far"


def test_events_of_others_have_entries_of_their_own(office, admin, at):
    user = people.person("ana")
    where = {"experiment": "NOVA"}
    publish(
        kind="membership.granted",
        target=user,
        by="single sign-on",
        at=at,
        new="liaison",
        reason="In the group nova-production.",
        data=where,
    )

    [entry], page = history_of(office, user)

    assert (entry.by, entry.what) == ("single sign-on", "Granted the role liaison for NOVA")
    assert entry.changes == []  # the sentence has the role
    assert "Reason: In the group nova-production." in page


def test_changes_in_the_back_office_and_on_pages_are_one_list(office, admin, nova):
    office.post(change_of(nova), {"key": "NOVA", "name": "NOvA far"})
    ana = people.person("ana")
    where = {"experiment": "NOVA"}
    an_hour_ago = timezone.now() - timedelta(hours=1)
    role = {"kind": "membership.granted", "target": ana, "new": "liaison", "data": where}
    publish(by=admin, at=an_hour_ago, **role)
    publish(by="single sign-on", at=an_hour_ago, **role)  # no person

    page = office.get(ALL_CHANGES)

    changes = page.context["page"]["changes"]
    assert [(change.entry.by, change.entry.what, change.url) for change in changes] == [
        (admin.username, "Changed the experiment", change_of(nova)),
        (admin.username, "Granted the role liaison for NOVA", change_of(ana)),
    ]
    assert '<span class="old">NOvA</span> → <span class="new">NOvA far' in text_of(page)
    assert "No changes match “ghost”" in text_of(office.get(f"{ALL_CHANGES}?q=ghost&before=x"))
    ana.delete()
    [change] = office.get(f"{ALL_CHANGES}?q=ana").context["page"]["changes"]
    assert (change.record, change.url) == ("ana", "")


def test_row_of_a_table_on_the_page_is_shown_with_both_values(office):
    user = people.person("ana")
    login = user.cluster_logins.create(login="ana")
    data = {
        "username": "ana",
        "is_active": "on",
        "cluster_logins-TOTAL_FORMS": 1,
        "cluster_logins-INITIAL_FORMS": 1,
        "cluster_logins-0-id": login.pk,
        "cluster_logins-0-user": user.pk,
        "cluster_logins-0-login": "ana2",
    }
    assert office.post(change_of(user), data).status_code == 302

    entries, _ = history_of(office, user)

    assert [(c.field, c.old, c.new) for c in entries[0].changes] == [("Login", "ana", "ana2")]


def test_changed_lines_of_a_text_are_shown(office, db):
    probe = Probe.objects.create(name="read", script="#!/bin/sh\ntrue\n")
    fields = {"name": "read", "script": "#!/bin/sh\ncat /dev/null\n", "timeout_seconds": "20 s"}
    assert office.post(change_of(probe), fields).status_code == 302

    entries, _ = history_of(office, probe)

    [change] = [change for change in entries[0].changes if change.lines]
    assert change.lines == ["-true", "+cat /dev/null"]


def test_first_values_are_shown_and_empty_fields_and_secrets_are_not(office):
    options = '{"jobs": 5, "api_token": "hush-1"}'
    added = {**CLUSTER, "options": options, "collects": "on", "max_memory_bytes": "4 GB"}
    assert office.post("/admin/clusters/cluster/add/", added).status_code == 302

    [entry], page = history_of(office, Cluster.objects.get())

    values = {change.field: change.new for change in entry.changes}
    assert values["Name"] == "alps"
    assert (values["Options: jobs"], values["Options: api_token"]) == ("5", "(hidden)")
    assert (values["Collects jobs"], values["Memory limit of a job"]) == ("yes", "4 GB")
    assert values.keys().isdisjoint({"Site", "Service", "Time limit of a job"})
    assert '<b>Name</b> <span class="new">alps</span>' in page
    assert "hush" not in page + LogEntry.objects.get().change_message


def test_added_row_of_a_table_is_shown_with_its_values(office):
    user = people.person("ana")
    data = {
        "username": "ana",
        "cluster_logins-TOTAL_FORMS": 1,
        "cluster_logins-INITIAL_FORMS": 0,
        "cluster_logins-0-user": user.pk,
        "cluster_logins-0-login": "ana2",
    }
    assert office.post(change_of(user), data).status_code == 302
    entries, _ = history_of(office, user)
    assert [(c.field, c.old, c.new) for c in entries[0].changes] == [("Login", "", "ana2")]


def test_what_the_portal_did_is_shown_on_demand(office, admin, at):
    cluster = clusters.cluster()
    office.post(change_of(cluster), {**CLUSTER, "max_memory_bytes": "4 GB"})
    for _ in range(FEW_OF_THE_PORTAL + 1):
        publish(kind="jobs.collected", target=cluster, by="collector", at=at)

    entries, page = history_of(office, cluster)
    assert [entry.by for entry in entries] == [admin.username]
    assert "11 entries that the portal made itself" in page

    everything = office.get(change_of(cluster).replace("change/", "history/?portal=yes"))
    by = [entry.by for entry in everything.context["history"].entries]
    assert by.count("collector") == FEW_OF_THE_PORTAL + 1
    assert admin.username in by


def test_token_of_a_capture_host_is_one_entry(office):
    host = CaptureHost.objects.create(name="sched", clusters=["alps"])
    values = {"action": "new_token", "_selected_action": [host.pk]}
    office.post("/admin/archive/capturehost/", values)
    entries, page = history_of(office, host)
    assert len(entries) == 1
    assert "Added a token" in page
