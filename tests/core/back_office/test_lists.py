"""Lists of the back office: every row once, in order, on whichever page,
with what was looked for.
"""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.admin import site
from django.contrib.admin.models import CHANGE, LogEntry
from django.test import Client
from django.utils import timezone

from apps.accounts.enums import Role
from apps.core.domain.events import publish
from apps.core.models import Event
from apps.core.web.pagination import KeysFirst
from tests.factories import people
from tests.factories.requests import request_in
from tests.pages import text_of

LIST = "/admin/core/event/"
START = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def office(client, admin) -> Client:
    """Return who looks at so many events that they take three pages, every other by Ada."""
    actors = ["ada", "bea"] * 60
    for name in ("ada", "bea"):
        people.person(name)
    Event.objects.bulk_create(
        Event(
            kind="x", target_type="x", target_id="1", actor=actor, at=START + timedelta(hours=hour)
        )
        for hour, actor in enumerate(actors)
    )
    client.force_login(admin)
    return client


def shown(office: Client, query: str) -> list[Event]:
    return list(office.get(f"{LIST}?{query}").context["cl"].result_list)


@pytest.mark.parametrize(
    ("query", "order"), [("", ["-pk"]), ("o=0", ["at", "-pk"]), ("o=1.-0", ["actor", "-at", "-pk"])]
)
def test_pages_show_every_row_once_in_order(office, query, order):
    pages = [shown(office, f"{query}&p={page}") for page in (1, 2, 3)]
    assert [*pages[0], *pages[1], *pages[2]] == list(Event.objects.order_by(*order))
    assert {len(page) for page in pages[:2]} == {50}


@pytest.mark.parametrize("most", [1000, 10])
def test_what_is_found_is_counted_and_paged(office, monkeypatch, most):
    monkeypatch.setattr(KeysFirst, "most", most)
    events = list(Event.objects.filter(actor="ada").order_by("-pk"))
    assert "60 events" in office.get(f"{LIST}?q=ada").content.decode()
    assert shown(office, "q=ada") + shown(office, "q=ada&p=2") == events
    assert shown(office, "q=ada&all=") == events
    assert shown(office, "q=nobody") == []
    assert office.get(f"{LIST}?q=ada&p=9").status_code == 302  # there is no such page


def test_no_more_rows_are_counted_than_people_page_through(office, monkeypatch):
    monkeypatch.setattr(site.get_model_admin(Event), "last_row", 70)
    assert "70 events" in office.get(f"{LIST}?by=all").content.decode()
    assert shown(office, "by=all&p=2") == list(Event.objects.order_by("-pk")[50:70])
    assert office.get(f"{LIST}?by=all&p=3").status_code == 302
    assert "60 events" in office.get(f"{LIST}?q=ada").content.decode()


def test_audit_trail_shows_people_first_in_words(client, admin, nova, at):
    publish(
        kind="membership.granted",
        target=admin,
        by=admin,
        at=at,
        new="liaison",
        data={"experiment": "NOVA"},
    )
    publish(kind="jobs.linked", target=nova, by="archive", at=at)
    client.force_login(admin)
    page = client.get(LIST)
    assert [event.kind for event in page.context["cl"].result_list] == ["membership.granted"]
    assert "granted the role liaison for NOVA" in page.text
    assert "granted the role … for …</a>" in page.text
    assert "jobs.linked" not in re.sub(r'href="[^"]*"', "", page.text)
    assert {event.kind for event in shown(client, "by=portal")} == {"jobs.linked"}
    assert len(shown(client, "by=all")) == 2
    # A chosen kind or a search is not narrowed down to people.
    assert [event.kind for event in shown(client, "kind=jobs.linked")] == ["jobs.linked"]
    assert [event.kind for event in shown(client, f"q={nova}")] == ["jobs.linked"]


def test_records_of_logins_can_be_viewed_and_not_changed(client, admin):
    client.force_login(admin)
    index = client.get("/admin/").text
    for name in ("accessattempt", "accessfailurelog", "accesslog"):
        assert client.get(f"/admin/axes/{name}/").status_code == 200
        assert f'<a href="/admin/axes/{name}/">' in index
        assert f"/admin/axes/{name}/add/" not in index
        assert client.get(f"/admin/axes/{name}/add/").status_code == 403


def test_list_names_what_it_searches_and_its_filters(client, admin, nova):
    people.person("ana", ("liaison", nova))
    client.force_login(admin)
    page = text_of(client.get("/admin/accounts/membership/?role__exact=liaison"))
    assert "Searches names, user names, e-mail addresses and experiments." in page
    assert '<summary class="on">Role: <b>Liaison</b></summary>' in page
    assert "<summary>Experiment: <b>All</b></summary>" in page
    assert ">all experiments</a>" in page
    assert "By role" not in page
    assert 'data-title="User name" class="field-user' in page
    assert "1 role <" in page.replace("</p>", "<")
    clusters = text_of(client.get("/admin/clusters/cluster/add/"))
    assert "Memory limit of a job" in clusters


@pytest.mark.parametrize(("days", "shown_days"), [("1", [0]), ("7", [0, 3]), ("", [0, 3, 20])])
def test_changes_of_a_period_are_found_by_their_time(client, admin, days, shown_days):
    for age in (20, 3, 0):
        at = timezone.now() - timedelta(days=age)
        entry = LogEntry.objects.create(
            user=admin, action_flag=CHANGE, object_repr=f"{age} days", change_message="Changed."
        )
        LogEntry.objects.filter(pk=entry.pk).update(action_time=at)
    client.force_login(admin)
    page = client.get("/admin/admin/logentry/", {"when": days} if days else {})
    entries = page.context["cl"].result_list
    assert [entry.object_repr for entry in entries] == [f"{age} days" for age in shown_days]


def test_events_show_states_by_their_names_and_link_their_targets(client, admin, nova, liaison, at):
    production_request = request_in("approved", by=liaison, experiment=nova, approver=admin)
    states = {"old": "awaiting_approval", "new": "approved"}
    publish(kind="request.approve", target=production_request, by=admin, at=at, **states)
    client.force_login(admin)
    page = text_of(client.get(LIST))
    address = f"/admin/production/request/{production_request.pk}/change/"
    assert f'<a href="{address}">{production_request}</a>' in page
    assert "awaiting approval → approved" in page


def test_several_records_are_deleted_only_where_it_is_usual(client, admin, nova):
    people.person("ana", ("liaison", nova))
    client.force_login(admin)
    assert (
        'value="delete_selected">Delete…</button>' in client.get("/admin/accounts/membership/").text
    )
    experiments = client.get("/admin/accounts/experiment/").text
    assert "delete_selected" not in experiments
    assert "action-checkbox" not in experiments


def test_people_are_sorted_by_the_name_that_is_shown(client, admin, nova):
    for username, first_name, last_name in [
        ("zz", "Ada", "Zimmer"),
        ("aa", "zoe", "Adams"),
        ("mm", "", ""),
    ]:
        user = people.person(username, (Role.LIAISON, nova))
        user.first_name = first_name
        user.last_name = last_name
        user.save()
    client.force_login(admin)
    for address in ("/admin/accounts/user/", "/admin/accounts/membership/?role=liaison"):
        page = client.get(address)
        names = [getattr(row, "user", row).username for row in page.context["cl"].result_list]
        assert [name for name in names if name in ("zz", "aa", "mm")] == ["zz", "mm", "aa"]


def test_page_of_an_event_is_in_plain_words(client, admin, nova):
    admin.first_name = "Ada"
    admin.last_name = "Novak"
    admin.save()
    event = publish(
        kind="membership.granted",
        target=people.person("lena"),
        by=admin,
        at=timezone.now(),
        new="liaison",
        data={"experiment": "NOvA", "most_in_flight": None},
    )
    client.force_login(admin)
    page = text_of(client.get(f"/admin/core/event/{event.pk}/change/"))
    assert f"<h1>lena: {admin.username} granted the role liaison for NOvA</h1>" in page
    assert f"Ada Novak ({admin.username})" in page
    assert "experiment: NOvA" in page
    for raw in ("Target id", "Target type", "most_in_flight", "accounts.user"):
        assert raw not in page


@pytest.mark.parametrize("period", ["abc", "", "9" * 30, "-1"])
def test_period_that_is_not_offered_shows_all(client, admin, period):
    publish(kind="user.created", target=admin, by=admin, at=timezone.now())
    client.force_login(admin)
    page = client.get(f"{LIST}?by=all&when={period}")
    assert page.status_code == 200
    assert page.context["cl"].result_count == 1


@pytest.mark.parametrize("key", ["abc", "1\x00", ""])
def test_action_on_what_is_no_record_is_refused(client, admin, key):
    client.force_login(admin)
    sent = {"action": "delete_selected", "_selected_action": key, "post": "yes"}
    page = client.post("/admin/accounts/membership/", sent, follow=True)
    assert "Nothing was done. Choose the records in the list again." in page.text
