"""Checkmk: `NOTIFY_NAME=value` lines of a notification script, or the JSON of a webhook.

Its dates are local time without a zone, so only MICROTIME is used; without it, the time of arrival.
"""

from datetime import datetime

from apps.statusboard.feeds.base import Alert, Feed, Message, Status, UnreadablePayload
from apps.statusboard.feeds.reading import epoch, variables

_OPENS = ("PROBLEM", "FLAPPINGSTART")
_ENDS = ("RECOVERY", "FLAPPINGSTOP")
_CRITICAL = {"CRIT", "CRITICAL", "DOWN", "UNREACH", "UNREACHABLE"}


class Checkmk(Feed):
    name = "checkmk"

    def parse(self, body: bytes) -> Message:
        fields = variables(body, "NOTIFY_")
        kind = (fields.get("NOTIFICATIONTYPE") or fields.get("NOTIFICATION_TYPE", "")).upper()
        host = fields.get("HOSTNAME") or fields.get("HOST", "")
        if not kind or not host:
            raise UnreadablePayload(
                "not a Checkmk notification: NOTIFICATIONTYPE or HOSTNAME is missing"
            )
        if not kind.startswith((*_OPENS, *_ENDS)):
            return Message()
        # Acknowledgements, downtimes and custom notifications are ignored.
        check = fields.get("SERVICEDESC") or fields.get("SERVICE", "")
        labels = {"host": host} | ({"check": check} if check else {})
        state = fields.get("SERVICESTATE" if check else "HOSTSTATE") or fields.get("STATUS", "")
        is_open = kind.startswith(_OPENS)
        at = _time(fields)
        alert = Alert(
            dedup_key="!".join(labels.values())[:200],
            status=Status.OPEN if is_open else Status.RESOLVED,
            started_at=None,
            ended_at=None if is_open else at,
            reported_at=at,
            labels=labels | ({"site": fields["SITE"]} if fields.get("SITE") else {}),
            title=fields.get("SUMMARY") or f"{' '.join(labels.values())} {state.lower()}".strip(),
            text=fields.get("SERVICEOUTPUT")
            or fields.get("HOSTOUTPUT")
            or fields.get("OUTPUT", ""),
            severity="critical" if state.upper() in _CRITICAL else "warning",
        )
        return Message((alert,))


def _time(fields: dict[str, str]) -> datetime | None:
    try:
        microseconds = int(fields.get("MICROTIME", "0"))
        return epoch(microseconds / 1e6)
    except (ValueError, OverflowError, OSError) as error:
        raise UnreadablePayload(f"invalid MICROTIME: {error}") from error
