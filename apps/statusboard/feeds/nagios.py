"""Nagios: notifications, and its complete state.

A notification consists of macros as `NAGIOS_NAME=value` lines or JSON. The complete state is the
file status.dat, or two responses of statusjson.cgi about hosts and services with problems.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

from apps.statusboard.feeds.base import Alert, Feed, Message, Status, UnreadablePayload
from apps.statusboard.feeds.values import epoch, json_documents, text_of, variables

_SEVERITIES = {"CRITICAL": "critical", "DOWN": "critical", "UNREACHABLE": "critical"}
_OPENS = ("PROBLEM", "FLAPPINGSTART")
_ENDS = ("RECOVERY", "FLAPPINGSTOP")
_HARD = "1"
#: The states of status.dat, by number, for hosts and for their checks.
_HOST_STATES = {"1": "DOWN", "2": "UNREACHABLE"}
_CHECK_STATES = {"1": "WARNING", "2": "CRITICAL"}
#: Maps the states of statusjson.cgi to the states of status.dat: 1 is pending, 2 is OK.
_HOSTS = {"1": "0", "2": "0", "4": "1", "8": "2"}
_SERVICES = {"1": "0", "2": "0", "4": "1", "8": "3", "16": "2"}


class Nagios(Feed):
    name = "nagios"
    pulls = (
        "statusjson.cgi?query=hostlist&details=true&hoststatus=down+unreachable",
        "statusjson.cgi?query=servicelist&details=true&servicestatus=warning+critical+unknown",
    )

    @classmethod
    def addresses(cls, url: str) -> list[str]:
        return [url] if url.endswith(".dat") else super().addresses(url)

    def parse(self, body: bytes) -> Message:
        text = body.decode(errors="replace")
        if "servicestatus {" in text or "hoststatus {" in text:
            return _status_file(text)
        if '"statusjson.cgi"' in text:
            return _status_answers(body)
        fields = variables(body, "NAGIOS_")
        if "NOTIFICATIONTYPE" not in fields or "HOSTNAME" not in fields:
            raise UnreadablePayload(
                "not a Nagios notification: NOTIFICATIONTYPE or HOSTNAME is missing"
            )
        try:
            return _notification(fields)
        except (ValueError, OverflowError, OSError) as error:
            raise UnreadablePayload(f"not a Nagios notification: {error}") from error


def _notification(fields: dict[str, str]) -> Message:
    kind = fields["NOTIFICATIONTYPE"].upper()
    if not kind.startswith((*_OPENS, *_ENDS)):
        return Message()
    # Acknowledgements and comments are ignored.
    check = fields.get("SERVICEDESC", "")
    state = fields.get("SERVICESTATE" if check else "HOSTSTATE", "")
    changed = epoch(fields.get("LASTSERVICESTATECHANGE" if check else "LASTHOSTSTATECHANGE"))
    at = epoch(fields.get("TIMET")) or changed
    output = fields.get("SERVICEOUTPUT" if check else "HOSTOUTPUT", "")
    is_open = kind.startswith(_OPENS)
    return Message(
        (_alert(fields["HOSTNAME"], check, state, output, is_open=is_open, at=changed or at),)
    )


def _status_file(text: str) -> Message:
    """Parse the complete state: anything that is not a problem in it is OK."""
    blocks = list(_blocks(text))
    as_of = None
    for block in blocks:
        with suppress(KeyError, ValueError, OverflowError, OSError):
            as_of = epoch(block["created"])
    return _problems(blocks, as_of)


def _status_answers(body: bytes) -> Message:
    """Parse both responses of statusjson.cgi, which together are the complete state."""
    blocks: list[dict[str, str]] = []
    written = []
    lists = 0
    try:
        for answer in json_documents(body, "answers of statusjson.cgi"):
            result = answer["result"]
            data = answer["data"]
            if result["type_code"] != 0:
                raise UnreadablePayload(f"statusjson.cgi answers {text_of(result.get('message'))}")
            written.append(epoch(result["last_data_update"] / 1000))
            lists += sum(isinstance(data.get(name), dict) for name in ("hostlist", "servicelist"))
            hosts = data.get("hostlist") or {}
            blocks += [_block(host, _HOSTS) for host in hosts.values()]
            checks_by_host = data.get("servicelist") or {}
            for checks in checks_by_host.values():
                blocks += [_block(check, _SERVICES) for check in checks.values()]
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError) as error:
        raise UnreadablePayload(
            f"not answers of statusjson.cgi: {type(error).__name__} {error}"
        ) from error
    as_of = min((at for at in written if at), default=None)
    return _problems(blocks, as_of, is_complete=lists == len(Nagios.pulls))


def _block(entry: dict[str, Any], states: dict[str, str]) -> dict[str, str]:
    """Return an entry of statusjson.cgi in the form of status.dat."""
    return {
        "host_name": text_of(entry.get("host_name", entry.get("name"))),
        "service_description": text_of(entry.get("description")),
        "current_state": states[text_of(entry["status"])],
        "state_type": text_of(entry["state_type"]),
        "last_hard_state_change": text_of(entry["last_hard_state_change"] / 1000),
        "plugin_output": text_of(entry.get("plugin_output")),
    }


def _problems(
    blocks: Iterable[dict[str, str]], as_of: datetime | None, *, is_complete: bool = True
) -> Message:
    alerts = []
    notes = []
    for place, block in enumerate(blocks):
        if block.get("state_type") != _HARD or block.get("current_state") in (None, "0"):
            continue
        check = block.get("service_description", "")
        states = _CHECK_STATES if check else _HOST_STATES
        try:
            at = epoch(block.get("last_hard_state_change"))
        except (ValueError, OverflowError, OSError) as error:
            notes.append(f"block {place} skipped: {error}")
            continue
        state = states.get(block["current_state"], "UNKNOWN")
        output = block.get("plugin_output", "")
        alerts.append(_alert(block.get("host_name", ""), check, state, output, is_open=True, at=at))
    return Message(tuple(alerts), tuple(notes), is_complete=is_complete, as_of=as_of)


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


def _alert(
    host: str, check: str, state: str, output: str, *, is_open: bool, at: datetime | None
) -> Alert:
    labels = {"host": host}
    if check:
        labels["check"] = check
    return Alert(
        dedup_key="!".join(labels.values())[:200],
        status=Status.OPEN if is_open else Status.RESOLVED,
        started_at=None,
        ended_at=None if is_open else at,
        reported_at=at,
        labels=labels,
        title=f"{' '.join(labels.values())} {state.lower()}".strip(),
        text=output,
        severity=_SEVERITIES.get(state.upper(), "warning"),
    )
