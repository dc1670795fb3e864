"""What states come to by hour and by day, against a recount of every minute."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from xml.etree import ElementTree as ET
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.statusboard.domain.board.availability import (
    Availability,
    AvailabilitySlot,
    Stretch,
    cut_into_slots,
    read_hourly_slots,
)
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.domain.maintenance.windows import schedule_window
from apps.statusboard.domain.states.timeline import BEGINNING
from apps.statusboard.enums import State
from apps.statusboard.models import Service
from apps.statusboard.web.templatetags.day_marks import day_marks, plain_marks, week_marks
from tests.factories.statusboard import service

MINUTE = timedelta(minutes=1)
LENGTH = 60


@st.composite
def histories(draw):
    """Return stretches without gap or overlap, and edges among them, in minutes."""
    inner = sorted(draw(st.sets(st.integers(-9, LENGTH + 9), max_size=8)))
    states = [draw(st.sampled_from(State)) for _ in range(len(inner) + 1)]
    incidents = [draw(st.sampled_from([None, 1, 2])) for _ in states]
    edges = sorted(draw(st.sets(st.integers(0, LENGTH), min_size=2, max_size=9)))
    return list(zip([-10, *inner], [*inner, None], states, incidents, strict=True)), edges


@given(histories())
@settings(max_examples=50)
def test_slots_equal_a_recount_of_every_minute(history):
    stretches, edges = history
    history_of_service = [
        Stretch(
            state,
            BEGINNING + start * MINUTE,
            None if end is None else BEGINNING + end * MINUTE,
            incident,
        )
        for start, end, state, incident in stretches
    ]
    slots = cut_into_slots(history_of_service, [BEGINNING + edge * MINUTE for edge in edges])
    for (seconds, incidents), (first, last) in zip(slots, pairwise(edges), strict=True):
        minutes = [
            next(
                (state, incident)
                for start, end, state, incident in stretches
                if start <= m and (end is None or m < end)
            )
            for m in range(first, last)
        ]
        assert seconds == {
            state: 60 * sum(state == each for each, _ in minutes) for state, _ in minutes
        }
        assert incidents == {incident for _, incident in minutes if incident is not None}


@pytest.mark.parametrize(
    ("state", "minutes", "classes"),
    [
        (State.DOWN, 20, "down short"),
        (State.DOWN, 200, "down"),
        (State.DEGRADED, 20, "degraded short"),
        (State.MAINTENANCE, 20, "planned"),
    ],
)
def test_day_of_a_short_disruption_is_no_lost_day(at, state, minutes, classes):
    bad = 60.0 * minutes
    seconds = {State.UP: 86_400 - bad, state: bad}
    day = AvailabilitySlot(
        at - timedelta(days=1), at, is_hour=False, state=state, seconds=seconds, incident_pk=1
    )
    row = SimpleNamespace(slots=[day], service=Service(slug="samweb"))
    assert f'class="{classes}"' in day_marks(row)
    assert f'class="{classes}"' in plain_marks(row)


def test_unknown_and_planned_time_is_never_up():
    assert Availability({State.UNKNOWN: 60.0, State.MAINTENANCE: 30.0}).up is None
    availability = Availability(
        {State.UP: 90.0, State.DOWN: 10.0, State.UNKNOWN: 1e6, State.MAINTENANCE: 1e6}
    )
    assert (availability.up, availability.degraded, availability.down) == (0.9, 0, 0.1)


def test_page_board_and_api_tell_the_same_and_link_the_incident(
    client, api, liaison, shifter, django_assert_num_queries
):
    now = timezone.now()
    samweb = service("samweb", now - 240 * MINUTE)
    times = {"starts_at": now - 120 * MINUTE, "ends_at": now - 60 * MINUTE}
    schedule_window(services=[samweb], title="x", **times, by=shifter, at=now - 200 * MINUTE)
    down = open_incident(
        service=samweb,
        state=State.DOWN,
        title="x",
        by=shifter,
        at=now,
        started_at=now - 60 * MINUTE,
    )
    close_incident(incident=down, by=shifter, at=now, reason="x", ended_at=now - 42 * MINUTE)
    told = {
        by: api(liaison).get(f"/api/v1/services/samweb/history/?by={by}").json()
        for by in ("day", "hour")
    }
    for by, slots in (("day", 90), ("hour", 7 * 24)):
        assert slots - 24 < len(told[by]["slots"]) <= slots
        found = told[by]["availability"]
        assert (round(found["up"], 2), round(found["down"], 2), found["planned_seconds"]) == (
            0.9,
            0.1,
            3600,
        )
        assert {slot["incident"] for slot in told[by]["slots"]} == {None, down.pk}
    client.force_login(liaison)
    pages = [
        client.get(address).content.decode()
        for address in ("/services/samweb/", "/services/?history=hours")
    ]
    for page in pages:
        assert "<b>90 %</b> up, 10 % down" in " ".join(page.split())
        assert down.get_absolute_url() in page
    both = [samweb, service("dcache", now)]
    with django_assert_num_queries(1):
        read_hourly_slots(both, now)


@pytest.mark.parametrize("query", ["by=week", "days=0", "days=367", "by=hour&days=8", "days=x"])
def test_history_refuses_what_it_cannot_give(api, liaison, at, query):
    service("samweb", at)
    assert api(liaison).get(f"/api/v1/services/samweb/history/?{query}").status_code == 400


@pytest.mark.parametrize(
    ("zone", "first"),
    [("Asia/Kolkata", "Sat 14 Nov 00:00"), ("America/Chicago", "Sat 14 Nov 00:00")],
)
def test_hours_begin_at_midnight_of_the_reader(at, db, zone, first):
    samweb = service("samweb", at)
    slots = read_hourly_slots([samweb], at, zone=ZoneInfo(zone))[samweb.pk]
    assert slots[0].summary == f"{first}: unknown all hour"
    assert slots[-1].ended_at == at


@pytest.mark.parametrize(
    ("at", "blank", "marks"),
    [
        (datetime(2026, 3, 29, 22, tzinfo=UTC), {2}, 23),  # 02:00 comes not at all
        # 02:00 comes twice, once with an incident.
        (datetime(2026, 10, 25, 23, tzinfo=UTC), set(), 24),
        (datetime(2026, 6, 14, 22, tzinfo=UTC), set(), 24),
    ],
)
def test_hours_of_the_strip_are_those_of_the_clock_when_clocks_change(
    db, shifter, at, blank, marks
):
    start = at - timedelta(days=8)
    samweb = service("samweb", start)
    second = datetime(2026, 10, 25, 1, 15, tzinfo=UTC)  # 02:15 for the second time
    if at.month == 10:
        incident = open_incident(
            service=samweb, state=State.DOWN, title="503", by=shifter, at=second
        )
        close_incident(
            incident=incident, by=shifter, at=second + timedelta(minutes=5), reason="Back."
        )
    slots = read_hourly_slots([samweb], at, zone=ZoneInfo("Europe/Zurich"))[samweb.pk]
    strip = ET.fromstring(week_marks(samweb, list(slots)))
    last = max(float(mark.get("y")) for mark in strip.iter("rect"))
    row = [mark for mark in strip.iter("rect") if float(mark.get("y")) == last]
    shown = {round((float(mark.get("x")) - 30) / 6.7): mark for mark in row}
    assert len(shown) == marks
    assert set(range(24)) - shown.keys() == blank
    if at.month == 10:
        assert [hour for hour, mark in shown.items() if mark.get("class") == "f-down"] == [2]
