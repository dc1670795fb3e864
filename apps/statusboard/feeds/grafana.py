"""Grafana's webhook: unified alerting (version 1, Alertmanager's alerts) and legacy alerting."""

from apps.statusboard.feeds.alertmanager import Alertmanager
from apps.statusboard.feeds.base import Alert, Feed, Message, Status, UnreadablePayload
from apps.statusboard.feeds.values import json_of, text_of, texts


class Grafana(Feed):
    name = "grafana"

    def parse(self, body: bytes) -> Message:
        payload = json_of(body, "a Grafana message")
        if "alerts" in payload:
            return Alertmanager().parse(body)
        if "ruleId" not in payload:
            raise UnreadablePayload("not a Grafana message: neither “alerts” nor “ruleId”")
        # Legacy messages have no times, and the end names no series, so each rule is one alert.
        status = {"alerting": Status.OPEN, "no_data": Status.OPEN, "ok": Status.RESOLVED}.get(
            str(payload.get("state"))
        )
        if status is None:
            return Message(notes=(f"state {text_of(payload.get('state'))[:40]!r} skipped",))
        labels = texts(payload.get("tags")) | {"alertname": text_of(payload.get("ruleName"))}
        return Message(
            (
                Alert(
                    dedup_key=f"rule {text_of(payload['ruleId'])}"[:200],
                    status=status,
                    started_at=None,
                    labels=labels,
                    title=labels["alertname"] or text_of(payload.get("title")),
                    text=text_of(payload.get("message")),
                    url=text_of(payload.get("ruleUrl")),
                    severity=labels.get("severity", ""),
                ),
            )
        )
