"""No payload keeps a worker busy: 200 kB of the worst of each format in half a second."""

import json
from contextlib import suppress

import pytest

from apps.statusboard.feeds.base import UnreadablePayload
from apps.statusboard.feeds.registry import FEEDS
from tests.worst_inputs import BYTES, run, shapes

ALERT = {"status": "firing", "startsAt": "2026-11-22T10:00:00.123456789Z", "labels": {"alertname": "x", "service": "y"}}


def payload(**changes: object) -> str:
    return json.dumps({"version": "4", "alerts": [ALERT | changes]})


def payloads() -> list[str]:
    """Bytes in the usual shapes, and messages that are right but for one field of 200 kB."""
    times = ["1." + "9" * BYTES, "9" * BYTES, "2026-11-22T10:00:00." + "9" * BYTES + "Z", "-" * BYTES, ":" * BYTES]
    found = shapes('{"alerts": [', '{"a":', "[", '"', "\\u0000", "1e9", "9" * 100)
    found += [payload(startsAt=time) for time in times]
    for text in shapes():
        found += [payload(fingerprint=text), payload(generatorURL="http://" + text), payload(generatorURL=text)]
        found += [payload(labels={text: text[:1000]}), payload(annotations={"summary": text, "description": text})]
    found.append(payload(labels={f"l{n}": "x" for n in range(20_000)}))
    found.append(json.dumps({"alerts": [{}] * 60_000}))
    found.append(json.dumps({"alerts": [{"status": "firing", "startsAt": "x"}] * 5_000}))
    found.append(json.dumps({"alerts": [ALERT] * 1_500}))
    return found


@pytest.mark.parametrize("name", FEEDS.names())
def test_feed(name):
    feed = FEEDS.get(name)({"items": "alerts", "key": "fingerprint", "state": "status"})

    def parse(text: str) -> None:
        with suppress(UnreadablePayload):
            feed.parse(text.encode("utf-8", "surrogatepass"))

    for text in payloads():
        run(parse, [text[: 2 * BYTES]], name)
