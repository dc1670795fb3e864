"""Statuspage's summary.json, which many status pages serve: components and scheduled maintenance.

The states of components count, not the page's indicator or the impact of incidents: in practice
these disagree.
"""

from typing import Any

from apps.statusboard.feeds.base import Alert, Feed, Message, Status, UnreadablePayload, Window
from apps.statusboard.feeds.values import json_of, text_of, time_of

_SEVERITIES = {
    "major_outage": "critical",
    "partial_outage": "warning",
    "degraded_performance": "warning",
}


class Statuspage(Feed):
    name = "statuspage"
    pulls = ("",)

    def parse(self, body: bytes) -> Message:
        payload = json_of(body, "a Statuspage summary")
        components = payload.get("components")
        if not isinstance(components, list):
            raise UnreadablePayload("not a Statuspage summary: list “components” is missing")
        alerts: list[Alert] = []
        windows: list[Window] = []
        notes: list[str] = []
        for place, component in enumerate(components):
            try:
                alerts += _component(component, payload)
            except (AttributeError, ValueError, OverflowError) as error:
                notes.append(f"component {place} skipped: {error}")
        for place, maintenance in enumerate(payload.get("scheduled_maintenances") or []):
            try:
                windows += _windows(maintenance)
            except (AttributeError, ValueError, OverflowError, TypeError) as error:
                notes.append(f"maintenance {place} skipped: {error}")
        return Message(tuple(alerts), tuple(notes), tuple(windows), is_complete=True)


def _component(component: dict[str, Any], payload: dict[str, Any]) -> list[Alert]:
    severity = _SEVERITIES.get(str(component.get("status")))
    if severity is None:
        return []
    name = text_of(component.get("name"))
    page = payload.get("page")
    texts = [text_of(incident.get("name")) for incident in payload.get("incidents") or []]
    return [
        Alert(
            dedup_key=f"component {text_of(component.get('id'))}"[:200],
            status=Status.OPEN,
            started_at=None,
            reported_at=time_of(component.get("updated_at")),
            labels={"component": name},
            title=f"{name}: {text_of(component.get('status')).replace('_', ' ')}",
            text="\n".join(texts),
            url=text_of(page.get("url")) if isinstance(page, dict) else "",
            severity=severity,
        )
    ]


def _windows(maintenance: dict[str, Any]) -> list[Window]:
    """Return a window for each component of a maintenance."""
    starts_at = time_of(maintenance.get("scheduled_for"))
    ends_at = time_of(maintenance.get("scheduled_until"))
    if starts_at is None or ends_at is None or maintenance.get("status") == "completed":
        return []
    windows = []
    for component in maintenance.get("components") or []:
        windows.append(
            Window(
                key=f"{text_of(maintenance.get('id'))} {text_of(component.get('id'))}"[:200],
                starts_at=starts_at,
                ends_at=ends_at,
                title=text_of(maintenance.get("name")),
                labels={"component": text_of(component.get("name"))},
            )
        )
    return windows
