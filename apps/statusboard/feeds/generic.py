"""JSON of any kind, parsed with the mapping of its source."""

from typing import Any

from apps.statusboard.feeds.base import Alert, Feed, Message, Status, UnreadablePayload
from apps.statusboard.feeds.values import epoch, json_of, text_of, time_of

#: Names of a mapping with their descriptions; `key` and `state` are required.
FIELDS = {
    "items": "Path of the list of alerts. Empty: the payload is one alert.",
    "key": "Path of the ID of an alert.",
    "state": "Path of its state.",
    "open": "States that are a problem, separated by commas. Empty: all others.",
    "resolved": "States that are none, separated by commas.",
    "severity": "Path of its severity; critical means down.",
    "critical": "Severities that mean down, separated by commas.",
    "title": "Path of its title.",
    "text": "Path of its description.",
    "url": "Path of a link.",
    "started_at": "Path of its start: ISO 8601 with a zone, or seconds since 1970.",
    "ended_at": "Path of its end.",
    "labels": "Paths that rules can match, separated by commas.",
}


class GenericJson(Feed):
    """Parses a payload with a mapping from fields to paths or values.

    A path consists of names and numbers joined by dots.
    """

    name = "json"

    def parse(self, body: bytes) -> Message:
        payload = json_of(body, "a JSON payload")
        if not self.mapping.get("key") or not self.mapping.get("state"):
            raise UnreadablePayload("the source has no mapping yet: set where ID and state are")
        if self.mapping.get("items"):
            items = _at(payload, self.mapping["items"])
        else:
            items = [payload]
        if not isinstance(items, list):
            raise UnreadablePayload(f"no list at “{self.mapping['items']}”")
        alerts = []
        notes = []
        for place, item in enumerate(items):
            try:
                alerts.append(self._alert(item))
            except (ValueError, OverflowError, OSError) as error:
                notes.append(f"alert {place} skipped: {error}")
        return Message(tuple(alert for alert in alerts if alert), tuple(notes))

    def _alert(self, item: Any) -> Alert | None:
        key = self._text(item, "key")
        state = self._text(item, "state")
        if not key or not state:
            raise ValueError(f"no value at “{self.mapping['state' if key else 'key']}”")
        resolved = self._values("resolved")
        opens = self._values("open")
        if state.casefold() in resolved:
            status = Status.RESOLVED
        elif not opens or state.casefold() in opens:
            status = Status.OPEN
        else:
            return None
        severity = self._text(item, "severity")
        if severity.casefold() in (self._values("critical") or {"critical"}):
            severity = "critical"
        labels = {}
        for path in self._parts("labels"):
            labels[path.rpartition(".")[2]] = text_of(_at(item, path))
        return Alert(
            dedup_key=key[:200],
            status=status,
            started_at=self._time(item, "started_at"),
            ended_at=self._time(item, "ended_at") if status is Status.RESOLVED else None,
            labels=labels,
            title=self._text(item, "title"),
            text=self._text(item, "text"),
            url=self._text(item, "url"),
            severity=severity,
        )

    def _values(self, name: str) -> set[str]:
        """Return the values that a name is mapped to, without their case."""
        return {value.casefold() for value in self._parts(name)}

    def _parts(self, name: str) -> list[str]:
        """Return what stands between commas in the mapping of a name."""
        parts = [part.strip() for part in self.mapping.get(name, "").split(",")]
        return [part for part in parts if part]

    def _text(self, item: Any, name: str) -> str:
        if not self.mapping.get(name):
            return ""
        return text_of(_at(item, self.mapping[name]))

    def _time(self, item: Any, name: str) -> Any:
        value = None
        if self.mapping.get(name):
            value = _at(item, self.mapping[name])
        if isinstance(value, int | float):
            return epoch(value)
        return time_of(value)


def _at(value: Any, path: str) -> Any:
    """Return the value at a path such as `data.alerts.0.id`, or None."""
    for name in path.split("."):
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value
