"""Checkmk: `NOTIFY_NAME=value` lines of a notification script, or the JSON of a webhook.

Its dates are local time without a zone, so only MICROTIME is used; without it, the time of arrival.
"""

from datetime import datetime

from apps.statusboard.feeds.base import Alert, Feed, Message, Status, UnreadablePayload
from apps.statusboard.feeds.values import epoch, variables, without_empty

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
        # Acknowledgements, downtimes and custom notifications are ignored.
        if not kind.startswith((*_OPENS, *_ENDS)):
            return Message()
        return Message((_alert(fields, host, is_open=kind.startswith(_OPENS)),))


def _alert(fields: dict[str, str], host: str, *, is_open: bool) -> Alert:
    """Return the alert of a host, or of one of its checks."""
    check = fields.get("SERVICEDESC") or fields.get("SERVICE", "")
    state_field = "SERVICESTATE" if check else "HOSTSTATE"
    state = fields.get(state_field) or fields.get("STATUS", "")
    about = without_empty({"host": host, "check": check})
    title = f"{' '.join(about.values())} {state.lower()}".strip()
    output = fields.get("SERVICEOUTPUT") or fields.get("HOSTOUTPUT") or fields.get("OUTPUT", "")
    at = _time(fields)
    return Alert(
        dedup_key="!".join(about.values())[:200],
        status=Status.OPEN if is_open else Status.RESOLVED,
        started_at=None,
        ended_at=None if is_open else at,
        reported_at=at,
        labels=without_empty(about | {"site": fields.get("SITE", "")}),
        title=fields.get("SUMMARY") or title,
        text=output,
        severity="critical" if state.upper() in _CRITICAL else "warning",
    )


def _time(fields: dict[str, str]) -> datetime | None:
    try:
        microseconds = int(fields.get("MICROTIME", "0"))
        return epoch(microseconds / 1e6)
    except (ValueError, OverflowError, OSError) as error:
        raise UnreadablePayload(f"invalid MICROTIME: {error}") from error
