from datetime import timedelta

from django.utils import timezone
from icalendar import Calendar

from apps.statusboard.domain.incidents import open_incident
from apps.statusboard.domain.windows import cancel_window, schedule_window
from apps.statusboard.enums import State
from apps.statusboard.feeds.ical import Ical
from apps.statusboard.feeds.statuspage import Statuspage
from tests.factories.statusboard import service

HOUR = timedelta(hours=1)


def test_others_read_the_board_once_the_site_allows_it_and_so_does_another_portal(client, shifter, db, settings):
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
    addresses = [f"/services/status/{name}" for name in ("summary.json", "maintenance.ics", "badge.svg")]
    assert [client.get(each).status_code for each in addresses] == [401] * 3
    settings.PUBLIC_STATUS = True
    summary, calendar, badge = (client.get(each) for each in addresses)
    message = Statuspage().parse(summary.content)
    assert [(alert.dedup_key, alert.severity) for alert in message.alerts] == [("component samweb", "critical")]
    assert [window.starts_at for window in message.windows] == [now + HOUR]
    assert summary.json()["status"]["indicator"] == "major"
    read = [(window.starts_at, window.is_cancelled) for window in Ical().parse(calendar.content).windows]
    assert read == [(now + HOUR, False), (now + 2 * HOUR, True)]
    assert all("DTSTAMP" in event for event in Calendar.from_ical(calendar.content).walk("VEVENT"))
    assert b"1 down" in badge.content
