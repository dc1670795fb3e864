from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from apps.statusboard.domain.board.availability import read_daily_slots
from apps.statusboard.domain.board.board import (
    list_disruptions,
    read_board,
    read_strip,
    state_history,
)
from apps.statusboard.domain.board.outages import outages_during
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.domain.maintenance.announcements import post_announcement
from apps.statusboard.domain.maintenance.windows import schedule_window
from apps.statusboard.enums import Monitoring, State
from tests.factories.statusboard import alert, post, service, source, watchdog

MINUTE = timedelta(minutes=1)


@pytest.fixture
def outage(at, shifter):
    """samweb, watched since two hours before `at`, is down from 10 to 20 minutes after it."""
    samweb = service("samweb", at - 120 * MINUTE)
    later = at + 600 * MINUTE
    incident = open_incident(
        service=samweb,
        state=State.DOWN,
        title="x",
        by=shifter,
        at=later,
        started_at=at + 10 * MINUTE,
    )
    close_incident(incident=incident, by=shifter, at=later, reason="x", ended_at=at + 20 * MINUTE)
    return samweb


@pytest.mark.parametrize(
    ("start", "end", "answer"),
    [
        (12, 18, "yes"),  # inside
        (5, 25, "yes"),  # around
        (5, 15, "yes"),  # into
        (15, 25, "yes"),  # out of
        (10, 20, "yes"),  # the same
        (0, 10, "no"),  # ends as it begins
        (20, 30, "no"),  # begins as it ends
        (30, 40, "no"),
        (10, 10, "yes"),  # no length, at its first moment
        (15, 15, "yes"),
        (20, 20, "no"),  # no length, at its end
        (15, None, "yes"),  # still running
        (25, None, "no"),
        (25, 15, "no"),  # clocks that disagree: the moment of its start
        (-130, -110, "unknown"),  # partly before anybody watched
        (-130, 15, "yes"),
    ],
)
def test_outage_during_a_job(outage, at, start, end, answer):
    ended_at = None if end is None else at + end * MINUTE
    [found] = outages_during([outage.pk], at + start * MINUTE, ended_at, at + 60 * MINUTE)
    assert found.overlap == answer


def test_outage_is_told_with_its_own_start_and_end(outage, at):
    [found] = outages_during([outage.pk], at + 5 * MINUTE, at + 15 * MINUTE, at + 60 * MINUTE)
    assert [(s.state, s.started_at, s.ended_at) for s in found.intervals] == [
        ("up", at + 5 * MINUTE, at + 10 * MINUTE),
        ("down", at + 10 * MINUTE, at + 20 * MINUTE),
    ]
    assert found.state == "down"
    assert found.intervals[1].incident.service_id == outage.pk


def test_open_incident_during_a_running_job_is_an_outage(at, shifter):
    samweb = service("samweb", at)
    open_incident(service=samweb, state=State.DEGRADED, title="x", by=shifter, at=at + 5 * MINUTE)
    [found] = outages_during([samweb.pk], at, None, at + 6 * MINUTE)
    assert (found.overlap, found.state) == ("yes", "degraded")


def test_maintenance_is_an_outage(at, shifter):
    samweb = service("samweb", at)
    schedule_window(
        services=[samweb], title="x", starts_at=at, ends_at=at + 9 * MINUTE, by=shifter, at=at
    )
    [found] = outages_during([samweb.pk], at, at + MINUTE, at)
    assert (found.overlap, found.state) == ("yes", "maintenance")


def test_silent_monitoring_is_unknown_not_no(at, db):
    prometheus = source(at, heartbeat_timeout_seconds=600)
    samweb = service("samweb", at, source=prometheus)
    post(prometheus, at, watchdog(at))
    post(prometheus, at + 30 * MINUTE, watchdog(at))
    answers = [
        outages_during([samweb.pk], at + a * MINUTE, at + b * MINUTE, at + 60 * MINUTE)[0].overlap
        for a, b in ((0, 10), (5, 15), (12, 20), (30, 40), (30, 50))
    ]
    assert answers == ["no", "unknown", "unknown", "no", "unknown"]


def test_service_that_nobody_watches_is_unknown(at, db):
    [found] = outages_during([service("samweb", at, Monitoring.NONE).pk], at, at + MINUTE, at)
    assert found.overlap == "unknown"


def test_outages_take_two_queries_for_one_and_three_services(outage, at, django_assert_num_queries):
    others = [service(name, at) for name in ("dcache", "cvmfs")]
    for asked in ([outage], [outage, *others]):
        with django_assert_num_queries(2):
            found = outages_during([s.pk for s in asked], at, at + 60 * MINUTE, at)
    assert [(o.service.slug, o.overlap) for o in found] == [
        ("cvmfs", "no"),
        ("dcache", "no"),
        ("samweb", "yes"),
    ]


def tell(rows):
    return [(row.service.slug, row.depth, row.state, row.own) for row in rows]


def test_board_counts_the_worst_part_in(at, shifter):
    farm = service("farm", at)
    node = service("node", at, parent=farm)
    disk = service("disk", at, parent=node)
    open_incident(service=disk, state=State.DEGRADED, title="x", by=shifter, at=at)
    assert tell(read_board(at)) == [
        ("farm", 0, "degraded", "up"),
        ("node", 1, "degraded", "up"),
        ("disk", 2, "degraded", "degraded"),
    ]


def test_group_that_nobody_watches_has_the_state_of_its_parts(at, db):
    group = service("data", at, Monitoring.NONE)
    service("samweb", at, parent=group)
    empty, _ = read_board(at)
    assert (empty.state, empty.has_own_state) == ("up", False)


def test_group_with_an_unknown_part_is_unknown_never_up(at, db):
    group = service("data", at, Monitoring.NONE)
    service("samweb", at, parent=group)
    service("dcache", at, Monitoring.NONE, parent=group)
    assert read_board(at)[0].state == "unknown"


def test_board_tells_since_when_and_who_says_so(at, db):
    prometheus = source(at, heartbeat_timeout_seconds=600, lease_seconds=600, name="Prometheus")
    service("samweb", at, source=prometheus)
    post(prometheus, at, watchdog(at), alert(at + MINUTE, service="samweb"))
    told = []
    for minute in (0, 5, 30):
        [row] = read_board(at + minute * MINUTE)
        told.append((row.state, row.since, row.source_label))
    assert told == [
        ("up", at, "Prometheus"),
        ("down", at + MINUTE, "Prometheus"),
        ("unknown", at + 10 * MINUTE, "Prometheus, stale"),
    ]


def test_maintenance_tells_until_when(at, shifter):
    samweb = service("samweb", at)
    schedule_window(
        services=[samweb], title="x", starts_at=at, ends_at=at + 9 * MINUTE, by=shifter, at=at
    )
    [row] = read_board(at + MINUTE)
    assert (row.state, row.until, row.source_label) == (
        "maintenance",
        at + 9 * MINUTE,
        "Maintenance window",
    )


def test_board_takes_the_same_queries_for_one_and_three_services(
    at, shifter, django_assert_num_queries
):
    for names in (["samweb"], ["dcache", "cvmfs"]):
        for name in names:
            one = service(name, at)
            open_incident(service=one, state=State.DOWN, title="x", by=shifter, at=at)
        with django_assert_num_queries(5):
            read_board(at)


def test_days_tell_the_worst_state_and_how_long(at, outage):
    days = read_daily_slots([outage], at + 60 * MINUTE, days=3)[outage.pk]
    assert [day.state for day in days] == ["unknown", "unknown", "down"]
    assert days[-1].seconds == {"unknown": 36_000, "up": 10_200, "down": 600}
    assert days[-1].summary == "Fri 20 Nov: down 10 min, unknown 10 h, up 2 h 50 min"


def test_days_begin_at_midnight_of_the_reader(at, db):
    samweb = service("samweb", at)
    evening = at.replace(hour=23)
    zones = {
        name: read_daily_slots([samweb], evening, zone=ZoneInfo(name))[samweb.pk]
        for name in ("UTC", "Asia/Tokyo")
    }
    assert {name: (days[-1].date.day, len(days)) for name, days in zones.items()} == {
        "UTC": (20, 90),
        "Asia/Tokyo": (21, 90),
    }


def test_days_sum_to_all_time_even_when_the_clocks_change(db, at):
    zone = ZoneInfo("America/Chicago")
    samweb = service("samweb", at - timedelta(days=40))
    days = read_daily_slots([samweb], at, zone=zone, days=30)[samweb.pk]
    whole = {sum(day.seconds.values()) / 3600 for day in days[:-1]}
    assert whole == {24, 25}


def test_stretch_that_holds_now_has_no_end(outage, at):
    told = [(s.state, s.ended_at) for s in state_history(outage, at, at + 60 * MINUTE)]
    assert told == [("up", None), ("down", at + 20 * MINUTE), ("up", at + 10 * MINUTE)]


def test_troubles_take_one_query_and_strip_two(outage, at, liaison, django_assert_num_queries):
    with django_assert_num_queries(1):
        [disruption] = list_disruptions(at + 15 * MINUTE)
    assert (disruption.service, disruption.since, disruption.until) == (
        outage,
        at + 10 * MINUTE,
        None,
    )
    assert list_disruptions(at) == []
    read_strip(at, liaison)
    with django_assert_num_queries(2):
        assert read_strip(at + 15 * MINUTE, liaison)
    assert not read_strip(at, liaison)


def test_strip_tells_advice_not_to_submit_to_whom_it_concerns(
    at, nova, liaison, other_liaison, shifter
):
    post_announcement(
        title="x", by=shifter, at=at, experiments=[nova], do_not_submit=True, ends_at=at + MINUTE
    )
    assert [bool(read_strip(at, person)) for person in (liaison, other_liaison, shifter)] == [
        True,
        False,
        True,
    ]
    assert not read_strip(at + MINUTE, liaison)
