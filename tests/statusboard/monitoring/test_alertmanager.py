"""The Alertmanager format, by constructed payloads and by samples of real ones where they are at
hand.
"""

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.statusboard.feeds.alertmanager import Alertmanager
from apps.statusboard.feeds.base import Alert, Message, Status, UnreadablePayload

SAMPLES = Path(__file__).parents[3].parent / "shared" / "samples" / "monitoring"


def parse(*alerts, **more) -> Message:
    return Alertmanager().parse(
        json.dumps({"version": "4", "alerts": list(alerts), **more}).encode()
    )


def firing(**more) -> dict:
    return {
        "status": "firing",
        "startsAt": "2026-11-20T12:00:00Z",
        "endsAt": "0001-01-01T00:00:00Z",
    } | more


def sample(name: str) -> Message:
    if not SAMPLES.exists():
        pytest.skip("no samples here")
    return Alertmanager().parse((SAMPLES / name).read_bytes())


def test_time_of_the_year_one_is_no_end():
    [alert] = parse(firing(status="resolved")).alerts
    assert (alert.status, alert.ended_at) == (Status.RESOLVED, None)


def test_time_with_nanoseconds_and_zone_is_read():
    [alert] = parse(firing(startsAt="2026-11-20T07:00:00.123456789-05:00")).alerts
    # The API gives milliseconds.
    assert alert.started_at == datetime(2026, 11, 20, 12, 0, 0, 123000, tzinfo=UTC)


def test_alert_without_fingerprint_is_known_by_its_labels_in_any_order():
    one, other, third = parse(
        firing(labels={"a": "1", "b": "2"}),
        firing(labels={"b": "2", "a": "1"}),
        firing(labels={"a": "1"}),
    ).alerts
    assert one.dedup_key == other.dedup_key != third.dedup_key


def test_watchdog_is_a_heartbeat_and_nothing_once_resolved():
    labels = {"alertname": "Watchdog"}
    [alert] = parse(firing(labels=labels), firing(labels=labels, status="resolved")).alerts
    assert alert.status is Status.HEARTBEAT


def test_alert_that_cannot_be_read_is_noted_and_the_others_kept():
    message = parse(
        3,
        firing(startsAt="soon"),
        firing(status="maybe"),
        firing(startsAt="2026-11-20T12:00:00"),
        firing(),
    )
    assert len(message.alerts) == 1
    assert len(message.notes) == 4


def test_alerts_cut_off_by_the_sender_are_noted():
    assert parse(truncatedAlerts=7).notes == ("7 alerts truncated by the sender (max_alerts)",)


@pytest.mark.parametrize("url", ["javascript:alert(1)", "//x", "http://[", 7])
def test_address_that_is_no_web_page_is_dropped(url):
    [alert] = parse(firing(generatorURL=url)).alerts
    assert alert.url == ""


def test_text_that_the_database_cannot_hold_is_mended():
    [alert] = parse(firing(labels={"a\0": "\ud800"}, annotations={"summary": "x\0y"})).alerts
    assert (dict(alert.labels), alert.title) == ({"a": "?"}, "xy")


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=9,
)
alert_like = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["firing", "resolved", 3]) | json_values,
        "startsAt": st.datetimes().map(lambda at: at.isoformat() + "Z") | json_values,
        "endsAt": st.datetimes().map(lambda at: at.isoformat() + "+14:00") | json_values,
        "labels": json_values,
        "annotations": json_values,
        "fingerprint": json_values,
        "generatorURL": json_values,
    },
)


@given(
    st.binary(max_size=200)
    | st.lists(alert_like | json_values).map(lambda a: json.dumps({"alerts": a}).encode())
)
def test_any_bytes_are_read_or_refused_in_words(body):
    with suppress(UnreadablePayload):
        assert all(alert.started_at.tzinfo is UTC for alert in Alertmanager().parse(body).alerts)


def test_real_payload_with_two_alerts():
    message = sample("alertmanager_v4_firing_two_alerts.json")
    assert [(a.dedup_key, a.status) for a in message.alerts] == [
        ("f404ecabc8dd5cd7", "open"),
        ("f8f08d4e32c61a9d", "open"),
    ]
    assert message.alerts[0].title == "Instance localhost:8081 down"


def test_real_payload_of_mixed_status():
    message = sample("alertmanager_v4_mixed_firing_resolved.json")
    assert [a.status for a in message.alerts] == ["open", "resolved"]
    assert message.alerts[1].ended_at == datetime(2026, 8, 20, 10, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    "name",
    ["alertmanager_v3_legacy_int_groupkey.json", "alertmanager_v4_single_no_fingerprint_2017.json"],
)
def test_real_payload_without_fingerprint(name):
    [alert] = sample(name).alerts
    assert len(alert.dedup_key) == 32


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "http://[", "ftp://x", "file:///etc/passwd"]
)
def test_no_format_can_bring_a_link_that_is_not_of_the_web(url):
    assert Alert("key", Status.OPEN, datetime.now(UTC), url=url).url == ""
    assert (
        Alert("key", Status.OPEN, datetime.now(UTC), url="https://x.example/").url
        == "https://x.example/"
    )
