"""No payload keeps a worker busy: 200 kB of the worst of each format in a second."""

import json
from collections.abc import Callable

import pytest

from apps.statusboard.feeds.base import UnreadablePayload
from apps.statusboard.feeds.registry import FEEDS
from tests.pumps import slow_input
from tests.worst_inputs import Input, shapes

ALERT = {
    "status": "firing",
    "startsAt": "2026-11-22T10:00:00.123456789Z",
    "labels": {"alertname": "x", "service": "y"},
}


def payload(**changes: object) -> str:
    return json.dumps({"version": "4", "alerts": [ALERT | changes]})


#: Payloads that are right but for a field or two of any size.
FIELDS: list[Callable[[str], str]] = [
    lambda text: payload(startsAt=text),
    lambda text: payload(fingerprint=text),
    lambda text: payload(generatorURL=text),
    lambda text: payload(generatorURL="http://" + text),
    lambda text: payload(labels={text: text[:1000]}),
    lambda text: payload(annotations={"summary": text, "description": text}),
]
#: Payloads of as many parts as a text of this size may have.
MANY: list[Callable[[str], str]] = [
    lambda text: payload(labels={f"l{number}": "x" for number in range(len(text) // 10)}),
    lambda text: json.dumps({"alerts": [{}] * (len(text) // 3)}),
    lambda text: json.dumps(
        {"alerts": [{"status": "firing", "startsAt": "x"}] * (len(text) // 40)}
    ),
    lambda text: json.dumps({"alerts": [ALERT] * (len(text) // 130)}),
]
TIMES = [
    Input("1.", "9"),
    Input("", "9"),
    Input("2026-11-22T10:00:00.", "9", "Z"),
    Input("", "-"),
    Input("", ":"),
]


@pytest.mark.parametrize("name", FEEDS.names())
def test_feed(name):
    feed = FEEDS.get(name)({"items": "alerts", "key": "fingerprint", "state": "status"})

    def slow(write: Callable[[str], str], inputs: list[Input]) -> str:
        return slow_input(
            lambda text: feed.parse(write(text).encode()), inputs, refused=(UnreadablePayload,)
        )

    assert slow(str, shapes('{"alerts": [', '{"a":', "[", '"', "\\u0000", "1e9", "9" * 100)) == ""
    for write in FIELDS:
        assert slow(write, [*TIMES, *shapes()]) == ""
    for write in MANY:
        assert slow(write, [Input("", "a")]) == ""
