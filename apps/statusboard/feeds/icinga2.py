"""Icinga 2: its event stream and object queries as JSON lines, and Icinga Notifications.

Only hard states count. States in a stream have no start: an episode starts with its first hard
problem.
"""

from typing import Any

from apps.statusboard.feeds.base import Alert, Feed, Message, Status, UnreadablePayload
from apps.statusboard.feeds.reading import epoch, json_lines, text_of

_HARD = 1


class Icinga2(Feed):
    name = "icinga2"
    pulls = ("v1/objects/hosts?filter=host.state!=0", "v1/objects/services?filter=service.state!=0")

    def parse(self, body: bytes) -> Message:
        rows = json_lines(body, "Icinga 2 events")
        answers = []
        for row in rows:
            if isinstance(row.get("results"), list):
                answers.append(row["results"])
        events = [row for row in rows if "results" not in row]
        for results in answers:
            events.extend(row for row in results if isinstance(row, dict))

        alerts: list[Alert] = []
        notes: list[str] = []
        for place, row in enumerate(events):
            if "error" in row:
                raise UnreadablePayload(
                    f"Icinga 2 answers {text_of(row['error'])}: {text_of(row.get('status'))}"
                )
            try:
                alert = _alert(row)
            except (ValueError, OverflowError, TypeError, OSError) as error:
                notes.append(f"event {place} skipped: {error}")
                continue
            if alert is not None:
                alerts.append(alert)
        return Message(
            tuple(alerts), tuple(notes), is_complete=len(answers) == len(self.pulls) and not notes
        )


def _alert(row: dict[str, Any]) -> Alert | None:
    kind = row.get("type")
    attributes = row.get("attrs")
    if kind == "StateChange":
        if row.get("state_type") != _HARD:
            return None
        result = row.get("check_result")
        output = result.get("output") if isinstance(result, dict) else ""
        return _state(
            row.get("host"),
            row.get("service"),
            row.get("state"),
            epoch(row.get("timestamp")),
            output,
        )
    if kind in ("Host", "Service") and isinstance(attributes, dict):
        if attributes.get("state_type") != _HARD:
            return None
        result = attributes.get("last_check_result")
        output = result.get("output") if isinstance(result, dict) else ""
        service = attributes.get("name") if kind == "Service" else ""
        if kind == "Service":
            host = attributes.get("host_name")
        else:
            host = attributes.get("name")
        return _state(
            host,
            service,
            attributes.get("state"),
            epoch(attributes.get("last_hard_state_change")),
            output,
        )
    if kind == "state" and isinstance(row.get("tags"), dict):
        tags = row["tags"]
        bad = {"ok": 0, "warning": 1, "crit": 2, "critical": 2, "unknown": 3, "down": 1}
        severity = text_of(row.get("severity"))
        return _state(
            tags.get("host"), tags.get("service"), bad.get(severity, 2), None, row.get("message")
        )
    return None


def _state(host: object, service: object, state: object, at: Any, output: object) -> Alert:
    """Return the alert of a host (1 is down) or a service (1 warning, 2 critical, 3 unknown)."""
    labels = {"host": text_of(host), "check": text_of(service)}
    number = int(float(str(state)))
    is_open = number != 0
    critical = number == 2 if labels["check"] else is_open
    return Alert(
        dedup_key="!".join(filter(None, labels.values()))[:200],
        status=Status.OPEN if is_open else Status.RESOLVED,
        started_at=None,
        ended_at=None if is_open else at,
        reported_at=at,
        labels={name: value for name, value in labels.items() if value},
        title=" ".join(filter(None, labels.values())),
        text=text_of(output),
        severity="critical" if critical else "warning",
    )
