"""The back office: grouped by task, quantities with their units."""

import pytest
from django.contrib.admin import site
from django.urls import reverse

from apps.archive.models import RetentionRule
from apps.clusters.models import Cluster
from apps.core.admin import ReadOnlyAdmin
from apps.core.web.documentation import titles
from opsportal.admin_site import TASKS
from tests.factories import clusters
from tests.pages import text_of

LISTED = {label for labels in TASKS.values() for label in labels}


def test_every_model_that_an_admin_changes_is_among_the_tasks():
    registered = {model._meta.label: admin for model, admin in site._registry.items()}
    editable = {
        label for label, admin in registered.items() if not isinstance(admin, ReadOnlyAdmin)
    }
    actions = {label for label, admin in registered.items() if admin.actions}
    assert editable | actions <= LISTED <= registered.keys()


def test_index_has_tasks_first_and_internal_records_apart(client, admin):
    client.force_login(admin)
    page = client.get("/admin/")
    assert [app["name"] for app in page.context["app_list"]] == list(TASKS)
    assert [app["name"] for app in page.context["available_apps"]] == list(TASKS)
    internal = {
        each["model"]._meta.label for app in page.context["internal"] for each in app["models"]
    }
    assert internal | LISTED == {model._meta.label for model in site._registry}
    assert internal.isdisjoint(LISTED)
    assert text_of(page).count("<details>") == 1
    assert client.get("/admin/jobs/").context["app_list"][0]["name"] == "Jobs"


def test_start_page_leads_to_tasks_and_their_documentation(client, admin):
    client.force_login(admin)
    page = client.get("/admin/")
    tasks = [task for _, tasks in page.context["first_tasks"] for task in tasks]
    assert {task.title for task in tasks} >= {"Add a liaison", "Add a known error"}
    for task in tasks:
        assert client.get(task.url).status_code == 200, task.title
        assert task.document in titles()
    assert client.get("/admin/accounts/membership/add/?role=liaison").text.count("selected") >= 1


@pytest.mark.parametrize(
    ("memory", "wall", "stored"),
    [
        ("4 GiB", "2 h", (4 * 2**30, 7200)),
        ("3.5 GB", "1 h 30 min", (3_500_000_000, 5400)),
        ("", "", (None, None)),
        ("1 TB", "48:00:00", (10**12, 172_800)),
    ],
)
def test_limits_are_written_with_units(client, admin, memory, wall, stored):
    cluster = clusters.cluster()
    client.force_login(admin)
    values = {"name": "alps", "scheduler": "simulated", "options": "{}", "submission": "{}"}
    address = reverse("admin:clusters_cluster_change", args=[cluster.pk])
    sent = client.post(address, {**values, "max_memory_bytes": memory, "max_wall_seconds": wall})
    assert sent.status_code == 302
    cluster.refresh_from_db()
    assert (cluster.max_memory_bytes, cluster.max_wall_seconds) == stored
    again = client.get(address).context["adminform"].form
    sent = client.post(
        address,
        {
            **values,
            **{
                name: again[name].value() or "" for name in ("max_memory_bytes", "max_wall_seconds")
            },
        },
    )
    cluster.refresh_from_db()
    assert (cluster.max_memory_bytes, cluster.max_wall_seconds) == stored


@pytest.mark.parametrize(
    ("memory", "wall", "message"),
    [
        ("4", "2 h", "Enter a size with its unit, such as 4 GB or 3900 MB."),
        ("4 GiB", "7200", "Enter a duration such as 8 h"),
        ("-4 GiB", "", "Enter a size with its unit"),
        ("99999999999 TB", "", "less than or equal to"),
        ("", "9999999 d", "less than or equal to"),
        ("4 parsecs", "", "Enter a size with its unit"),
    ],
)
def test_wrong_limits_are_refused_beside_the_field(client, admin, memory, wall, message):
    cluster = clusters.cluster()
    client.force_login(admin)
    values = {"name": "alps", "scheduler": "simulated", "options": "{}", "submission": "{}"}
    page = client.post(
        reverse("admin:clusters_cluster_change", args=[cluster.pk]),
        {**values, "max_memory_bytes": memory, "max_wall_seconds": wall},
    )
    assert page.status_code == 200
    assert message in str(page.context["errors"])
    assert (memory or wall) in text_of(page)
    assert Cluster.objects.get().max_memory_bytes is None


def test_lists_show_limits_with_units(client, admin, db):
    RetentionRule.objects.create(max_bytes=50 * 10**9)
    client.force_login(admin)
    page = client.get("/admin/archive/retentionrule/")
    assert "50 GB" in text_of(page)
    assert "50000000000" not in text_of(page)
