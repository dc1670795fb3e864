"""Each feed format: the contract that all keep, and what real payloads mean."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from apps.statusboard.domain.monitoring.intake import pump
from apps.statusboard.domain.monitoring.payloads import parse_payload, receive_payload
from apps.statusboard.domain.monitoring.rules import add_rule
from apps.statusboard.feeds.base import Message, UnreadablePayload
from apps.statusboard.feeds.registry import FEEDS
from apps.statusboard.models import DowntimeWindow, Incident, MonitoringSource, UnmappedAlert
from tests.factories.statusboard import service, source, states

SAMPLES = Path(django_settings.BASE_DIR).parent / "shared" / "samples" / "monitoring"
MAPPING = {
    "key": "check_id",
    "state": "current_state",
    "resolved": "UP",
    "title": "check_name",
    "labels": "check_name",
}
HOUR = timedelta(hours=1)


def read(feed: str, body: bytes | str) -> Message:
    return FEEDS.get(feed)(MAPPING).parse(body.encode() if isinstance(body, str) else body)


def told(feed: str, body: str) -> list[tuple]:
    return [
        (a.status.value, a.dedup_key, a.started_at or a.reported_at, a.severity)
        for a in read(feed, body).alerts
    ]


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
_NAMES = [
    "alerts", "status", "labels", "ruleId", "state", "evalMatches", "type", "host", "state_type", "timestamp", "attrs",
    "tags", "NOTIFICATIONTYPE", "HOSTNAME", "TIMET", "MICROTIME", "eventid", "value", "clock", "heartbeat", "monitor",
    "components", "scheduled_maintenances", "check_id", "current_state", "event_id", "event_value", "time", "hosts",
    "jsonrpc", "result", "heartbeatList", "publicGroupList", "cgi",
]  # fmt: skip
_VALUES = _JSON | st.sampled_from(
    ["firing", "StateChange", "PROBLEM", "alerting", 1, [{}], {"status": 0, "id": 1}]
)


@pytest.mark.parametrize("feed", FEEDS.names())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    body=st.binary(max_size=60)
    | st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=6).map(
        lambda value: json.dumps(value).encode()
    )
    | st.sampled_from(
        [
            b"<Downtimes/>",
            b'<!DOCTYPE a [<!ENTITY b "c">]><results>&b;</results>',
            b"BEGIN:VCALENDAR\n",
        ]
    )
)
@example(body=b'{"eventid": 1, "value": 1, "clock": 1, "tags": ["no object"]}')
def test_whatever_arrives_is_read_or_refused(feed, body):
    try:
        message = read(feed, body)
    except UnreadablePayload:
        return
    assert all(len(alert.dedup_key) <= 200 and "\0" not in alert.title for alert in message.alerts)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no samples here")
@pytest.mark.parametrize(
    ("feed", "sample", "alerts", "windows"),
    [
        ("grafana", "grafana_unified_v1_firing.json", 2, 0),
        ("grafana", "grafana_legacy_alerting.json", 1, 0),
        ("grafana", "grafana_legacy_ok.json", 1, 0),
        ("grafana", "grafana_legacy_v6_two_matches.json", 1, 0),
        ("icinga2", "icinga2_event_stream.ndjson", None, 0),
        ("icinga2", "icinga2_objects_query.ndjson", None, 0),
        ("icinga2", "icinga_notifications_process_event.json", 1, 0),
        ("nagios", "nagios_notification_env_constructed.txt", 1, 0),
        ("nagios", "nagios_status.dat", None, 0),
        ("checkmk", "checkmk_keep_webhook_host_recovery.json", 1, 0),
        ("zabbix", "zabbix_export_events.ndjson", 2, 0),
        ("zabbix", "zabbix_webhook_eda_constructed_from_mediatype.json", 1, 0),
        ("uptime-kuma", "uptime_kuma_v1_down_issue1207_truncated.json", 1, 0),
        ("uptime-kuma", "uptime_kuma_v2_up_constructed_from_source.json", 1, 0),
        ("statuspage", "statuspage_summary_github_2022-11-25_incident.json", None, 0),
        ("osg-downtimes", "osg_topology_rgdowntime.xml", 0, None),
        ("gocdb", "gocdb_get_downtime.xml", 0, 3),
        ("gocdb", "gocdb_get_downtime_nested_services.xml", 0, 2),
        ("ical", "osg_topology_rgdowntime.ics", 0, None),
        ("ical", "ical_cawa_schedules.ics", 0, 2),
        ("ical", "ical_cawa_recurring.ics", 0, 31),
        ("ical", "ical_cawa_duplicate_ids.ics", 0, 31),
        ("json", "pingdom_down.json", 1, 0),
    ],
)
def test_real_payloads_are_read_whole(feed, sample, alerts, windows):
    message = read(feed, (SAMPLES / sample).read_bytes())
    assert message.notes == ()
    assert alerts in (None, len(message.alerts))
    assert windows in (None, len(message.windows))
    assert windows == 0 or message.windows
    assert all(window.ends_at > window.starts_at for window in message.windows)


def test_each_format_says_what_its_system_says():
    hard = {
        "type": "StateChange",
        "host": "sam01",
        "service": "http",
        "state_type": 1,
        "timestamp": 1787306400,
    }
    opened = utc(2026, 8, 21, 10)
    assert told("icinga2", json.dumps(hard | {"state": 2})) == [
        ("open", "sam01!http", opened, "critical")
    ]
    assert told("icinga2", json.dumps(hard | {"state": 0})) == [
        ("resolved", "sam01!http", opened, "warning")
    ]
    assert told("icinga2", json.dumps(hard | {"state": 2, "state_type": 0})) == []
    lines = "NAGIOS_NOTIFICATIONTYPE=PROBLEM\nNAGIOS_HOSTNAME=sam01\nNAGIOS_HOSTSTATE=DOWN\nNAGIOS_TIMET=1787306400"
    assert told("nagios", lines) == [("open", "sam01", opened, "critical")]
    assert told("nagios", lines.replace("PROBLEM", "ACKNOWLEDGEMENT")) == []
    checkmk = (
        "NOTIFY_NOTIFICATIONTYPE=RECOVERY\nNOTIFY_HOSTNAME=a\nNOTIFY_SERVICEDESC=b\n"
        "NOTIFY_MICROTIME=1787306400000000"
    )
    assert told("checkmk", checkmk) == [("resolved", "a!b", opened, "warning")]
    kuma = {
        "monitor": {"id": 3, "name": "sam"},
        "heartbeat": {"status": 0, "time": "2026-08-21 10:00:00.1"},
        "msg": "",
    }
    assert told("uptime-kuma", json.dumps(kuma)) == [("open", "monitor 3", opened, "critical")]
    assert read("uptime-kuma", '{"heartbeat": null, "msg": "test"}') == Message()
    down = (
        "<Downtimes><Downtime><ID>1</ID><ResourceName>SE</ResourceName><StartTime>Aug 21, 2026 "
        "22:00 PM UTC</StartTime>"
    )
    down += "<EndTime>Aug 22, 2026 00:30 AM UTC</EndTime><Severity>Severe</Severity></Downtime></Downtimes>"
    (window,) = read("osg-downtimes", down).windows
    assert (window.starts_at, window.ends_at) == (utc(2026, 8, 21, 22), utc(2026, 8, 22, 0, 30))
    assert (window.effect, window.labels["resource"]) == ("down", "SE")
    weekly = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:x\nDTSTART;TZID=Europe/Berlin:20261019T090000\nDURATION:PT1H\n"
    weekly += "RRULE:FREQ=WEEKLY;COUNT=3\nEXDATE;TZID=Europe/Berlin:20261026T090000\nEND:VEVENT\nEND:VCALENDAR\n"
    # Summer time ends between the first and the last.
    assert [w.starts_at for w in read("ical", weekly).windows] == [
        utc(2026, 10, 19, 7),
        utc(2026, 11, 2, 8),
    ]


def post(to, body, at):
    return parse_payload(
        payload_id=receive_payload(source=to, body=json.dumps(body).encode(), at=at).pk
    )


@pytest.fixture
def kuma(at, db):
    return source(at - 9 * HOUR, slug="kuma", feed="uptime-kuma", heartbeat_timeout_seconds=99_999)


def beat(status: int, at: datetime) -> dict:
    monitor = {"id": 3, "name": "sam", "tags": [{"name": "service", "value": "samweb"}]}
    return {
        "monitor": monitor,
        "heartbeat": {"status": status, "time": f"{at:%Y-%m-%d %H:%M:%S}"},
        "msg": "",
    }


def test_an_end_without_a_start_closes_the_episode_that_was_open(at, kuma):
    samweb = service("samweb", at - 9 * HOUR, source=kuma)
    for status, minutes in ((0, 0), (0, 5), (1, 20), (0, 5), (0, 40), (1, 50), (1, 51)):
        post(kuma, beat(status, at + timedelta(minutes=minutes)), at + timedelta(minutes=minutes))
    rows = Incident.objects.order_by("started_at").values_list("started_at", "ended_at")
    minutes = [tuple((each - at).total_seconds() / 60 for each in row) for row in rows]
    assert minutes == [(0, 20), (40, 50)]
    assert [state for state, _ in states(samweb, at)][:4] == ["down", "up", "down", "up"]


def test_an_end_that_arrives_before_its_start_ends_it(at, kuma):
    service("samweb", at - 9 * HOUR, source=kuma)
    for status, minutes in ((1, 20), (0, 5), (0, 30)):
        post(kuma, beat(status, at + timedelta(minutes=minutes)), at + HOUR)
    rows = Incident.objects.order_by("started_at").values_list("started_at", "ended_at")
    minutes = [tuple(each and (each - at).total_seconds() / 60 for each in row) for row in rows]
    assert minutes == [(5, 20), (30, None)]


def test_an_end_without_labels_closes_what_the_alert_was_mapped_to(at, db):
    zabbix = source(at, slug="zabbix", feed="zabbix")
    service("samweb", at)
    post(
        zabbix,
        {
            "clock": at.timestamp(),
            "value": 1,
            "eventid": 42,
            "tags": [{"tag": "service", "value": "samweb"}],
        },
        at,
    )
    post(
        zabbix,
        {"clock": at.timestamp() + 60, "value": 0, "eventid": 43, "p_eventid": 42},
        at + HOUR,
    )
    assert Incident.objects.get().ended_at == at + timedelta(minutes=1)
    assert not UnmappedAlert.objects.exists()


def page(status: str, *maintenance: dict) -> dict:
    component = {"id": "c1", "name": "SAM", "status": status}
    return {"components": [component], "scheduled_maintenances": list(maintenance)}


def test_complete_list_closes_and_cancels_what_is_gone(at, shifter):
    status = source(at, slug="status", feed="statuspage")
    samweb = service("samweb", at - 9 * HOUR)
    plan = {
        "id": "m1",
        "name": "Move",
        "scheduled_for": (at + HOUR).isoformat(),
        "scheduled_until": (at + 3 * HOUR).isoformat(),
        "components": [{"id": "c1", "name": "SAM"}],
    }
    payload = post(status, page("major_outage", plan), at)
    assert (payload.unmapped, Incident.objects.count()) == (2, 0)
    add_rule(source=status, matchers={"component": "SAM"}, service=samweb, by=shifter, at=at)
    parse_payload(payload_id=payload.pk)
    window = DowntimeWindow.objects.get()
    assert (window.title, window.starts_at, Incident.objects.get().state) == (
        "Move",
        at + HOUR,
        "down",
    )
    later = {**plan, "scheduled_for": (at + 2 * HOUR).isoformat()}
    post(status, page("operational", later), at + HOUR / 2)
    assert DowntimeWindow.objects.get().starts_at == at + 2 * HOUR
    assert Incident.objects.get().ended_at == at + HOUR / 2
    post(status, page("operational"), at + HOUR)
    assert DowntimeWindow.objects.get().cancelled_at == at + HOUR


def test_a_source_is_made_on_a_page_and_its_mapping_tried_before_it_is_saved(client, shifter, db):
    client.force_login(shifter)
    form = {
        "slug": "pings",
        "feed": "json",
        "heartbeat_timeout_seconds": "15 min",
        "lease_seconds": "1 h",
    }
    made = client.post("/services/monitoring/sources/new/", form)
    assert "Next: choose pings as the source of" in made.text
    assert "/help/monitoring/#feeds" in made.text
    assert MonitoringSource.objects.get().heartbeat_timeout_seconds == 900
    token = made.content.decode().split('Token</dt><dd class="mono">')[1].split("<")[0]
    headers = {"authorization": f"Bearer {token}"}
    body = {"check_id": 7, "current_state": "DOWN", "check_name": "Ping of SAM"}
    assert (
        client.post("/api/v1/feeds/pings/", body, "application/json", headers=headers).status_code
        == 202
    )
    pump()
    address = "/services/monitoring/sources/pings/mapping/"
    assert "Ping of SAM" in client.post(address, {**MAPPING, "try": "1"}).content.decode()
    assert client.post(address, {**MAPPING, "key": "", "save": "1"}).status_code == 400
    assert client.post(address, {**MAPPING, "save": "1"}).status_code == 302
    assert MonitoringSource.objects.get().mapping == MAPPING
    assert (
        client.post("/services/monitoring/sources/pings/token/", {"revoke_others": "1"}).status_code
        == 200
    )
    assert (
        client.post("/api/v1/feeds/pings/", body, "application/json", headers=headers).status_code
        == 401
    )


def test_a_wrong_source_is_told_in_plain_words_and_durations_have_units(client, shifter, db):
    client.force_login(shifter)
    address = "/services/monitoring/sources/new/"
    assert 'value="15 min"' in client.get(address).text
    form = {"slug": "our pings", "feed": "json", "lease_seconds": "an hour"}
    page = client.post(address, {**form, "heartbeat_timeout_seconds": "5 s"}).text
    assert "Use only letters, digits, hyphens and underscores." in page
    assert "Enter 1 min or more." in page
    assert not MonitoringSource.objects.exists()
