from datetime import timedelta
from itertools import permutations

import pytest
from django.db import OperationalError, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.core.models import Event
from apps.statusboard import tasks
from apps.statusboard.domain.board.board import board_row, read_board
from apps.statusboard.domain.incidents.incidents import close_incident
from apps.statusboard.domain.monitoring import payloads
from apps.statusboard.domain.monitoring.payloads import (
    parse_payload,
    parse_waiting_payload,
    receive_payload,
)
from apps.statusboard.domain.monitoring.rules import add_rule, delete_old_payloads, replay_payloads
from apps.statusboard.models import Incident, RawPayload, UnmappedAlert
from tests.factories.statusboard import alert, message, post, service, source, states, watchdog

MINUTE = timedelta(minutes=1)


@pytest.fixture
def prometheus(at, db):
    return source(at)


@pytest.fixture
def samweb(at, prometheus):
    return service("samweb", at, source=prometheus)


def incidents():
    fields = ("dedup_key", "started_at", "ended_at", "resolution")
    return list(Incident.objects.order_by("started_at", "dedup_key").values_list(*fields))


def test_alert_that_fires_opens_an_incident_of_the_service_it_names(at, prometheus, samweb):
    payload = post(prometheus, at, alert(at, service="samweb"))
    incident = Incident.objects.get()
    assert (payload.state, payload.unmapped) == ("parsed", 0)
    assert (incident.service, incident.state, incident.title) == (
        samweb,
        "down",
        "It does not answer",
    )
    assert incident.opened_by == "prometheus"


def test_severity_that_is_not_critical_is_degraded(at, prometheus, samweb):
    post(prometheus, at, alert(at, service="samweb", severity="warning"))
    assert Incident.objects.get().state == "degraded"


def test_every_alert_is_decided_by_its_own_status(at, prometheus, samweb):
    service("dcache", at)
    post(
        prometheus,
        at + 9 * MINUTE,
        alert(at, service="samweb"),
        alert(at, at + MINUTE, key="other", service="dcache"),
    )
    assert incidents() == [("f404", at, None, ""), ("other", at, at + MINUTE, "resolved")]


def test_same_message_twice_changes_nothing(at, prometheus, samweb):
    for _ in range(2):
        post(prometheus, at, alert(at, service="samweb"))
        post(prometheus, at + 9 * MINUTE, alert(at, at + 5 * MINUTE, service="samweb"))
    assert incidents() == [("f404", at, at + 5 * MINUTE, "resolved")]
    assert Event.objects.filter(kind="incident.opened").count() == 1
    assert Event.objects.filter(kind="incident.closed").count() == 1


def test_old_firing_after_resolved_does_not_open_again(at, prometheus, samweb):
    post(prometheus, at + 9 * MINUTE, alert(at, at + 5 * MINUTE, service="samweb"))
    post(prometheus, at + 10 * MINUTE, alert(at, service="samweb"))
    assert incidents() == [("f404", at, at + 5 * MINUTE, "resolved")]


def test_new_start_is_a_new_episode_and_flapping_is_counted(at, prometheus, samweb):
    for begin in (0, 10, 20):
        post(prometheus, at + (begin + 1) * MINUTE, alert(at + begin * MINUTE, service="samweb"))
        end = at + (begin + 5) * MINUTE
        post(prometheus, end, alert(at + begin * MINUTE, end, service="samweb"))
    assert list(Incident.objects.order_by("started_at").values_list("flap_count", flat=True)) == [
        0,
        1,
        2,
    ]


def test_resolved_without_an_end_ends_when_it_was_received(at, prometheus, samweb):
    resolved = alert(at, service="samweb") | {"status": "resolved"}
    post(prometheus, at + 9 * MINUTE, resolved)
    assert Incident.objects.get().ended_at == at + 9 * MINUTE


def test_incident_closed_by_hand_stays_closed(at, prometheus, samweb, shifter):
    post(prometheus, at, alert(at, service="samweb"))
    close_incident(
        incident=Incident.objects.get(), by=shifter, at=at + 5 * MINUTE, reason="Seen to work"
    )
    post(prometheus, at + 6 * MINUTE, alert(at, service="samweb"))
    post(prometheus, at + 9 * MINUTE, alert(at, at + 8 * MINUTE, service="samweb"))
    assert incidents() == [("f404", at, at + 5 * MINUTE, "manual")]


def test_new_episode_ends_the_one_that_nobody_ended(at, prometheus, samweb):
    post(prometheus, at, alert(at, service="samweb"))
    post(prometheus, at + 20 * MINUTE, alert(at + 20 * MINUTE, service="samweb"))
    assert incidents()[0] == ("f404", at, at + 20 * MINUTE, "superseded")
    post(prometheus, at + 21 * MINUTE, alert(at, at + 3 * MINUTE, service="samweb"))
    assert incidents()[0] == ("f404", at, at + 3 * MINUTE, "resolved")


def test_three_messages_in_every_order_end_alike(at, prometheus, samweb):
    told = [
        (at + MINUTE, alert(at, service="samweb")),
        (at + 6 * MINUTE, alert(at, at + 5 * MINUTE, service="samweb")),
        (at + 9 * MINUTE, alert(at + 8 * MINUTE, service="samweb")),
    ]
    outcomes = []
    for order in permutations(told):
        with transaction.atomic():
            for moment, one in order:
                post(prometheus, moment, one)
            outcomes.append((incidents(), states(samweb, at)))
            transaction.set_rollback(True)
    assert outcomes == [outcomes[0]] * len(outcomes)
    assert outcomes[0][1][:4] == [("down", 0), ("up", 5), ("down", 8), ("unknown", 69)]


episodes = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 9) | st.none(), st.integers(40, 90)),
    min_size=1,
    max_size=6,
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(episodes.flatmap(lambda told: st.tuples(st.just(told), st.permutations(told))))
def test_messages_in_any_order_end_in_the_same_incidents(at, prometheus, samweb, pair):
    outcomes = []
    for told in pair:
        with transaction.atomic():
            for begin, length, heard in told:
                start = at + begin * 10 * MINUTE
                end = start + length * MINUTE if length else None
                post(prometheus, at + heard * MINUTE, alert(start, end, service="samweb"))
            outcomes.append((incidents(), states(samweb, at)))
            transaction.set_rollback(True)
    assert outcomes[0] == outcomes[1]


def test_heartbeat_opens_no_incident(at, prometheus, samweb):
    payload = post(prometheus, at, watchdog(at))
    prometheus.refresh_from_db()
    assert not Incident.objects.exists()
    assert payload.unmapped == 0
    assert prometheus.covered_until == at + timedelta(seconds=900)


def test_alert_of_no_service_is_listed_and_found_when_a_rule_is_added(
    at, prometheus, samweb, shifter, django_capture_on_commit_callbacks, settings
):
    settings.CELERY_TASK_ALWAYS_EAGER = True
    payload = post(prometheus, at, alert(at, job="sam"))
    assert payload.unmapped == 1
    assert list(UnmappedAlert.objects.values_list("labels__job", "count")) == [("sam", 1)]
    add_rule(source=prometheus, matchers={"job": "sam"}, service=samweb, by=shifter, at=at)
    assert not UnmappedAlert.objects.exists()
    assert replay_payloads(source=prometheus) == 1
    assert Incident.objects.get().service == samweb
    assert RawPayload.objects.get().unmapped == 0


def test_rule_without_a_service_leaves_its_alerts_out(at, prometheus, samweb, shifter):
    add_rule(source=prometheus, matchers={"job": "sam"}, service=None, by=shifter, at=at)
    assert post(prometheus, at, alert(at, job="sam", service="samweb")).unmapped == 0
    assert not Incident.objects.exists()


def test_rule_may_name_the_state(at, prometheus, samweb, shifter):
    add_rule(
        source=prometheus,
        matchers={"job": "sam"},
        service=samweb,
        state="degraded",
        by=shifter,
        at=at,
    )
    post(prometheus, at, alert(at, job="sam"))
    assert Incident.objects.get().state == "degraded"


@pytest.mark.parametrize("body", [b"", b"\xff\x00", b"[3]", b'{"alerts": 3}', b"[" * 100_000])
def test_payload_that_cannot_be_read_is_kept_with_its_reason(at, prometheus, body):
    payload = parse_payload(payload_id=receive_payload(source=prometheus, body=body, at=at).pk)
    assert payload.state == "failed"
    assert payload.notes
    assert bytes(payload.body) == body


def test_payload_that_cannot_be_read_is_a_fault_of_its_source_for_a_day(at, prometheus, samweb):
    post(prometheus, at, watchdog(at))
    assert board_row(samweb, at).source_label == "prometheus"
    parse_payload(payload_id=receive_payload(source=prometheus, body=b"{}", at=at).pk)
    [row] = read_board(at + MINUTE)
    assert (row.own, row.source_label) == ("up", "prometheus, payload not read")
    assert "list “alerts” is missing" in row.fault.notes
    assert board_row(samweb, at + timedelta(hours=25)).fault is None


def test_payload_of_which_an_alert_was_skipped_is_a_fault_too(at, prometheus, samweb):
    post(prometheus, at, alert(at, service="samweb") | {"startsAt": ""})
    assert "startsAt is missing" in board_row(samweb, at).fault.notes


def test_payload_of_a_format_that_is_gone_is_kept(at, prometheus):
    prometheus.feed = "gone"
    prometheus.save()
    assert post(prometheus, at, watchdog(at)).state == "failed"


def test_payload_whose_message_was_lost_is_parsed_by_the_clock(at, prometheus, samweb):
    receive_payload(source=prometheus, body=message(alert(at, service="samweb")), at=at)
    tasks.parse_waiting()
    assert Incident.objects.get().service == samweb


def test_payloads_are_dropped_a_month_after_they_were_parsed(at, prometheus):
    post(prometheus, at, watchdog(at))
    parse_payload(payload_id=receive_payload(source=prometheus, body=b"?", at=at).pk)
    assert delete_old_payloads(at=at + timedelta(days=29)) == 0
    assert delete_old_payloads(at=at + timedelta(days=31)) == 1
    assert RawPayload.objects.get().state == "failed"
    assert delete_old_payloads(at=at + timedelta(days=181)) == 1


def test_payload_that_met_a_deadlock_waits_and_is_read_again(at, prometheus, samweb, monkeypatch):
    def deadlock(**_):
        raise OperationalError("deadlock detected")

    payload = receive_payload(source=prometheus, body=message(alert(at, service="samweb")), at=at)
    with monkeypatch.context() as patch:
        patch.setattr(payloads, "apply_message", deadlock)
        assert not parse_waiting_payload(payload_id=payload.pk, at=at)
    payload.refresh_from_db()
    assert (payload.state, payload.attempts) == ("received", 1)
    assert payload.last_error == "OperationalError: deadlock detected"
    assert payload.due_at == at + timedelta(seconds=10)
    tasks.parse_waiting()
    assert Incident.objects.get().service == samweb
    payload.refresh_from_db()
    assert (payload.state, payload.attempts, payload.last_error) == ("parsed", 2, "")


def test_payload_that_meets_a_deadlock_delays_no_other(at, prometheus, samweb, monkeypatch):
    def deadlock(*, at, **_):
        if at == first.received_at:
            raise OperationalError("deadlock detected")

    first = receive_payload(source=prometheus, body=message(alert(at)), at=at)
    second = receive_payload(source=prometheus, body=message(alert(at)), at=at + MINUTE)
    monkeypatch.setattr(payloads, "apply_message", lambda **facts: deadlock(**facts) or 0)
    tasks.parse_waiting()
    assert set(RawPayload.objects.values_list("pk", "state")) == {
        (first.pk, "received"),
        (second.pk, "parsed"),
    }


def test_alerts_that_led_nowhere_are_dropped_a_month_after_they_were_heard(at, prometheus):
    post(prometheus, at, alert(at, service="nobody-knows"))
    delete_old_payloads(at=at + timedelta(days=29))
    assert UnmappedAlert.objects.exists()
    delete_old_payloads(at=at + timedelta(days=31))
    assert not UnmappedAlert.objects.exists()
