"""Read how a job ended from its HTCondor event log, for jobs without accounting data.

Format and numbers: HTCondor Manual, "Job Event Log Codes". Events end with a line of three dots.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.engine.base import Block, JobFacts

#: The line that ends an event, and how far from the end of a log the last such line can be.
_EVENT_END = b"\n..."
_LAST_EVENT_BYTES = 64 * 1024
_EVENT = re.compile(
    rb"^(\d{3}) \((\d+)\.(\d+)\.\d+\) [-/\d]{5,10}[ T][\d:.]{8,15}\S* "
    rb"(.*(?:\n(?!\.\.\.|\d{3} \().*)*)",
    re.MULTILINE,
)
_SUBMITTED = 0
_EXECUTING = 1
_TERMINATED = 5
_HELD = 12
_RELEASED = 13
_RETURN_VALUE = re.compile(rb"\(return value (\d{1,9})\)")
_SIGNAL = re.compile(rb"\(signal (\d{1,3})\)")
_HOLD_CODE = re.compile(rb"\bCode (\d{1,4}) Subcode -?\d+")


def with_events(facts: JobFacts, blocks: Sequence[Block]) -> JobFacts:
    """Add exit code, signal or hold code from an event log to facts that have none.

    A log shared by several jobs of one submission is ignored: it does not say which job is meant.
    """
    if facts.state or facts.exit_code is not None or facts.signal or facts.reason:
        return facts
    for block in blocks:
        if end := _last_end(block.data):
            return _with_end(facts, *end)
    return facts


def has_events(data: bytes) -> bool:
    """Return whether a log may be an event log; fast for most logs that are not."""
    return data.find(_EVENT_END, max(0, len(data) - _LAST_EVENT_BYTES)) >= 0


def _last_end(data: bytes) -> tuple[int, bytes] | None:
    """Return number and text of the event that ended or held the last submitted job.

    None while the job is running or waiting.
    """
    if not has_events(data):
        return None
    events = [
        (int(event[1]), int(event[2]), int(event[3]), event[4])  # number, cluster, process, text
        for event in _EVENT.finditer(data)
    ]
    submitted = next(
        (cluster for number, cluster, _, _ in reversed(events) if number == _SUBMITTED), None
    )
    own = []
    for number, cluster, process, text in events:
        if cluster == submitted:
            own.append((number, process, text))
    if len({process for _, process, _ in own}) != 1:
        return None

    for number, _, text in reversed(own):
        if number in {_TERMINATED, _HELD}:
            return number, text
        if number in {_EXECUTING, _RELEASED}:
            return None
    return None


def _with_end(facts: JobFacts, number: int, text: bytes) -> JobFacts:
    if number == _HELD:
        code = _HOLD_CODE.search(text)
        if not code:
            return facts
        return replace(facts, scheduler="htcondor", reason=code[1].decode())
    if value := _RETURN_VALUE.search(text):
        exit_code = int(value[1])
        return replace(
            facts, exit_code=exit_code, state=JobState.FAILED if exit_code else JobState.COMPLETED
        )
    if signal := _SIGNAL.search(text):
        return replace(facts, signal=int(signal[1]), state=JobState.FAILED)
    return facts
