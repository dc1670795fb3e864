"""What on the health page needs a look, said first."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apps.archive.domain.sinks import SinkHealth
from apps.core.domain.health import Check
from apps.core.domain.quantities import round_duration
from apps.core.domain.work import QueueFigures
from apps.statusboard.domain.monitoring.sources import SourceState
from apps.statusboard.enums import severity_of

#: A queue whose oldest row is overdue for longer needs a look.
OVERDUE_SECONDS = 600
#: The words of the signs.
_WORDS = {"down": "failing", "degraded": "warning", "unknown": "not set"}


@dataclass(frozen=True)
class Trouble:
    """A sentence about what is wrong, and the state of its sign: `down`, `degraded`, `unknown`.

    `card` is the id of the part of the page with the details, if they are far below.
    """

    state: str
    text: str
    card: str = ""

    @property
    def word(self) -> str:
        return _WORDS[self.state]


def troubles_of(page: Mapping[str, Any]) -> list[Trouble]:
    """Return what is wrong by the context of the health page, worst first."""
    troubles = [
        *_of_checks(page["checks"]),
        *_of_sinks(page["sinks"]),
        *_of_queues(page["queues"]),
        *_of_captures(page["captures"]),
        *_of_sources(page),
        *_of_monitoring(page["monitoring"]),
        *_of_portal(page),
    ]
    return sorted(troubles, key=lambda trouble: severity_of(trouble.state))


def _of_checks(checks: Iterable[Check]) -> Iterator[Trouble]:
    for check in checks:
        if not check.ok and not check.is_retired:
            yield Trouble("down", f"{check.name}: {check.detail}")


def _of_sinks(sinks: Iterable[SinkHealth]) -> Iterator[Trouble]:
    for sink in sinks:
        if sink.sink.last_error:
            yield Trouble("down", f"Sink {sink.sink.name} is unreachable: {sink.sink.last_error}")
        if sink.refused:
            yield Trouble("degraded", f"Sink {sink.sink.name} rejects {sink.refused:,} jobs.")


def _of_queues(queues: Iterable[QueueFigures]) -> Iterator[Trouble]:
    for queue in queues:
        if queue.failing:
            yield Trouble("degraded", f"{queue.title}: {queue.failing:,} fail and are retried.")
        elif (queue.oldest_seconds or 0) > OVERDUE_SECONDS:
            overdue = round_duration(queue.oldest_seconds or 0)
            yield Trouble("degraded", f"{queue.title}: overdue for {overdue}.")


def _of_captures(captures: Iterable[Mapping[str, Any]]) -> Iterator[Trouble]:
    for capture in captures:
        if capture["report"].behind:
            text = f"{capture['name']} is behind: {capture['report'].behind:,} jobs to hand over."
            yield Trouble("degraded", text)
        for problem in capture["problems"]:
            yield Trouble("degraded", f"{capture['name']}: {problem}")


def _of_sources(page: Mapping[str, Any]) -> Iterator[Trouble]:
    for collection in page["collections"]:
        if collection.last_error:
            text = f"Accounting of {collection.cluster.name}: {collection.last_error}"
            yield Trouble("down", text, "accounting")
    for catalogue in page["catalogues"]:
        if catalogue.error:
            yield Trouble("degraded", f"Catalogue {catalogue.name}: {catalogue.error}")
    if page["refused_logs"].count:
        text = f"{page['refused_logs'].count:,} logs of failed jobs may not be read."
        yield Trouble("degraded", text)


def _of_monitoring(sources: Iterable[SourceState]) -> Iterator[Trouble]:
    for now in sources:
        name = f"Monitoring source {now.source.name}"
        if now.problem == "no data":
            text = f"{name} sends nothing: the states of its services are unknown."
            yield Trouble("degraded", text, "monitoring")
        elif now.problem:
            yield Trouble("degraded", f"{name}, {now.problem}: {now.detail}", "monitoring")


def _of_portal(page: Mapping[str, Any]) -> Iterator[Trouble]:
    for channel in page["channels"]:
        if not channel["configured"]:
            yield Trouble("unknown", "No mail server is set, so nobody gets e-mail.")
        elif channel["late"]:
            text = f"{channel['late']:,} messages by {channel['channel']} are retried."
            yield Trouble("degraded", text)
    for registry in page["broken_plugins"]:
        yield Trouble("degraded", f"Plugins of {registry.group} have problems.")
    for warning in page["warnings"]:
        yield Trouble("degraded", warning.msg)
