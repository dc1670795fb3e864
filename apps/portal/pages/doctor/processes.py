"""Processes, queues, sinks and the rest of the health page, as findings."""

from collections.abc import Iterator
from datetime import datetime

from django.conf import settings

from apps.archive.domain.sinks import sinks_health
from apps.archive.sinks.base import BadSink
from apps.archive.sinks.registry import open_sink
from apps.core.domain.health import (
    BEAT,
    CAPTURE,
    QUEUE,
    WAITING_BEAT,
    WORKER,
    Check,
    check_components,
)
from apps.core.models import Heartbeat
from apps.jobs.domain.records.jobs import list_collections
from apps.notifications.enums import Channel
from apps.portal.pages.doctor.findings import DoctorFinding, ok, problem, warning
from apps.portal.pages.health.page import (
    OTHER_MASKING_KEY,
    capture_state,
    channel_state,
    search_index_check,
)
from apps.portal.pages.health.queues import all_queues
from apps.search.domain.engine.base import SearchUnavailable
from apps.search.domain.engine.chosen import engine_in_use

#: The oldest row of a queue is overdue for longer: a warning, a problem.
WARNING_SECONDS = 300
PROBLEM_SECONDS = 3_600
_FIXES = {
    BEAT: "Start it: `systemctl start opsportal-beat`.",
    WAITING_BEAT: "Start it again (`systemctl start opsportal-beat`), or delete the heartbeat of "
    "one that is retired under *Heartbeats* in the admin.",
    WORKER: "Start it again (`systemctl restart 'opsportal-worker@*'`), or delete the heartbeat of "
    "one that is retired under *Heartbeats* in the admin.",
    "workers": "Start them: `systemctl start opsportal-worker@default opsportal-worker@harvest "
    "opsportal-worker@archive`.",
    CAPTURE: "Start it on that host (`systemctl start opsportal-capture`), or delete the heartbeat "
    "of one that is retired under *Heartbeats* in the admin.",
}

_FIX_OF_CAPTURE = "Read `journalctl -u opsportal-capture` on that host (docs/archive.md)."
_FIX_OF_KEY = (
    "Copy the portal's MASKING_KEY to its configuration, then `systemctl restart opsportal-capture`"
    " on that host (docs/production.md)."
)


def check_processes(at: datetime) -> Iterator[DoctorFinding]:
    """Check the heartbeats of beat, workers and captures."""
    for component in check_components(at):
        for name, fix in _FIXES.items():
            if component.name.startswith(name):
                yield _of_component(component, fix)
                break


def check_messages(at: datetime) -> Iterator[DoctorFinding]:
    """Check that messages of beat reach workers, given that both run."""
    for component in check_components(at):
        if component.name == QUEUE:
            yield _of_component(
                component,
                "Restart beat and the workers: `systemctl restart opsportal.target`.",
            )


def check_captures(at: datetime) -> Iterator[DoctorFinding]:
    """Check what capture processes report of themselves."""
    for heart in Heartbeat.objects.filter(name__startswith=CAPTURE).order_by("name"):
        problems = capture_state(heart)["problems"]
        name = f"report of {heart.name}"
        if problems:
            yield warning(
                name,
                "; ".join(problems),
                _FIX_OF_KEY if OTHER_MASKING_KEY in problems else _FIX_OF_CAPTURE,
            )
        else:
            yield ok(name, "no problem")


def check_queues(at: datetime) -> Iterator[DoctorFinding]:
    """Check that no queue is late, and that none has failing work."""
    late = False
    for figures in all_queues(at=at):
        name = f"queue {figures.name}"
        seen = f"{figures.length} waiting, oldest overdue for {figures.oldest_seconds:.0f} s"
        if figures.oldest_seconds > WARNING_SECONDS:
            late = True
            judge = problem if figures.oldest_seconds > PROBLEM_SECONDS else warning
            yield judge(
                name,
                seen,
                "Start more workers, and read why they fail: `journalctl -u 'opsportal-worker@*'`.",
            )
        elif figures.failing:
            late = True
            yield warning(
                name,
                f"{seen}, {figures.failing} failed and are retried",
                "Read why: `/health/` and `journalctl -u 'opsportal-worker@*'`.",
            )
    if not late:
        yield ok("queues", f"none is late by more than {WARNING_SECONDS} s, and none fails")


def check_sinks(at: datetime) -> Iterator[DoctorFinding]:
    """Check the URLs of ARCHIVE_SINKS, and whether workers reach the sinks."""
    for number, url in enumerate(settings.ARCHIVE_SINKS, 1):
        try:
            # It does not connect yet. To close it would close the portal's own connection.
            open_sink(url)
        except BadSink as error:
            yield problem(f"sink {number}", str(error), "Correct ARCHIVE_SINKS (docs/archive.md).")
    for health in sinks_health(at=at):
        name = f"sink {health.sink.name}"
        if not health.configured:
            yield warning(
                name,
                f"not in ARCHIVE_SINKS, {health.behind} jobs wait for it",
                "Add it to ARCHIVE_SINKS, or forget it on /health/.",
            )
        elif health.sink.last_error:
            yield problem(
                name,
                f"unreachable: {health.sink.last_error}",
                "Start that server, or correct its URL in ARCHIVE_SINKS and its credentials.",
            )
        elif health.refused:
            yield warning(
                name,
                f"it refused {health.refused} jobs",
                "Read why on /health/, then try or drop them there.",
            )
        elif health.lag_seconds > WARNING_SECONDS:
            yield warning(
                name,
                f"{health.behind} jobs behind, oldest {health.lag_seconds:.0f} s old",
                "Start more workers: `systemctl start opsportal-worker@archive`.",
            )
        else:
            yield ok(name, f"{health.behind} jobs behind")


def check_search(at: datetime) -> Iterator[DoctorFinding]:
    """Check the index of logs and ask its engine. A bad SEARCH_URL is a finding of the settings."""
    fix = "Start that server or correct SEARCH_URL; `opsportal search status` says how far it is."
    try:
        engine = engine_in_use()
    except SearchUnavailable:
        return
    try:
        engine.check()
    except SearchUnavailable as error:
        yield problem("search index", error.reason, fix)
        return
    yield _of_component(search_index_check(), fix)


def check_accounting(at: datetime) -> Iterator[DoctorFinding]:
    """Check that the accounting of each cluster is reached."""
    for collection in list_collections():
        name = f"accounting of {collection.cluster.name}"
        if collection.last_error:
            yield problem(
                name,
                collection.last_error,
                "Let the workers' hosts reach accounting (docs/production.md, step 8).",
            )
        else:
            yield ok(name, f"collected until {collection.collected_until:%Y-%m-%d %H:%M} UTC")


def check_notices(at: datetime) -> Iterator[DoctorFinding]:
    """Check that mails and calls of webhooks are delivered."""
    for channel in Channel:
        state = channel_state(channel)
        name = f"messages by {channel.value}"
        if state["late"]:
            yield warning(
                name,
                f"{state['late']} failed and are retried: {state['last_error']}",
                "Correct the server that they go to (EMAIL_URL for mail).",
            )
        else:
            yield ok(name, f"{state['waiting']} waiting, none failed")


def _of_component(component: Check, fix: str) -> DoctorFinding:
    if component.ok:
        return ok(component.name, component.detail)
    return problem(component.name, component.detail, fix)
