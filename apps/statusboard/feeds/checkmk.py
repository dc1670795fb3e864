"""Checkmk: the variables of a notification script (`NOTIFY_NAME=value` lines), or the JSON of a webhook.

Its date texts are local time without a zone, so only MICROTIME counts; without it, the time of arrival.
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
        given = variables(body, "NOTIFY_")
        kind = (given.get("NOTIFICATIONTYPE") or given.get("NOTIFICATION_TYPE", "")).upper()
        host = given.get("HOSTNAME") or given.get("HOST", "")
        if not kind or not host:
            raise UnreadablePayload("not a Checkmk notification: NOTIFICATIONTYPE or HOSTNAME is missing")
        if not kind.startswith((*_OPENS, *_ENDS)):
            return Message()  # acknowledgements, downtimes, custom notifications
        check = given.get("SERVICEDESC") or given.get("SERVICE", "")
        labels = {"host": host} | ({"check": check} if check else {})
        state = given.get("SERVICESTATE" if check else "HOSTSTATE") or given.get("STATUS", "")
        is_open = kind.startswith(_OPENS)
        at = _time(given)
        return Message(
            (
                Alert(
                    dedup_key="!".join(labels.values())[:200],
                    status=Status.OPEN if is_open else Status.RESOLVED,
                    started_at=None,
                    ended_at=None if is_open else at,
                    reported_at=at,
                    labels=labels | ({"site": given["SITE"]} if given.get("SITE") else {}),
                    title=given.get("SUMMARY") or f"{' '.join(labels.values())} {state.lower()}".strip(),
                    text=given.get("SERVICEOUTPUT") or given.get("HOSTOUTPUT") or given.get("OUTPUT", ""),
                    severity="critical" if state.upper() in _CRITICAL else "warning",
                ),
            )
        )


def _time(given: dict[str, str]) -> datetime | None:
    try:
        microseconds = int(given.get("MICROTIME", "0"))
        return epoch(microseconds / 1e6)
    except (ValueError, OverflowError, OSError) as error:
        raise UnreadablePayload(f"invalid MICROTIME: {error}") from error
