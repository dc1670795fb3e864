"""The status board in a real browser: neat and accessible, wide and narrow, light and dark."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.domain.maintenance.announcements import post_announcement
from apps.statusboard.domain.maintenance.windows import schedule_window
from apps.statusboard.enums import Monitoring, Repeat, State
from apps.statusboard.models import Incident
from tests.factories.statusboard import alert, post, service, source, watchdog

HOUR = timedelta(hours=1)
PAGES = {
    "board": "/services/",
    "hours": "/services/?history=hours",
    "service": "/services/samweb/",
    "sources": "/services/monitoring/sources/",
    "source": "/services/monitoring/sources/prometheus/",
    "announcement": "/services/announcements/new/",
    "calendar": "/services/windows/calendar/",
    "window": "/services/windows/new/?service=samweb",
}


@pytest.fixture
def board(transactional_db, shifter):
    """Services in every state, with a history, a window,
    an announcement and an alert of no service.
    """
    now = timezone.now()
    prometheus = source(now - 2000 * HOUR, name="Prometheus", heartbeat_timeout_seconds=100 * 3600)
    data = service("data", now, Monitoring.NONE)
    advice = "Jobs that declare files will fail: do not submit before it is back."
    samweb = service(
        "samweb",
        now - 1900 * HOUR,
        kind="data catalogue",
        source=prometheus,
        parent=data,
        advice=advice,
    )
    dcache = service("dcache", now - 900 * HOUR, kind="storage", source=prometheus, parent=data)
    cvmfs = service("cvmfs", now - 1900 * HOUR, kind="software")
    service("beam-db", now, Monitoring.NONE, kind="database")
    for ago in range(1900, 0, -90):
        post(prometheus, now - ago * HOUR, watchdog(now))
    begun = now - 41 * timedelta(minutes=1)
    stray = alert(begun, key="k3", job="squid")
    slow = alert(begun, key="k2", severity="warning", service="dcache")
    post(prometheus, now, watchdog(now), alert(begun, service="samweb"), slow, stray)
    for ago in (30, 400, 700):
        old = open_incident(
            service=dcache,
            state=State.DOWN,
            title="Doors closed",
            by=shifter,
            at=now,
            started_at=now - ago * HOUR,
        )
        close_incident(
            incident=old, by=shifter, at=now, reason="Seen open", ended_at=now - (ago - 3) * HOUR
        )
    times = {"starts_at": now - HOUR, "ends_at": now + HOUR}
    schedule_window(
        services=[cvmfs], title="New stratum 1", text="Jobs wait.", **times, by=shifter, at=now,
        repeat=Repeat.WEEKLY, last_day=(now + 500 * HOUR).date(),
    )  # fmt: skip
    post_announcement(
        title="New memory default", body="Reco v09_72 needs 4 GB.", by=shifter, at=now - 26 * HOUR
    )
    return Incident.objects.get(service=samweb)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_board_is_neat_and_accessible(board, shifter, open_as, assert_accessible, width, scheme):
    page = open_as(shifter, width=width, scheme=scheme)
    for name, address in {**PAGES, "incident": f"/services/incidents/{board.pk}/"}.items():
        page.goto(address)
        if folder := os.environ.get("SCREENSHOTS"):
            page.screenshot(
                path=Path(folder) / f"services-{name}-{width}-{scheme}.png", full_page=True
            )
        assert_accessible(page)
    assert page.problems == []


def test_shifter_closes_an_incident(board, shifter, open_as):
    page = open_as(shifter, javascript=False)
    page.goto("/services/")
    page.get_by_role("row", name="samweb").get_by_role(
        "link", name="It does not answer"
    ).first.click()
    page.get_by_role("link", name="Close incident…").click()
    page.locator("#id_close_reason").fill("It answers again")
    page.get_by_role("button", name="Close incident").click()
    page.get_by_text("Closed manually by shift-one").wait_for()
    page.goto("/services/samweb/")
    page.locator("h1 + .state.up").wait_for()
