from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from apps.statusboard.domain.board.calendar import month_of_services
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.domain.maintenance.announcements import (
    announcements_ahead,
    post_announcement,
    unread_announcements,
)
from apps.statusboard.domain.maintenance.windows import schedule_window
from apps.statusboard.domain.monitoring.payloads import parse_payload, receive_payload
from apps.statusboard.enums import Repeat, State
from apps.statusboard.models import (
    Announcement,
    DowntimeWindow,
    Incident,
    LabelRule,
    Service,
    UnmappedAlert,
)
from tests.factories.statusboard import alert, post, service, source, watchdog

HOUR = timedelta(hours=1)


@pytest.fixture
def now(db):
    return timezone.now()


@pytest.fixture
def samweb(now):
    return service("samweb", now - 48 * HOUR, advice="Do not submit jobs that declare files.")


@pytest.fixture
def outage(samweb, shifter, now):
    return open_incident(
        service=samweb,
        state=State.DOWN,
        title="<b>No answer</b>",
        by=shifter,
        at=now,
        started_at=now - HOUR,
    )


def local(moment):
    return timezone.localtime(moment).strftime("%Y-%m-%dT%H:%M")


def test_board_tells_states_windows_and_announcements(
    client, liaison, outage, samweb, shifter, now
):
    schedule_window(
        services=[samweb],
        title="New disks",
        starts_at=now + HOUR,
        ends_at=now + 2 * HOUR,
        by=shifter,
        at=now,
    )
    post_announcement(title="Mind the gap", body="a\nb", by=shifter, at=now)
    client.force_login(liaison)
    page = client.get("/services/").content.decode()
    for words in (
        "samweb",
        'class="state down"',
        "&lt;b&gt;No answer",
        "New disks",
        "Mind the gap",
        "a<br>b",
    ):
        assert words in page
    assert "Report incident" not in page
    assert "<b>No answer" not in page


def test_empty_board_says_what_is_missing(client, liaison):
    client.force_login(liaison)
    assert "No services yet" in client.get("/services/").content.decode()


def test_strip_on_every_page_tells_what_is_down_and_what_to_do(client, liaison, outage):
    client.force_login(liaison)
    page = client.get("/accounts/settings/").content.decode()
    assert '<b class="s-down">1 down</b>' in page
    assert "Do not submit jobs that declare files." in page


def test_strip_is_silent_when_nothing_is_wrong(client, liaison, samweb):
    client.force_login(liaison)
    assert 'class="alerts' not in client.get("/accounts/settings/").content.decode()


def test_service_page_shows_history_and_the_incidents_of_one_day(
    client, liaison, outage, samweb, now
):
    client.force_login(liaison)
    page = client.get("/services/samweb/").content.decode()
    assert "No answer" in page
    assert page.partition('class="days"')[2].partition("</div>")[0].count('tabindex="-1"') == 90
    other_day = (timezone.localtime(now) - timedelta(days=9)).date()
    filtered = client.get(f"/services/samweb/?day={other_day}").content.decode()
    assert "No incidents." in filtered
    assert client.get("/services/samweb/?day=never").status_code == 200
    assert client.get("/services/nothing/").status_code == 404


def test_incident_page_offers_closing_to_those_who_may(client, liaison, shifter, outage):
    address = f"/services/incidents/{outage.pk}/"
    client.force_login(liaison)
    assert "Close incident…" not in client.get(address).content.decode()
    client.force_login(shifter)
    assert client.get(address).content.decode().count("Close incident…") == 1, "each action once"


def test_main_actions_of_an_incident_are_at_the_top(client, shifter, liaison, outage):
    address = outage.get_absolute_url()
    client.force_login(liaison)
    assert "?act=" not in client.get(address).content.decode()
    client.force_login(shifter)
    page = client.get(address).content.decode()
    top = page.partition("</h1>")[2].partition("<section")[0]
    assert f'href="{address}?act=post#act"' in top
    assert f'href="{address}?act=close#act"' in top
    assert page.count('<details class="folded" open>') == 0
    opened = client.get(f"{address}?act=close").content.decode()
    assert opened.count('<details class="folded" open>') == 1
    assert '<details class="narrow-fold" id="act" open>' in opened, "also on a phone"
    assert opened.partition('class="folded" open>')[2].strip().startswith("<summary>Close incident")


def test_shifter_reports_changes_and_closes_an_incident(client, shifter, samweb):
    client.force_login(shifter)
    form = {"service": "samweb", "state": "down", "title": "No answer"}
    answer = client.post("/services/incidents/new/", form)
    incident = Incident.objects.get()
    address = f"/services/incidents/{incident.pk}/"
    assert (answer.status_code, answer["Location"]) == (302, address)
    client.post(
        address + "update/", {"state": "degraded", "title": "Slow", "reason": "It came back a bit"}
    )
    incident.refresh_from_db()
    assert (incident.state, incident.title) == ("degraded", "Slow")
    assert client.post(address + "close/", {"reason": ""}).status_code == 400
    closed = client.post(address + "close/", {"reason": "It answers"}, follow=True)
    assert "Incident closed." in closed.content.decode()
    incident.refresh_from_db()
    assert (incident.resolution, incident.closed_by) == ("manual", "shift-one")
    again = client.post(address + "close/", {"reason": "It answers"}, follow=True).content.decode()
    assert "already closed" in again


def test_second_incident_of_a_service_is_deliberate(client, shifter, samweb, outage):
    client.force_login(shifter)
    address = "/services/incidents/new/"
    assert "already has an open incident" not in client.get(address).content.decode()
    assert (
        "already has an open incident" in client.get(f"{address}?service=samweb").content.decode()
    )
    form = {"service": "samweb", "state": "degraded", "title": "Slow, too"}

    refused = client.post(address, form)

    assert refused.status_code == 400
    assert f'add an update to <a href="{outage.get_absolute_url()}">' in refused.content.decode()
    assert Incident.objects.count() == 1
    assert client.post(address, {**form, "another": "on"}).status_code == 302
    assert Incident.objects.count() == 2


def test_state_of_a_new_incident_must_be_chosen(client, shifter, samweb):
    client.force_login(shifter)
    answer = client.post("/services/incidents/new/", {"service": "samweb", "title": "Slow"})
    assert answer.status_code == 400
    assert not Incident.objects.exists()
    assert '<option value="" selected>Choose a state</option>' in answer.content.decode()


def test_incident_that_begins_in_the_future_is_refused_beside_its_field(
    client, shifter, samweb, now
):
    client.force_login(shifter)
    form = {"service": "samweb", "state": "down", "title": "x", "started_at": local(now + HOUR)}
    answer = client.post("/services/incidents/new/", form)
    assert answer.status_code == 400
    assert "Schedule maintenance instead" in answer.content.decode()


def test_shifter_plans_a_window_and_calls_it_off(client, shifter, samweb, now):
    client.force_login(shifter)
    form = {
        "services": ["samweb"],
        "title": "x",
        "starts_at": local(now + HOUR),
        "ends_at": local(now),
    }
    assert client.post("/services/windows/new/", form).status_code == 400
    form["ends_at"] = local(now + 2 * HOUR)
    assert client.post("/services/windows/new/", form).status_code == 302
    window = DowntimeWindow.objects.get()
    client.post(f"/services/windows/{window.pk}/cancel/", {"reason": "Not needed"})
    window.refresh_from_db()
    assert window.cancelled_at


def test_shifter_posts_an_announcement_and_withdraws_it(client, shifter, nova):
    client.force_login(shifter)
    filled = client.get("/services/announcements/new/?service=none&title=503+%3Cb%3E")
    assert filled.context["form"]["title"].value() == "503 <b>"
    assert "503 <b>" not in filled.text
    form = {"title": "Mind the gap", "experiments": ["NOVA"], "do_not_submit": "on"}
    posted = client.post("/services/announcements/new/", form)
    assert posted.url == "/services/#announcements"
    announcement = Announcement.objects.get()
    assert list(announcement.experiments.all()) == [nova]
    client.post(f"/services/announcements/{announcement.pk}/withdraw/", {"reason": "Over"})
    announcement.refresh_from_db()
    assert announcement.withdrawn_at


def test_announcement_of_an_experiment_is_seen_by_its_members_and_the_opg(
    client, liaison, other_liaison, approver, nova, shifter, now
):
    post_announcement(
        title="Only for NOvA",
        by=shifter,
        at=now - HOUR,
        experiments=[nova],
        do_not_submit=True,
        ends_at=now + HOUR,
    )
    seen = {}
    for person in (liaison, other_liaison, approver):
        client.force_login(person)
        seen[person.username] = "Only for NOvA" in client.get("/services/").content.decode()
    assert seen == {"nova-liaison": True, "dune-liaison": False, "opg-one": True}


def test_payload_that_cannot_be_read_shows_on_every_page_of_its_source(client, liaison, now):
    prometheus = source(now)
    service("dcache", now, source=prometheus)
    post(prometheus, now, watchdog(now))
    parse_payload(payload_id=receive_payload(source=prometheus, body=b"no JSON", at=now).pk)
    client.force_login(liaison)
    for address in ("/services/", "/services/dcache/", "/services/monitoring/sources/"):
        assert "invalid JSON" in client.get(address).content.decode()


def test_incident_page_shows_its_states_and_their_change(client, shifter, outage, now):
    client.force_login(shifter)
    form = {"state": "degraded", "title": "Slow", "reason": "Half of the nodes answer"}
    client.post(f"/services/incidents/{outage.pk}/update/", form)
    html = client.get(f"/services/incidents/{outage.pk}/").content.decode()
    assert "changed the state from down to degraded" in html
    facts = html[html.index("<dt>State</dt>") : html.index("<dt>Started</dt>")]
    assert facts.index("down") < facts.index("degraded")


def test_sources_page_leads_an_alert_to_a_service(client, shifter, samweb, now):
    client.force_login(shifter)
    assert (
        "No monitoring sources yet" in client.get("/services/monitoring/sources/").content.decode()
    )
    prometheus = source(now - HOUR)
    post(prometheus, now, alert(now, job="sam"))
    page = client.get("/services/monitoring/sources/").content.decode()
    assert "job=sam" in page
    assert '<input type="checkbox" name="labels" value="job"' in page
    stray = UnmappedAlert.objects.get()
    address = f"/services/monitoring/alerts/{stray.pk}/"
    answer = client.post(address, {"service": "samweb"}, follow=True).content.decode()
    assert "No rule was added. Tick one label or more." in answer
    assert not LabelRule.objects.exists()
    client.post(address, {"labels": ["job"], "service": "samweb"})
    assert LabelRule.objects.get().matchers == {"job": "sam"}


def forms(outage, samweb, now):
    window = DowntimeWindow.objects.create(
        title="x", starts_at=now + HOUR, ends_at=now + 2 * HOUR, scheduled_by="opg-one"
    )
    announcement = Announcement.objects.create(title="x", starts_at=now, posted_by="opg-one")
    stray = UnmappedAlert.objects.create(
        source=source(now, "second"), dedup_key="x", labels={"job": "sam"}, last_seen_at=now
    )
    reason = {"reason": "x"}
    later = {"starts_at": local(now + HOUR), "ends_at": local(now + 2 * HOUR)}
    return [
        (
            reverse("statusboard:report-incident"),
            {"service": "samweb", "another": "on", "state": "down", "title": "x"},
        ),
        (reverse("statusboard:schedule-window"), {"services": ["samweb"], "title": "x", **later}),
        (reverse("statusboard:post-announcement"), {"title": "x"}),
        (
            reverse("portal:incident-act", args=[outage.pk, "update"]),
            {"state": "down", "title": "x", **reason},
        ),
        (reverse("portal:incident-act", args=[outage.pk, "close"]), reason),
        (reverse("statusboard:cancel-window", args=[window.pk]), reason),
        (reverse("statusboard:withdraw-announcement", args=[announcement.pk]), reason),
        (
            reverse("statusboard:map-alert", args=[stray.pk]),
            {"labels": ["job"], "service": ":none"},
        ),
    ]


@pytest.mark.parametrize("who", ["shifter", "approver", "admin"])
def test_opg_may_do_everything_on_the_board(client, who, outage, samweb, now, request):
    client.force_login(request.getfixturevalue(who))
    answers = [
        client.post(address, data).status_code for address, data in forms(outage, samweb, now)
    ]
    assert answers == [302] * 8


def test_liaison_may_do_nothing_on_the_board(client, liaison, outage, samweb, now):
    client.force_login(liaison)
    told = forms(outage, samweb, now)
    assert [client.post(address, data).status_code for address, data in told] == [403] * 8
    assert [client.get(address).status_code for address, _ in told[:3]] == [403] * 3
    assert [client.post(address, {}).status_code for address, _ in told] == [403] * 8


def test_stranger_is_sent_to_the_login(client, outage, samweb, now):
    for address, data in [
        *forms(outage, samweb, now),
        ("/services/", {}),
        ("/services/samweb/", {}),
    ]:
        assert client.post(address, data).headers["Location"].startswith("/accounts/login/")


def add_rows(place, shifter, now):
    """One more of everything that the pages list."""
    prometheus = source(now - 48 * HOUR, f"p{place}")
    one = service(f"s{place}", now - 48 * HOUR, source=prometheus)
    open_incident(
        service=one, state=State.DOWN, title="x", by=shifter, at=now, started_at=now - HOUR
    )
    schedule_window(
        services=[one], title="x", starts_at=now + HOUR, ends_at=now + 2 * HOUR, by=shifter, at=now
    )
    post_announcement(title="x", by=shifter, at=now - HOUR, services=[one])
    post(prometheus, now, alert(now, job="x"))


@pytest.mark.parametrize(
    "address", ["/services/", "/services/s0/", "/services/monitoring/sources/"]
)
def test_pages_take_the_same_queries_for_one_and_three_rows(client, shifter, now, address):
    client.force_login(shifter)
    counts = []
    for places in ((0,), (1, 2)):
        for place in places:
            add_rows(place, shifter, now)
        with CaptureQueriesContext(connection) as queries:
            client.get(address)
        counts.append(len(queries))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("day", ["9999-12-31", "0001-01-01", "2026-02-30", "x"])
def test_day_that_cannot_be_shows_all_incidents(client, liaison, outage, day):
    client.force_login(liaison)
    assert "No answer" in client.get(f"/services/samweb/?day={day}").content.decode()


def test_incident_of_the_year_one_is_shown_in_every_zone(client, samweb, shifter, now):
    first = datetime.min.replace(tzinfo=UTC)
    incident = open_incident(
        service=samweb, state=State.DOWN, title="x", by=shifter, at=now, started_at=first
    )
    shifter.time_zone = "America/Chicago"
    shifter.save()
    client.force_login(shifter)
    for path in (f"/services/incidents/{incident.pk}/", "/services/", "/services/samweb/"):
        assert client.get(path).status_code == 200


def test_calendar_shows_windows_and_incidents_of_a_month(
    client, liaison, samweb, outage, shifter, now
):
    schedule_window(
        services=[samweb], title="New disks", starts_at=now + HOUR, ends_at=now + 2 * HOUR, by=shifter, at=now,
        repeat=Repeat.DAILY, last_day=(now + 3 * 24 * HOUR).date(),
    )  # fmt: skip
    other = service("ifdh", now - HOUR)
    client.force_login(liaison)
    month = f"{now + HOUR:%Y-%m}"
    page = client.get(f"/services/windows/calendar/?month={month}")
    text = page.content.decode()
    assert text.count("New disks") >= 1
    assert "&lt;b&gt;No answer" in text
    assert (
        "New disks"
        not in client.get(
            f"/services/windows/calendar/?month={month}&service={other}"
        ).content.decode()
    )
    wrong = client.get("/services/windows/calendar/?month=2026-13").content.decode()
    assert "“2026-13” is not a valid value of “month”" in wrong
    assert client.get("/services/windows/calendar/?service=nope").status_code == 404


def test_calendar_shows_windows_before_a_few_incidents(client, liaison, samweb, shifter, now):
    noon = now.replace(hour=12)
    schedule_window(
        services=[samweb], title="New disks", starts_at=noon + 24 * HOUR, ends_at=noon + 25 * HOUR, by=shifter,
        at=noon,
    )  # fmt: skip
    for number in range(5):
        open_incident(
            service=service(f"door-{number}", noon),
            state=State.DOWN if number == 0 else State.DEGRADED,
            title=f"Door {number} stuck",
            by=shifter,
            at=noon,
            started_at=noon - number * timedelta(minutes=1),
        )
    client.force_login(liaison)
    at = noon + 24 * HOUR
    weeks = month_of_services(at.date().replace(day=1), at=at, zone=UTC)
    day = next(day for week in weeks for day in week if day.date == at.date())
    assert [window.title for window in day.windows] == ["New disks"]
    titles = [incident.title for incident in day.shown_incidents]
    assert titles == ["Door 0 stuck", "Door 1 stuck"]
    assert [incident.title for incident in day.folded_incidents] == [
        "Door 2 stuck",
        "Door 3 stuck",
        "Door 4 stuck",
    ]
    page = client.get(f"/services/windows/calendar/?month={noon:%Y-%m}").content.decode()
    cell = page[page.index(f'datetime="{noon:%Y-%m-%d}"') :].partition("</td>")[0]
    assert "3 more incidents" in cell
    assert cell.index("Door 1") < cell.index("<details>") < cell.index("Door 2")


def test_service_says_whose_it_is_and_what_needs_it(client, liaison, samweb, now):
    Service.objects.filter(pk=samweb.pk).update(
        owner="Data management", runbook="https://wiki.example.org/samweb"
    )
    ifdh = service("ifdh", now)
    ifdh.depends_on.add(samweb)
    client.force_login(liaison)
    page = client.get("/services/samweb/").content.decode()
    for words in (
        "Data management",
        'href="https://wiki.example.org/samweb"',
        'href="/services/ifdh/"',
    ):
        assert words in page


def test_strip_counts_what_is_degraded_after_what_is_down(client, liaison, outage, shifter, now):
    open_incident(
        service=service("ifdh", now - HOUR), state=State.DEGRADED, title="Slow", by=shifter, at=now
    )
    client.force_login(liaison)
    page = client.get("/requests/").content.decode()
    assert page.index("1 down") < page.index("1 degraded")


def test_announcement_that_was_read_leaves_home_unless_it_is_pinned(
    client, shifter, liaison, other_liaison, nova
):
    at = timezone.now()
    plain = post_announcement(title="New default", by=shifter, at=at)
    pinned = post_announcement(
        title="Freeze in May", by=shifter, at=at - timedelta(hours=1), pinned=True
    )
    hidden = post_announcement(title="For NOvA", by=shifter, at=at, experiments=[nova])
    assert [row.title for row in unread_announcements(liaison, at)] == [
        "Freeze in May",
        "For NOvA",
        "New default",
    ]
    client.force_login(liaison)
    for row in (plain, plain, pinned):
        assert client.post(f"/services/announcements/{row.pk}/read/").status_code == 302
    assert [(row.title, row.is_read) for row in unread_announcements(liaison, at)] == [
        ("Freeze in May", True),
        ("For NOvA", False),
    ]
    assert "New default" not in client.get("/").text
    assert "New default" in client.get("/services/").text
    assert (
        client.post(f"/services/announcements/{plain.pk}/pin/", {"pinned": "on"}).status_code == 403
    )
    client.force_login(other_liaison)
    assert client.post(f"/services/announcements/{hidden.pk}/read/").status_code == 404
    assert "New default" in client.get("/").text

    client.force_login(shifter)
    client.post(f"/services/announcements/{plain.pk}/pin/", {"pinned": "on"})
    client.post(f"/services/announcements/{pinned.pk}/pin/", {})
    assert [(row.title, row.readers) for row in announcements_ahead(shifter, at)] == [
        ("New default", 1),
        ("For NOvA", 0),
        ("Freeze in May", 1),
    ]
    assert (
        "already pinned"
        in client.post(
            f"/services/announcements/{plain.pk}/pin/", {"pinned": "on"}, follow=True
        ).text
    )
    answer = client.post(
        f"/api/v1/announcements/{plain.pk}/pin/", {"pinned": False}, content_type="application/json"
    )
    assert answer.json()["pinned"] is False


def incidents_in(client, address: str) -> list[str]:
    context = client.get(address).context
    rows = context["incidents"] if address.startswith("/services/?") else context["page"].rows
    return [incident.title for incident in rows]


def test_incidents_of_board_and_service_are_sorted_by_their_headings(
    client, liaison, outage, samweb, shifter, now
):
    dcache = service("dcache", now - 48 * HOUR)
    open_incident(
        service=dcache,
        state=State.DEGRADED,
        title="Slow",
        by=shifter,
        at=now,
        started_at=now - 2 * HOUR,
    )
    client.force_login(liaison)
    assert incidents_in(client, "/services/?") == ["<b>No answer</b>", "Slow"]
    assert incidents_in(client, "/services/?sort=started") == ["Slow", "<b>No answer</b>"]
    assert incidents_in(client, "/services/?sort=service") == ["Slow", "<b>No answer</b>"]
    page = client.get("/services/?sort=-state").content.decode()
    assert 'aria-sort="descending"' in page

    close_incident(incident=outage, by=shifter, at=now, reason="Repaired.")
    open_incident(
        service=samweb,
        state=State.DOWN,
        title="Again",
        by=shifter,
        at=now + HOUR,
        started_at=now + HOUR,
    )
    assert incidents_in(client, "/services/samweb/?") == ["Again", "<b>No answer</b>"]
    assert incidents_in(client, "/services/samweb/?sort=ended") == ["<b>No answer</b>", "Again"]
    assert incidents_in(client, "/services/samweb/?sort=-incident") == [
        "Again",
        "<b>No answer</b>",
    ]
    assert set(incidents_in(client, "/services/samweb/?sort=source")) == {
        "Again",
        "<b>No answer</b>",
    }


def test_sources_are_sorted_by_their_headings(client, shifter, samweb, now):
    source(now - HOUR, slug="zabbix")
    source(now, slug="checkmk")
    client.force_login(shifter)
    address = reverse("statusboard:sources")

    def slugs(sort: str) -> list[str]:
        rows = client.get(address, {"sort": sort}).context["sources"]
        return [monitoring_source.slug for monitoring_source, _ in rows]

    assert slugs("source") == ["checkmk", "zabbix"]
    assert slugs("-source") == ["zabbix", "checkmk"]
    assert set(slugs("-services")) == {"zabbix", "checkmk"}
