"""The back office: grouped by task, quantities with their units."""

from html import unescape

import pytest
from django.apps import apps
from django.contrib.admin import autodiscover, site
from django.contrib.admin.utils import flatten_fieldsets
from django.urls import reverse
from django.utils import timezone

from apps.archive.models import RetentionRule
from apps.clusters.models import Cluster
from apps.core.admin import PortalAdmin, ReadOnlyAdmin
from apps.core.domain.events import publish
from apps.core.models import Heartbeat
from apps.core.web.documentation import titles
from apps.core.web.text_fields import with_links
from apps.datasets.models import Catalogue
from apps.jobs.models import Collection
from apps.portal.web.record_links import SEE_ALSO, links_of
from opsportal.admin_site import TASKS
from tests.factories import clusters, people, statusboard
from tests.pages import text_of

autodiscover()
EDITABLE = {
    model._meta.label: admin
    for model, admin in site._registry.items()
    if isinstance(admin, PortalAdmin) and not isinstance(admin, ReadOnlyAdmin)
}
#: Lists that are short everywhere.
FEW_ROWS = {"archive.RetentionRule"}
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
        ("99999999999 TB", "", "Enter a smaller value for “Memory limit of a job”."),
        ("", "9999999 d", "Enter a smaller value for “Time limit of a job”."),
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


def test_lists_show_json_in_words_and_times_as_on_the_pages(client, admin, at):
    detail = {"waiting": 3, "journal_bytes": 15_000_000, "last_error": None, "is_late": False}
    Heartbeat.objects.create(name="capture alps", at=at, detail=detail)
    client.force_login(admin)
    page = text_of(client.get("/admin/core/heartbeat/"))
    for part in ("waiting: 3", "journal: 15 MB", "is late: no"):
        assert part in page
    assert "last error" not in page
    assert "20 Nov 2026 12:00" in page


@pytest.mark.parametrize("label", sorted(EDITABLE))
def test_what_can_be_edited_is_explained(label):
    assert EDITABLE[label].about.endswith(".")
    assert EDITABLE[label].document in titles()


def test_every_list_says_what_its_records_are_for():
    purposes = {}
    for model, model_admin in site._registry.items():
        purposes[model._meta.label] = getattr(model_admin, "purpose", "")
    assert [label for label, purpose in purposes.items() if purpose[-1:] not in (".", ":")] == []
    for model_admin in site._registry.values():
        for place in model_admin.changed_on[1:]:
            assert reverse(place)


@pytest.mark.parametrize("label", sorted(EDITABLE))
def test_lists_of_what_can_be_edited_are_searched_or_filtered(label):
    assert EDITABLE[label].search_fields or EDITABLE[label].list_filter or label in FEW_ROWS


@pytest.mark.parametrize("label", sorted(label for label in EDITABLE if EDITABLE[label].fieldsets))
def test_headings_leave_out_no_field(rf, admin, label):
    request = rf.get("/admin/")
    request.user = admin
    form = EDITABLE[label].get_form(request, fields=None)
    shown = flatten_fieldsets(EDITABLE[label].get_fieldsets(request))
    assert set(shown) >= set(form.base_fields)


def test_form_says_what_it_is_for_and_links_the_documentation(client, admin):
    client.force_login(admin)
    page = text_of(client.get("/admin/clusters/cluster/add/"))
    assert "A batch system whose jobs the portal collects" in page
    assert page.count('href="/help/slurm/"') == 2  # of the page, and of the field “Options”
    assert "Scheduler and accounting" in page


def test_help_text_links_existing_pages_only():
    pages = {"slurm": "Slurm"}
    assert with_links("see docs/slurm.md.", pages) == 'see <a href="/help/slurm/">Slurm</a>.'
    linked = with_links("see docs/slurm.md.", pages)
    assert with_links(linked, pages) == linked
    assert with_links("docs/gone.md, docs/../slurm.md", pages) == ("docs/gone.md, docs/../slurm.md")


def test_limits_of_a_check_link_their_documentation(client, admin):
    client.force_login(admin)
    assert 'in <a href="/help/data-quality/">' in text_of(
        client.get("/admin/quality/thresholds/add/")
    )


def test_back_office_is_refused_with_a_way_home(client, shifter):
    client.force_login(shifter)
    page = text_of(client.get("/admin/", follow=True))
    assert "The back office is for admins. You are logged in as shift-one" in page
    assert "Would you like to" not in page
    assert 'name="password"' not in page
    assert 'href="/"' in page


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (r'"\u0000"', "Remove NUL characters"),
        (r'{"a": "\ud800"}', "Remove unpaired surrogate characters"),
        ("[1e999]", "Write finite numbers"),
        ("NaN", "Write finite numbers"),
        ("9" * 5000, "A number is too long"),
    ],
)
def test_json_that_cannot_be_stored_is_refused_beside_the_field(client, admin, value, problem):
    client.force_login(admin)
    fields = {"name": "alps", "scheduler": "slurm", "options": value, "submission": "{}"}
    page = client.post("/admin/clusters/cluster/add/", fields)
    assert problem in page.context["adminform"].form.errors["options"][0]
    assert value in unescape(page.content.decode())


def test_scheduler_is_one_of_those_installed(client, admin):
    client.force_login(admin)
    values = {"name": "alps", "scheduler": "slurmm", "options": "{}", "submission": "{}"}
    page = text_of(client.post("/admin/clusters/cluster/add/", values))
    assert "“slurmm” is not a choice for “Scheduler”: choose one from the list." in page
    assert not Cluster.objects.exists()


@pytest.mark.parametrize("path", ["clusters/cluster", "datasets/catalogue"])
def test_form_chooses_no_plugin_in_place_of_one_that_is_gone(client, admin, path):
    client.force_login(admin)
    if path == "clusters/cluster":
        row = clusters.cluster()
        name = "scheduler"
    else:
        row = Catalogue.objects.create(name="samweb", kind="samweb")
        name = "kind"
    type(row).objects.update(**{name: "uninstalled"})
    form = client.get(f"/admin/{path}/{row.pk}/change/").context["adminform"].form
    assert form.fields[name].choices[0][0] == ""
    assert "selected" not in str(form[name])


def test_empty_list_offers_what_can_be_done(client, admin, db):
    client.force_login(admin)
    page = text_of(client.get("/admin/clusters/cluster/"))
    assert "There are no clusters yet." in page
    assert 'href="/admin/clusters/cluster/add/"' in page
    assert "There are no submissions yet." in text_of(client.get("/admin/submission/submission/"))
    clusters.cluster()
    assert "There are no clusters yet." not in text_of(client.get("/admin/clusters/cluster/"))
    searched = text_of(client.get("/admin/submission/submission/?q=nothing"))
    assert "No submissions match the search and filters." in searched


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', "Line 3, column 3: Expecting &#39;,&#39; delimiter."),
        ("[", "Line 1, column 2"),
    ],
)
def test_error_in_json_names_its_line(client, admin, options, message):
    client.force_login(admin)
    values = {"name": "alps", "scheduler": "simulated", "options": options, "submission": "{}"}
    page = text_of(client.post("/admin/clusters/cluster/add/", values))
    assert message in page
    assert not Cluster.objects.exists()
    assert "data-numbered" in page
    assert "opsportal/js/numbered_text.js" in page


@pytest.mark.parametrize(
    ("scheduler", "options", "message"),
    [
        ("slurm", '{"confg": "/etc/slurm.conf"}', "Unknown options of the slurm adapter: confg."),
        ("htcondor", '{"schedd": "-name"}', "Options schedd and pool must be names."),
    ],
)
def test_options_that_the_scheduler_refuses_are_not_saved(
    client, admin, scheduler, options, message
):
    client.force_login(admin)
    values = {"name": "alps", "scheduler": scheduler, "options": options, "submission": "{}"}
    assert message in text_of(client.post("/admin/clusters/cluster/add/", values))
    assert not Cluster.objects.exists()


def test_cluster_with_faulty_options_can_be_switched_off(client, admin):
    cluster = clusters.cluster()
    faulty = {"confg": "/etc/slurm.conf"}
    Cluster.objects.update(scheduler="slurm", options=faulty, collects=True)
    client.force_login(admin)
    address = reverse("admin:clusters_cluster_change", args=[cluster.pk])
    fields = client.get(address).context["adminform"].form
    values = {
        "name": cluster.name,
        "scheduler": "slurm",
        "submission": fields["submission"].value(),
    }
    values |= {"options": fields["options"].value(), "initial-options": fields["options"].value()}
    client.post(address, values)
    cluster.refresh_from_db()
    assert not cluster.collects
    assert cluster.options == faulty


def test_json_is_shown_with_an_indentation(client, admin):
    cluster = clusters.cluster()
    Cluster.objects.update(options={"jobs": "réel", "user": "ops"})
    client.force_login(admin)
    page = client.get(reverse("admin:clusters_cluster_change", args=[cluster.pk]))
    field = page.context["adminform"].form["options"]
    assert field.value() == '{\n  "jobs": "réel",\n  "user": "ops"\n}'


def test_lists_have_plain_titles(client, admin, nova):
    shifter = people.person("all-experiments", ("shifter", None))
    publish(kind="membership.granted", target=shifter, by=admin, at=timezone.now())
    client.force_login(admin)
    memberships = client.get("/admin/accounts/membership/").text
    assert "<title>Roles of users · opsportal</title>" in memberships
    assert 'class="field-scope">all experiments</td>' in memberships
    assert "To change a role, delete it and add another." in memberships
    events = client.get("/admin/core/event/").text
    assert "Target label" not in events
    assert ">Target<" in events


def test_page_of_a_record_is_named_after_it_and_leads_back(client, admin):
    cluster = clusters.cluster()
    client.force_login(admin)
    page = text_of(client.get(reverse("admin:clusters_cluster_change", args=[cluster.pk])))
    assert "<title>alps · opsportal</title>" in page
    assert "<h1>alps</h1>" in page
    crumbs = page.partition('class="breadcrumbs"')[2].partition("</div>")[0]
    assert (
        '<a href="/admin/">Back office</a> › <a href="/admin/clusters/cluster/">Clusters</a>'
        in (crumbs)
    )
    assert 'href="/admin/clusters/"' not in crumbs


def test_page_of_an_experiment_leads_to_what_belongs_to_it(client, admin, nova):
    people.person("ana", ("liaison", nova))
    client.force_login(admin)
    page = text_of(client.get(reverse("admin:accounts_experiment_change", args=[nova.pk])))
    link = f"/admin/accounts/membership/?experiment__id__exact={nova.pk}"
    assert f'<a href="{link}">Roles of users: 1</a>' in page
    assert client.get(link).context["cl"].result_count == 1
    assert "Accounts of its jobs: 0</a>" in page


def test_list_that_is_changed_elsewhere_leads_there(client, admin):
    client.force_login(admin)
    page = text_of(client.get("/admin/diagnosis/knownerror/"))
    assert '<a href="/failures/known-errors/">Known errors</a>' in page
    assert "Changes in the back office</a>" in text_of(client.get("/admin/"))


def test_history_of_a_user_leads_back_to_the_user(client, admin, shifter):
    client.force_login(admin)
    page = text_of(client.get(reverse("admin:accounts_user_history", args=[shifter.pk])))
    change = reverse("admin:accounts_user_change", args=[shifter.pk])
    assert f'<a href="{change}">Back to {shifter}</a>' in page
    assert "No change has been recorded since it was created." in page
    assert "change history" not in page


def test_page_of_a_record_links_what_belongs_to_it(client, admin):
    cluster = clusters.cluster()
    client.force_login(admin)
    page = text_of(client.get(reverse("admin:clusters_cluster_change", args=[cluster.pk])))
    assert '<a href="/admin/archive/capturehost/add/?clusters=alps">Add a capture host</a>' in page
    added = client.get("/admin/archive/capturehost/add/?clusters=alps")
    assert added.context["adminform"].form["clusters"].value() == "alps"


def test_page_of_a_cluster_says_whether_its_accounting_is_read_and_if_not_why(client, admin, at):
    cluster = clusters.cluster()
    client.force_login(admin)
    address = reverse("admin:clusters_cluster_change", args=[cluster.pk])
    assert "Its accounting is not read yet" in text_of(client.get(address))
    collection = Collection.objects.create(cluster=cluster, collected_until=at)
    assert "Its accounting is read until" in text_of(client.get(address))
    Collection.objects.update(last_error="sacct: unknown host <alps>")
    page = text_of(client.get(address))
    why = reverse("admin:jobs_collection_change", args=[collection.pk])
    text = "Its accounting cannot be read: sacct: unknown host &lt;alps&gt;"
    assert f'<a href="{why}">{text}</a>' in page
    assert "/help/jobs/#accounting-that-cannot-be-read" in page
    Collection.objects.update(last_error="sacct: no route to host " * 9)
    assert "sacct: no route to …</a>" in text_of(client.get(address))
    health = text_of(client.get("/health/"))
    assert "sacct: no …</summary>sacct: no route to host" in health
    Cluster.objects.update(collects=False)
    assert "It collects no jobs now" in text_of(client.get(address))


@pytest.mark.parametrize("label", sorted(SEE_ALSO))
def test_links_of_a_record_lead_to_pages(client, admin, at, label):
    statusboard.source(at, slug="abc")
    record = apps.get_model(label)(pk=1)
    for name in ("name", "slug", "username", "target_label"):
        if hasattr(record, name):
            setattr(record, name, "a b&c" if name == "name" else "abc")
    client.force_login(admin)
    for text, address in links_of(record):
        assert client.get(address).status_code == 200, text


def test_new_cluster_says_where_to_see_whether_it_is_read(client, admin):
    client.force_login(admin)
    values = {"name": "farm", "scheduler": "slurm", "options": "{}", "submission": "{}"}
    values["collects"] = "on"
    page = text_of(client.post("/admin/clusters/cluster/add/", values, follow=True))
    assert "The portal now tries to read its accounting: its page says whether that works." in page
