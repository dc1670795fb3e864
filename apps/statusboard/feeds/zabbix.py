"""Zabbix: its real-time export of events, webhooks, and its API.

The export is JSON lines with epoch seconds; a webhook sends its parameters as JSON. The API returns
the problems and, because these do not name their hosts, their triggers.
"""

import json
from typing import Any

from apps.statusboard.feeds.base import Alert, Feed, Message, Status, UnreadablePayload
from apps.statusboard.feeds.values import epoch, json_lines, json_of, text_of

#: Severities from this one on (high and disaster) mean down.
_CRITICAL = 4
#: The errors of values that are missing or of another type.
_UNREADABLE_ROW = (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError)
_PROBLEMS = 1
_TRIGGERS = 2
_REQUESTS = [
    {
        "jsonrpc": "2.0",
        "id": _PROBLEMS,
        "method": "problem.get",
        "params": {
            "output": ["eventid", "objectid", "clock", "name", "severity"],
            "selectTags": "extend",
        },
    },
    {
        "jsonrpc": "2.0",
        "id": _TRIGGERS,
        "method": "trigger.get",
        "params": {"output": ["triggerid"], "selectHosts": ["host"], "only_true": True},
    },
]


class Zabbix(Feed):
    name = "zabbix"
    pulls = ("api_jsonrpc.php",)
    question = json.dumps(_REQUESTS).encode()

    def parse(self, body: bytes) -> Message:
        if b'"jsonrpc"' in body:
            return _listed(body)
        alerts = []
        notes = []
        rows = json_lines(body, "Zabbix events")
        if not any({"eventid", "event_id"} & event.keys() for event in rows):
            raise UnreadablePayload("not Zabbix events: neither “eventid” nor “event_id”")
        for place, event in enumerate(rows):
            try:
                alerts.append(_exported(event) if "eventid" in event else _webhook(event))
            except _UNREADABLE_ROW as error:
                notes.append(f"event {place} skipped: {type(error).__name__} {error}")
        return Message(tuple(alerts), tuple(notes))


def _listed(body: bytes) -> Message:
    """Parse the responses of the API; the list is complete unless a problem cannot be parsed."""
    answers = json_of(b'{"answers": %b}' % body, "an answer of Zabbix")["answers"]
    if not isinstance(answers, list):
        answers = [answers]
    results: dict[object, list[dict[str, Any]]] = {}
    for answer in answers:
        if not isinstance(answer, dict) or not isinstance(answer.get("result"), list):
            raise UnreadablePayload(f"Zabbix answers {_error_in(answer)}")
        results[str(answer.get("id"))] = answer["result"]
    if results.keys() != {str(_PROBLEMS), str(_TRIGGERS)}:
        raise UnreadablePayload("not the answers of Zabbix about problems and triggers")
    try:
        hosts = {row["triggerid"]: row["hosts"] for row in results[str(_TRIGGERS)]}
    except (KeyError, TypeError) as error:
        raise UnreadablePayload(
            f"triggers without hosts: {type(error).__name__} {error}"
        ) from error

    alerts = []
    notes = []
    for place, row in enumerate(results[str(_PROBLEMS)]):
        try:
            alerts.append(_exported({**row, "value": 1, "hosts": hosts.get(row["objectid"], [])}))
        except _UNREADABLE_ROW as error:
            notes.append(f"problem {place} skipped: {type(error).__name__} {error}")
    return Message(tuple(alerts), tuple(notes), is_complete=not notes)


def _error_in(answer: object) -> str:
    """Return why the API gave an answer without a list."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        return text_of(error.get("data") or error.get("message"))
    return "no list"


def _exported(event: dict[str, Any]) -> Alert:
    """Parse an event; a recovery only names its problem, in `p_eventid`."""
    is_open = int(event["value"]) == 1
    problem_id = event["eventid"]
    if not is_open:
        problem_id = event.get("p_eventid", problem_id)
    at = epoch(event["clock"])
    labels = {text_of(tag.get("tag")): text_of(tag.get("value")) for tag in event.get("tags") or []}
    hosts = event.get("hosts") or []
    if hosts:
        labels["host"] = text_of(hosts[0].get("host"))
    return Alert(
        dedup_key=text_of(problem_id)[:200],
        status=Status.OPEN if is_open else Status.RESOLVED,
        started_at=at if is_open else None,
        ended_at=None if is_open else at,
        reported_at=at,
        labels=labels,
        title=text_of(event.get("name")),
        severity=_severity(event.get("severity", 0)),
    )


def _severity(number: Any) -> str:
    return "critical" if int(number) >= _CRITICAL else "warning"


def _webhook(event: dict[str, Any]) -> Alert:
    """Parse the parameters of a media type.

    Its dates are in the server's zone, so only the timestamp is used.
    """
    is_open = int(event["event_value"]) == 1
    at = epoch(event.get("event_datetime_timestamp"))
    labels = {}
    tags = event.get("event_tags")
    if isinstance(tags, dict):
        for name, value in tags.items():
            # Zabbix sends the values of a repeated tag as a list.
            first = value[0] if isinstance(value, list) and value else value
            labels[text_of(name)] = text_of(first)
    host = text_of(event.get("host_host"))
    if host:
        labels["host"] = host
    # Recoveries have the ID of their problem too. The timestamp is that of the problem, so the end
    # is unknown.
    return Alert(
        dedup_key=text_of(event["event_id"])[:200],
        status=Status.OPEN if is_open else Status.RESOLVED,
        started_at=None,
        ended_at=None,
        reported_at=at if is_open else None,
        labels=labels,
        title=text_of(event.get("event_name") or event.get("trigger_name")),
        text=text_of(event.get("trigger_description")),
        severity=_severity(event.get("event_nseverity") or 0),
    )
