from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from django.db import IntegrityError, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.core.errors import InvalidFields
from apps.core.models import Event
from apps.statusboard.domain.board.outages import outages_during
from apps.statusboard.domain.incidents.incidents import (
    close_incident,
    open_incident,
    update_incident,
)
from apps.statusboard.domain.maintenance.windows import cancel_window, schedule_window
from apps.statusboard.domain.monitoring.alerts import mark_stale_incidents
from apps.statusboard.domain.monitoring.sources import record_gaps
from apps.statusboard.domain.states.history import rebuild, states_of_incident
from apps.statusboard.domain.states.timeline import BEGINNING
from apps.statusboard.enums import Cause, Monitoring, Repeat, State
from apps.statusboard.models import DowntimeWindow, Incident, Service, StateInterval
from tests.factories.statusboard import alert, post, service, source, states, watchdog

MINUTE = timedelta(minutes=1)


def rows(of: Service) -> list[tuple]:
    intervals = StateInterval.objects.filter(service=of).order_by("started_at")
    return [
        (r.pk, r.state, r.started_at, r.ended_at, r.cause, r.incident_id, r.window_id)
        for r in intervals
    ]


def test_service_watched_by_people_is_unknown_before_and_up_since(at, db):
    samweb = service("samweb", at)
    assert states(samweb, at) == [("up", 0)]
    first = StateInterval.objects.filter(service=samweb).earliest("started_at")
    assert (first.state, first.started_at, first.cause) == ("unknown", BEGINNING, "not_monitored")


def test_service_watched_by_nobody_is_unknown(at, db):
    assert states(service("samweb", at, Monitoring.NONE), at) == [("unknown", None)]


def test_incident_takes_a_service_down_until_it_is_closed(at, shifter):
    samweb = service("samweb", at)
    incident = open_incident(
        service=samweb,
        state=State.DOWN,
        title="No answer",
        by=shifter,
        at=at + 7 * MINUTE,
        started_at=at + 5 * MINUTE,
    )
    close_incident(incident=incident, by=shifter, at=at + 9 * MINUTE, reason="It answers again")
    assert states(samweb, at) == [("up", 0), ("down", 5), ("up", 9)]


def test_rebuild_twice_changes_no_row(at, shifter):
    samweb = service("samweb", at)
    open_incident(service=samweb, state=State.DOWN, title="No answer", by=shifter, at=at + MINUTE)
    before = rows(samweb)
    rebuild(service_ids=[samweb.pk])
    rebuild(service_ids=[samweb.pk], since=at + MINUTE)
    assert rows(samweb) == before


def test_window_is_maintenance_until_cancelled(at, shifter):
    samweb = service("samweb", at)
    window = schedule_window(
        services=[samweb],
        title="Upgrade",
        starts_at=at + 10 * MINUTE,
        ends_at=at + 40 * MINUTE,
        by=shifter,
        at=at,
    )
    assert states(samweb, at) == [("up", 0), ("maintenance", 10), ("up", 40)]
    cancel_window(window=window, by=shifter, at=at + 20 * MINUTE, reason="Done early")
    assert states(samweb, at) == [("up", 0), ("maintenance", 10), ("up", 20)]


def test_window_cancelled_before_it_begins_leaves_no_trace(at, shifter):
    samweb = service("samweb", at)
    window = schedule_window(
        services=[samweb],
        title="Upgrade",
        starts_at=at + 10 * MINUTE,
        ends_at=at + 40 * MINUTE,
        by=shifter,
        at=at,
    )
    cancel_window(window=window, by=shifter, at=at + 5 * MINUTE, reason="Not needed")
    assert states(samweb, at) == [("up", 0)]


def test_silent_source_makes_its_services_unknown_never_up(at, db):
    prometheus = source(at, heartbeat_timeout_seconds=600)
    samweb = service("samweb", at, source=prometheus)
    assert states(samweb, at) == [("unknown", None)]
    post(prometheus, at, watchdog(at))
    post(prometheus, at + 5 * MINUTE, watchdog(at))
    assert states(samweb, at) == [("up", 0), ("unknown", 15)]
    post(prometheus, at + 60 * MINUTE, watchdog(at))
    assert states(samweb, at) == [("up", 0), ("unknown", 15), ("up", 60), ("unknown", 70)]
    unknown = StateInterval.objects.get(service=samweb, started_at=at + 15 * MINUTE)
    assert unknown.cause == Cause.NO_DATA


def test_silence_is_noted_once_and_ends_with_the_next_sign_of_life(at, db):
    prometheus = source(at, heartbeat_timeout_seconds=600)
    post(prometheus, at, watchdog(at))
    assert record_gaps(at=at + 9 * MINUTE) == 0
    assert record_gaps(at=at + 11 * MINUTE) == 1
    assert record_gaps(at=at + 12 * MINUTE) == 0
    post(prometheus, at + 30 * MINUTE, watchdog(at))
    silence = prometheus.gaps.get()
    assert (silence.started_at, silence.ended_at) == (at + 10 * MINUTE, at + 30 * MINUTE)


def test_late_sign_of_life_splits_the_silence_and_keeps_the_one_of_now(at, db):
    prometheus = source(at, heartbeat_timeout_seconds=600)
    post(prometheus, at, watchdog(at))
    post(prometheus, at + 60 * MINUTE, watchdog(at))
    record_gaps(at=at + 80 * MINUTE)
    post(prometheus, at + 30 * MINUTE, watchdog(at))
    spans = [(s.started_at, s.ended_at) for s in prometheus.gaps.order_by("started_at")]
    assert spans == [
        (at + 10 * MINUTE, at + 30 * MINUTE),
        (at + 40 * MINUTE, at + 60 * MINUTE),
        (at + 70 * MINUTE, None),
    ]


def test_after_a_heartbeat_other_alerts_are_no_sign_of_life(at, db):
    prometheus = source(at, heartbeat_timeout_seconds=600)
    samweb = service("samweb", at, source=prometheus)
    post(prometheus, at, watchdog(at))
    post(prometheus, at + 20 * MINUTE, alert(at + MINUTE, at + 2 * MINUTE, service="samweb"))
    assert states(samweb, at) == [("up", 0), ("down", 1), ("up", 2), ("unknown", 10)]


def test_open_incident_becomes_unknown_when_its_lease_ends_and_down_again_when_repeated(at, db):
    prometheus = source(at, heartbeat_timeout_seconds=7200, lease_seconds=1800)
    samweb = service("samweb", at, source=prometheus)
    post(prometheus, at, alert(at, service="samweb"))
    assert states(samweb, at) == [("down", 0), ("unknown", 30)]
    assert mark_stale_incidents(at=at + 31 * MINUTE) == 1
    assert mark_stale_incidents(at=at + 32 * MINUTE) == 0
    post(prometheus, at + 40 * MINUTE, alert(at, service="samweb"))
    assert states(samweb, at) == [("down", 0), ("unknown", 70)]
    incident = samweb.incidents.get()
    assert incident.stale_at is None
    post(prometheus, at + 80 * MINUTE, alert(at, at + 75 * MINUTE, service="samweb"))
    assert states(samweb, at) == [("down", 0), ("up", 75), ("unknown", 200)]


def test_an_incident_does_not_name_the_state_that_follows_its_lease_before_it_begins(at, db):
    prometheus = source(at, lease_seconds=1800)
    samweb = service("samweb", at, source=prometheus)
    post(prometheus, at, alert(at, service="samweb"))
    incident = samweb.incidents.get()

    def told(now: datetime) -> list[tuple[str, datetime | None]]:
        return [(each.state, each.ended_at) for each in states_of_incident(incident, now)]

    assert told(at + 29 * MINUTE) == [("down", None)]
    assert told(at + 30 * MINUTE) == [("down", at + 30 * MINUTE), ("unknown", None)]


def test_database_refuses_two_states_at_once(at, db):
    samweb = service("samweb", at)
    with pytest.raises(IntegrityError), transaction.atomic():
        StateInterval.objects.create(
            service=samweb, state=State.DOWN, started_at=at + MINUTE, cause=Cause.INCIDENT
        )


def test_rebuild_takes_the_same_queries_for_one_and_three_services(
    at, shifter, django_assert_num_queries
):
    made = [service(name, at) for name in ("samweb", "dcache", "cvmfs")]
    for one in made:
        open_incident(service=one, state=State.DOWN, title="No answer", by=shifter, at=at + MINUTE)
    StateInterval.objects.all().delete()
    with django_assert_num_queries(8):
        rebuild(service_ids=[made[0].pk])
    with django_assert_num_queries(8):
        rebuild(service_ids=[one.pk for one in made])


steps = st.lists(
    st.tuples(st.sampled_from(["down", "close", "window", "beat"]), st.integers(0, 120)), max_size=8
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=steps)
def test_states_after_any_steps_equal_a_rebuild_from_nothing(steps, at, shifter):
    with transaction.atomic():
        prometheus = source(at)
        samweb = service("samweb", at, source=prometheus)
        later = at + timedelta(hours=5)
        for kind, minute in steps:
            moment = at + minute * MINUTE
            if kind == "down":
                open_incident(
                    service=samweb,
                    state=State.DOWN,
                    title="x",
                    by=shifter,
                    at=later,
                    started_at=moment,
                )
            elif kind == "window":
                end = moment + 10 * MINUTE
                schedule_window(
                    services=[samweb], title="x", starts_at=moment, ends_at=end, by=shifter, at=at
                )
            elif kind == "beat":
                post(prometheus, moment, watchdog(at))
            elif incident := samweb.incidents.filter(ended_at=None, started_at__lte=moment).first():
                close_incident(incident=incident, by=shifter, at=later, reason="x", ended_at=moment)
        stepwise = [row[1:] for row in rows(samweb)]
        StateInterval.objects.all().delete()
        rebuild(service_ids=[samweb.pk])
        assert [row[1:] for row in rows(samweb)] == stepwise
        transaction.set_rollback(True)


def test_change_to_degraded_leaves_the_past_down(at, shifter):
    samweb = service("samweb", at)
    incident = open_incident(
        service=samweb, state=State.DOWN, title="No answer", by=shifter, at=at + 5 * MINUTE
    )
    changed = {"title": "Slow", "by": shifter, "reason": "Half of the nodes answer"}
    update_incident(incident=incident, state=State.DEGRADED, at=at + 9 * MINUTE, **changed)
    assert states(samweb, at) == [("up", 0), ("down", 5), ("degraded", 9)]
    assert Event.objects.get(kind="incident.changed").old == "down"
    update_incident(
        incident=incident, state=State.DOWN, at=at + 20 * MINUTE, since=at + 15 * MINUTE, **changed
    )
    assert states(samweb, at) == [("up", 0), ("down", 5), ("degraded", 9), ("down", 15)]
    close_incident(
        incident=incident, by=shifter, at=at + 20 * MINUTE, reason="x", ended_at=at + 12 * MINUTE
    )
    assert states(samweb, at) == [("up", 0), ("down", 5), ("degraded", 9), ("up", 12)]
    assert Incident.objects.get().state == "degraded"


@pytest.mark.parametrize("minute", [4, 11])
def test_change_outside_of_its_incident_is_refused(at, shifter, minute):
    samweb = service("samweb", at)
    incident = open_incident(
        service=samweb, state=State.DOWN, title="x", by=shifter, at=at + 5 * MINUTE
    )
    with pytest.raises(InvalidFields, match="between the start"):
        update_incident(
            incident=incident,
            state=State.DEGRADED,
            title="x",
            by=shifter,
            at=at + 10 * MINUTE,
            since=at + minute * MINUTE,
            reason="x",
        )


def test_job_is_compared_with_the_state_while_it_ran(at, shifter):
    samweb = service("samweb", at)
    incident = open_incident(
        service=samweb, state=State.DOWN, title="x", by=shifter, at=at + 5 * MINUTE
    )
    update_incident(
        incident=incident,
        state=State.DEGRADED,
        title="x",
        by=shifter,
        at=at + 9 * MINUTE,
        reason="x",
    )
    early, late = (
        outages_during([samweb.pk], at + first * MINUTE, at + last * MINUTE, at=at)[0]
        for first, last in ((6, 8), (9, 12))
    )
    assert (early.state, late.state) == ("down", "degraded")


def test_alert_that_becomes_less_severe_keeps_its_past(at, db):
    prometheus = source(at, heartbeat_timeout_seconds=7200)
    samweb = service("samweb", at, source=prometheus)
    post(prometheus, at + MINUTE, alert(at, service="samweb"))
    post(prometheus, at + 9 * MINUTE, alert(at, severity="warning", service="samweb"))
    assert states(samweb, at)[:2] == [("down", 0), ("degraded", 9)]
    post(prometheus, at + 5 * MINUTE, alert(at, severity="warning", service="samweb"))
    assert states(samweb, at)[:2] == [("down", 0), ("degraded", 5)]
    assert samweb.incidents.get().state == "degraded"
    assert Event.objects.filter(kind="incident.changed").count() == 2


changes = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from([State.DOWN, State.DEGRADED])),
    max_size=7,
    unique_by=lambda change: change[0],
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    changes.flatmap(lambda told: st.tuples(st.just(told), st.permutations(told))),
    st.integers(0, 60) | st.none(),
)
def test_changes_in_any_order_give_the_same_spans(at, shifter, pair, closed):
    later, found = at + timedelta(hours=2), []
    for order in pair:
        with transaction.atomic():
            samweb = service("samweb", at - MINUTE)
            incident = open_incident(
                service=samweb, state=State.DOWN, title="x", by=shifter, at=at - MINUTE
            )
            for minute, state in order:
                since = at + minute * MINUTE
                update_incident(
                    incident=incident,
                    state=state,
                    title="x",
                    by=shifter,
                    at=later,
                    since=since,
                    reason="x",
                )
            if closed is not None:
                end = at + closed * MINUTE
                close_incident(incident=incident, by=shifter, at=later, reason="x", ended_at=end)
            found.append(([row[1:5] for row in rows(samweb)], Incident.objects.get().state))
            transaction.set_rollback(True)
    assert found[0] == found[1]
    for (_, _, ended_at, _), (_, started_at, _, _) in pairwise(found[0][0]):
        assert ended_at == started_at
    for minute in range(61):
        expected = max(((m, s) for m, s in pair[0] if m <= minute), default=(0, State.DOWN))[1]
        if closed is not None and minute >= closed:
            expected = State.UP
        moment = at + minute * MINUTE
        [told] = [
            state
            for state, start, end, _ in found[0][0]
            if start <= moment and (end is None or end > moment)
        ]
        assert told == expected


def test_weekly_work_keeps_its_hour_when_summer_time_ends(shifter):
    samweb, zone = service("samweb", datetime(2026, 1, 1, tzinfo=UTC)), ZoneInfo("Europe/Berlin")
    start = datetime(2026, 10, 20, 9, tzinfo=zone)
    first = schedule_window(
        services=[samweb], title="Patches", starts_at=start, ends_at=start + timedelta(hours=2), by=shifter,
        at=start, repeat=Repeat.WEEKLY, last_day=date(2026, 11, 3), zone=zone,
    )  # fmt: skip
    series = DowntimeWindow.objects.filter(series=first.series).order_by("starts_at")
    assert [sery.starts_at.astimezone(UTC).hour for sery in series] == [7, 8, 8]
    assert {sery.starts_at.astimezone(zone).hour for sery in series} == {9}
    rest = series[1]
    cancel_window(window=rest, by=shifter, at=start, reason="Moved", following=True)
    assert [each.cancelled_at is None for each in series.all()] == [True, False, False]
    intervals = StateInterval.objects.filter(service=samweb, state=State.MAINTENANCE)
    assert [row.started_at for row in intervals] == [start]


@pytest.mark.parametrize(
    ("start", "last_day", "days"),
    [
        ("2026-01-13", "2026-04-30", ["2026-01-13", "2026-02-10", "2026-03-10", "2026-04-14"]),
        ("2026-01-30", "2026-03-31", ["2026-01-30", "2026-02-27", "2026-03-27"]),
    ],
    ids=["second Tuesday", "last Friday"],
)
def test_monthly_work_stays_on_its_weekday(shifter, start, last_day, days):
    start = datetime.fromisoformat(f"{start}T09:00Z")
    schedule_window(
        services=[service("samweb", start)], title="Patches", starts_at=start, ends_at=start + MINUTE, by=shifter,
        at=start, repeat=Repeat.MONTHLY, last_day=date.fromisoformat(last_day),
    )  # fmt: skip
    dates = DowntimeWindow.objects.order_by("starts_at").values_list("starts_at__date", flat=True)
    assert [str(day) for day in dates] == days


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("last_day", {"repeat": "daily"}),
        ("last_day", {"repeat": "daily", "last_day": date(2025, 12, 31)}),
        ("last_day", {"repeat": "daily", "last_day": date(2029, 1, 1)}),
        ("repeat", {"last_day": date(2026, 2, 1)}),
        ("ends_at", {"repeat": "daily", "last_day": date(2026, 2, 1)}),
    ],
)
def test_repeated_work_is_refused_by_field(shifter, field, wrong):
    start = datetime(2026, 1, 1, 9, tzinfo=UTC)
    times = {"starts_at": start, "ends_at": start + timedelta(days=1, minutes=1)}
    with pytest.raises(InvalidFields) as refused:
        schedule_window(
            services=[service("samweb", start)], title="x", by=shifter, at=start, **times, **wrong
        )
    assert list(refused.value.problems) == [field]
    assert not DowntimeWindow.objects.exists()
