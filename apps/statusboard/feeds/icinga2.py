"""Icinga 2: its event stream and object queries as JSON lines, and Icinga Notifications.

Only hard states count. States in a stream have no start: an episode starts with its first hard
problem.
"""

from datetime import datetime
from typing import Any

from apps.statusboard.feeds.base import Alert, Feed, Message, Status, UnreadablePayload
from apps.statusboard.feeds.values import epoch, json_lines, text_of, without_empty

_HARD = 1
#: The states of Icinga Notifications' severities, as numbers.
_STATES_OF_SEVERITIES = {"ok": 0, "warning": 1, "crit": 2, "critical": 2, "unknown": 3, "down": 1}


class Icinga2(Feed):
    name = "icinga2"
    pulls = ("v1/objects/hosts?filter=host.state!=0", "v1/objects/services?filter=service.state!=0")

    def parse(self, body: bytes) -> Message:
        rows = json_lines(body, "Icinga 2 events")
        answers = []
        for record in rows:
            if isinstance(record.get("results"), list):
                answers.append(record["results"])
        events = [record for record in rows if "results" not in record]
        for results in answers:
            events.extend(event for event in results if isinstance(event, dict))

        alerts: list[Alert] = []
        notes: list[str] = []
        for place, event in enumerate(events):
            if "error" in event:
                raise UnreadablePayload(
                    f"Icinga 2 answers {text_of(event['error'])}: {text_of(event.get('status'))}"
                )
            try:
                alert = _alert(event)
            except (ValueError, OverflowError, TypeError, OSError) as error:
                notes.append(f"event {place} skipped: {error}")
                continue
            if alert is not None:
                alerts.append(alert)
        return Message(
            tuple(alerts), tuple(notes), is_complete=len(answers) == len(self.pulls) and not notes
        )


def _alert(event: dict[str, Any]) -> Alert | None:
    """Return the alert of an event, an object or a notification; None if it says no hard state."""
    kind = event.get("type")
    attributes = event.get("attrs")
    if kind == "StateChange":
        return _alert_of_event(event)
    if kind in ("Host", "Service") and isinstance(attributes, dict):
        return _alert_of_object(attributes, is_service=kind == "Service")
    if kind == "state" and isinstance(event.get("tags"), dict):
        return _alert_of_notification(event, event["tags"])
    return None


def _alert_of_event(event: dict[str, Any]) -> Alert | None:
    if event.get("state_type") != _HARD:
        return None
    return _alert_of_state(
        event.get("host"),
        event.get("service"),
        event.get("state"),
        epoch(event.get("timestamp")),
        _output_of(event.get("check_result")),
    )


def _alert_of_object(attributes: dict[str, Any], *, is_service: bool) -> Alert | None:
    """Return the alert of the attributes of a host or a service."""
    if attributes.get("state_type") != _HARD:
        return None
    host = attributes.get("name")
    service = None
    if is_service:
        host = attributes.get("host_name")
        service = attributes.get("name")
    return _alert_of_state(
        host,
        service,
        attributes.get("state"),
        epoch(attributes.get("last_hard_state_change")),
        _output_of(attributes.get("last_check_result")),
    )


def _alert_of_notification(event: dict[str, Any], tags: dict[str, Any]) -> Alert:
    """Return the alert of a notification of Icinga Notifications."""
    state = _STATES_OF_SEVERITIES.get(text_of(event.get("severity")), 2)
    return _alert_of_state(tags.get("host"), tags.get("service"), state, None, event.get("message"))


def _output_of(result: object) -> object:
    return result.get("output") if isinstance(result, dict) else ""


def _alert_of_state(
    host: object, service: object, state: object, at: datetime | None, output: object
) -> Alert:
    """Return the alert of a host (1 is down) or a service (1 warning, 2 critical, 3 unknown)."""
    labels = without_empty({"host": text_of(host), "check": text_of(service)})
    number = int(float(str(state)))
    is_open = number != 0
    is_critical = number == 2 if "check" in labels else is_open
    return Alert(
        dedup_key="!".join(labels.values())[:200],
        status=Status.OPEN if is_open else Status.RESOLVED,
        started_at=None,
        ended_at=None if is_open else at,
        reported_at=at,
        labels=labels,
        title=" ".join(labels.values()),
        text=text_of(output),
        severity="critical" if is_critical else "warning",
    )
