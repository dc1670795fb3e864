"""The history of a record in the back office: who changed what, from which value to which."""

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from apps.accounts.models import Experiment
from apps.core.domain.events import publish
from apps.hosts.models import Probe
from tests.factories import clusters, people
from tests.pages import text_of

CLUSTER = {"name": "alps", "scheduler": "simulated", "options": "{}", "submission": "{}"}


@pytest.fixture
def office(client, admin):
    client.force_login(admin)
    return client


def change_of(row) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def history_of(office, row):
    page = office.get(change_of(row).replace("change/", "history/"))
    return page.context["entries"], text_of(page)


def test_changed_limit_is_shown_with_both_values(office, admin):
    cluster = clusters.cluster()
    office.post(change_of(cluster), {**CLUSTER, "max_memory_bytes": "4 GB"})
    office.post(change_of(cluster), {**CLUSTER, "max_memory_bytes": "8 GB", "collects": "on"})

    entries, page = history_of(office, cluster)

    newest = {change.field: (change.old, change.new) for change in entries[0].changes}
    assert newest["Max memory size"] == ("4 GB", "8 GB")
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

    assert (entry.by, entry.what) == ("single sign-on", "Granted a role for NOVA")
    assert [(change.old, change.new) for change in entry.changes] == [("–", "liaison")]
    assert "Reason: In the group nova-production." in page


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
