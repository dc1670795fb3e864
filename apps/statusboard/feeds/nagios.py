"""Nagios: the macros of a notification command, as `NAGIOS_NAME=value` lines or JSON, and the file status.dat."""

from collections.abc import Iterator
from contextlib import suppress

from apps.statusboard.feeds.base import Alert, Feed, Message, Status, UnreadablePayload
from apps.statusboard.feeds.reading import epoch, text_of, variables

_SEVERITIES = {"CRITICAL": "critical", "DOWN": "critical", "UNREACHABLE": "critical"}
_OPENS = ("PROBLEM", "FLAPPINGSTART")
_ENDS = ("RECOVERY", "FLAPPINGSTOP")
_HARD = "1"


class Nagios(Feed):
    name = "nagios"

    def parse(self, body: bytes) -> Message:
        text = body.decode(errors="replace")
        if "servicestatus {" in text or "hoststatus {" in text:
            return _status_file(text)
        given = variables(body, "NAGIOS_")
        if "NOTIFICATIONTYPE" not in given or "HOSTNAME" not in given:
            raise UnreadablePayload("not a Nagios notification: NOTIFICATIONTYPE or HOSTNAME is missing")
        try:
            return _notification(given)
        except (ValueError, OverflowError, OSError) as error:
            raise UnreadablePayload(f"not a Nagios notification: {error}") from error


def _notification(given: dict[str, str]) -> Message:
    kind = given["NOTIFICATIONTYPE"].upper()
    if not kind.startswith((*_OPENS, *_ENDS)):
        return Message()  # acknowledgements, comments
    check = given.get("SERVICEDESC", "")
    state = given.get("SERVICESTATE" if check else "HOSTSTATE", "")
    changed = epoch(given.get("LASTSERVICESTATECHANGE" if check else "LASTHOSTSTATECHANGE"))
    at = epoch(given.get("TIMET")) or changed
    output = given.get("SERVICEOUTPUT" if check else "HOSTOUTPUT", "")
    is_open = kind.startswith(_OPENS)
    return Message((_alert(given["HOSTNAME"], check, state, output, is_open=is_open, at=changed or at),))


def _status_file(text: str) -> Message:
    """Read the whole state: what is not a problem in it, is none."""
    alerts, notes, as_of = [], [], None
    for place, block in enumerate(_blocks(text)):
        if "created" in block:
            with suppress(ValueError, OverflowError, OSError):
                as_of = epoch(block["created"])
        if block.get("state_type") != _HARD or block.get("current_state") in (None, "0"):
            continue
        check = block.get("service_description", "")
        state = {"1": "WARNING" if check else "DOWN", "2": "CRITICAL" if check else "UNREACHABLE"}
        try:
            at = epoch(block.get("last_hard_state_change"))
        except (ValueError, OverflowError, OSError) as error:
            notes.append(f"block {place} skipped: {error}")
            continue
        word = state.get(block["current_state"], "UNKNOWN")
        output = block.get("plugin_output", "")
        alerts.append(_alert(block.get("host_name", ""), check, word, output, is_open=True, at=at))
    return Message(tuple(alerts), tuple(notes), is_complete=True, as_of=as_of)


def _blocks(text: str) -> Iterator[dict[str, str]]:
    block: dict[str, str] | None = None
    for line in map(str.strip, text.splitlines()):
        if line in ("info {", "hoststatus {", "servicestatus {"):
            block = {}
        elif line == "}":
            if block is not None:
                yield block
            block = None
        elif block is not None:
            name, _, value = line.partition("=")
            block[name] = text_of(value)


def _alert(host: str, check: str, state: str, output: str, *, is_open: bool, at: object) -> Alert:
    labels = {"host": host} | ({"check": check} if check else {})
    return Alert(
        dedup_key="!".join(labels.values())[:200],
        status=Status.OPEN if is_open else Status.RESOLVED,
        started_at=None,
        ended_at=None if is_open else at,  # type: ignore[arg-type]
        reported_at=at,  # type: ignore[arg-type]
        labels=labels,
        title=f"{' '.join(labels.values())} {state.lower()}".strip(),
        text=output,
        severity=_SEVERITIES.get(state.upper(), "warning"),
    )
