import xml.etree.ElementTree as ET
from datetime import timedelta

import pytest
from django.utils import timezone
from icalendar import Calendar

from apps.core.domain.hidden_characters import HIDDEN
from apps.statusboard.domain.incidents.incidents import (
    close_incident,
    open_incident,
    update_incident,
)
from apps.statusboard.domain.incidents.notes import post_update
from apps.statusboard.domain.maintenance.announcements import post_announcement
from apps.statusboard.domain.maintenance.windows import cancel_window, schedule_window
from apps.statusboard.enums import State
from apps.statusboard.feeds.ical import Ical
from apps.statusboard.feeds.statuspage import Statuspage
from tests.factories.statusboard import service

HOUR = timedelta(hours=1)


def test_others_read_the_board_once_the_site_allows_it_and_so_does_another_portal(
    client, shifter, db, settings
):
    now = timezone.now().replace(microsecond=0)
    samweb = service("samweb", now - 9 * HOUR)
    service("nobody-looks", now, monitoring="none")
    open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=now - HOUR)
    for number in (1, 2):
        window = schedule_window(
            services=[samweb],
            title=f"Move {number}",
            starts_at=now + number * HOUR,
            ends_at=now + (number + 2) * HOUR,
            by=shifter,
            at=now,
        )
    cancel_window(window=window, by=shifter, at=now, reason="Not needed.")
    addresses = [
        f"/services/status/{name}" for name in ("summary.json", "maintenance.ics", "badge.svg")
    ]
    assert [
        client.get(each).status_code for each in (*addresses, "/services/status/feed.atom")
    ] == [401] * 4
    settings.PUBLIC_STATUS = True
    summary, calendar, badge = (client.get(address) for address in addresses)
    message = Statuspage().parse(summary.content)
    assert [(alert.dedup_key, alert.severity) for alert in message.alerts] == [
        ("component samweb", "critical")
    ]
    assert [window.starts_at for window in message.windows] == [now + HOUR]
    assert summary.json()["status"]["indicator"] == "major"
    read = [
        (window.starts_at, window.is_cancelled) for window in Ical().parse(calendar.content).windows
    ]
    assert read == [(now + HOUR, False), (now + 2 * HOUR, True)]
    assert all("DTSTAMP" in event for event in Calendar.from_ical(calendar.content).walk("VEVENT"))
    assert b"1 down" in badge.content


@pytest.fixture
def outage(shifter, db):
    """An incident of two hours that went from down to degraded, one that is open,
    and a window of tomorrow.
    """
    now = timezone.now().replace(microsecond=0)
    samweb, dcache = service("samweb", now - 9 * HOUR), service("dcache", now - 9 * HOUR)
    over = open_incident(
        service=samweb, state=State.DOWN, title="503", by=shifter, at=now - 3 * HOUR
    )
    update_incident(
        incident=over,
        by=shifter,
        at=now - 2 * HOUR,
        state=State.DEGRADED,
        title="503",
        reason="One server is back.",
    )
    close_incident(incident=over, by=shifter, at=now - HOUR, reason="Restarted.")
    still = open_incident(
        service=dcache, state=State.DOWN, title="<b>slow</b>", by=shifter, at=now - HOUR
    )
    post_update(incident=still, by=shifter, at=now, text="The vendor is on it.")
    window = schedule_window(
        services=[samweb],
        title="Move",
        starts_at=now + 24 * HOUR,
        ends_at=now + 26 * HOUR,
        by=shifter,
        at=now,
    )
    return now, over, still, window


def test_public_page_shows_what_is_for_everybody_and_leads_nowhere(
    client, outage, shifter, nova, settings
):
    now, _, still, _ = outage
    post_announcement(title="New default release", by=shifter, at=now)
    post_announcement(title="For NOvA alone", by=shifter, at=now, experiments=[nova])
    post_announcement(title="Next week", by=shifter, at=now, starts_at=now + 24 * HOUR)
    answer = client.get("/services/status/")
    assert (answer.status_code, answer.url) == (302, "/accounts/login/?next=/services/status/")
    settings.PUBLIC_STATUS = True
    page = client.get("/services/status/").text
    for shown in (
        "Some services are down.",
        "samweb",
        "&lt;b&gt;slow",
        "The vendor is on it.",
        "Move",
        "New default",
    ):
        assert shown in page, shown
    for hidden in (
        "For NOvA alone",
        "Next week",
        "<b>slow",
        still.get_absolute_url(),
        shifter.username,
    ):
        assert hidden not in page, hidden


def test_feed_has_incidents_and_windows_with_their_latest_change(client, outage, settings):
    now, over, still, window = outage
    settings.PUBLIC_STATUS = True
    feed = ET.fromstring(client.get("/services/status/feed.atom").content)
    atom = "{http://www.w3.org/2005/Atom}"
    entries = {
        (entry.findtext(f"{atom}id") or "").partition("#")[2]: entry.findtext(f"{atom}title")
        for entry in feed.iter(f"{atom}entry")
    }
    assert entries == {
        f"window-{window.pk}": "Maintenance: samweb: Move",
        f"incident-{still.pk}": "dcache down: <b>slow</b>",
        f"incident-{over.pk}": "samweb was degraded: 503",
    }
    texts = [entry.findtext(f"{atom}summary") for entry in feed.iter(f"{atom}entry")]
    assert "The vendor is on it." in texts[1]
    assert f"Resolved {now - HOUR:%Y-%m-%d %H:%M} UTC." in texts[2]


def test_iri_names_resources_incidents_and_events(
    client, outage, settings, django_assert_max_num_queries
):
    now, over, still, window = outage
    base = f"{settings.PORTAL_URL}/services/iri/status"
    assert client.get("/services/iri/status/resources").status_code == 401
    settings.PUBLIC_STATUS = True

    def get(path):
        with django_assert_max_num_queries(9):
            return client.get(f"/services/iri/status/{path}")

    resources = {row["id"]: row for row in get("resources").json()}
    assert {key: row["current_status"] for key, row in resources.items()} == {
        "samweb": "up",
        "dcache": "down",
    }
    incidents = {row["id"]: row for row in get("incidents").json()}
    assert [
        (key, row["type"], row["status"], row["resolution"]) for key, row in incidents.items()
    ] == [
        (f"window-{window.pk}", "planned", "down", "pending"),
        (f"incident-{still.pk}", "unplanned", "down", "unresolved"),
        (f"incident-{over.pk}", "unplanned", "degraded", "completed"),
    ]
    past = incidents[f"incident-{over.pk}"]
    assert (past["end"], past["resource_uris"]) == (
        (now - HOUR).isoformat(),
        [f"{base}/resources/samweb"],
    )
    events = {row["self_uri"]: row for row in get("events").json()}
    told = [(events[uri]["occurred_at"], events[uri]["status"]) for uri in past["event_uris"]]
    ends = [now - hours * HOUR for hours in (3, 2, 1)]
    assert told == list(
        zip([at.isoformat() for at in ends], ["down", "degraded", "up"], strict=True)
    )
    assert get(f"incidents/incident-{still.pk}").json() == incidents[f"incident-{still.pk}"]
    assert get("events?limit=1&offset=1").json() == list(events.values())[1:2]
    assert get("resources/nobody").status_code == 404
    assert [
        get(f"events?{wrong}").status_code
        for wrong in ("limit=-1", "limit=1001", "offset=x", "stat=up")
    ] == [400] * 4


def test_hostile_texts_add_no_line_to_the_calendar(client, shifter, db, settings):
    settings.PUBLIC_STATUS = True
    now = timezone.now()
    hostile = "Move\rATTENDEE:mailto:all@example.org\x0b\u202e\r\nEND:VEVENT"
    schedule_window(
        title=hostile,
        text=hostile,
        services=[service("samweb", at=now)],
        starts_at=now + HOUR,
        ends_at=now + 2 * HOUR,
        by=shifter,
        at=now,
    )
    text = client.get("/services/status/maintenance.ics").content.decode()
    assert not HIDDEN.search(text.replace("\r\n", "\n"))
    (event,) = Calendar.from_ical(text).walk("VEVENT")
    assert "ATTENDEE" not in event
    assert (
        event["SUMMARY"]
        == "samweb: Move⟨U+000D⟩ATTENDEE:mailto:all@example.org⟨U+000B⟩⟨U+202E⟩\nEND:VEVENT"
    )
