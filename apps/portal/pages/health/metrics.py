"""The figures of the health page in Prometheus' text format. Computing them counts no jobs."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import connection
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from apps.archive.domain.sinks import intake_size, sinks_health
from apps.core.counters import failed_responses, failed_tasks
from apps.core.domain.health import CAPTURE, check_components
from apps.core.domain.outbox import EVENTS
from apps.core.domain.work import QueueFigures
from apps.core.models import Heartbeat
from apps.diagnosis.domain.reading.refused_logs import refused_logs
from apps.jobs.domain.records.jobs import list_collections
from apps.portal.pages.health.backups import newest_dump_at
from apps.portal.pages.health.page import loaded_plugins
from apps.portal.pages.health.queues import all_queues
from apps.statusboard.domain.incidents.incidents import open_incidents
from apps.statusboard.domain.states.timeline import BEGINNING
from apps.statusboard.enums import State
from apps.statusboard.models import Service, StateInterval
from capture.wire.report import CaptureReport

_OF_CAPTURE = {
    "captured": ("Jobs captured since the start of the process.", CounterMetricFamily),
    "missed": (
        "Jobs deleted before they were read, since the start of the process.",
        CounterMetricFamily,
    ),
    "waiting": ("Jobs found in the spool but not read yet.", GaugeMetricFamily),
    "unreadable_count": ("Unreadable spool entries.", GaugeMetricFamily),
    "behind": ("Jobs in the journal, not yet handed over to the portal.", GaugeMetricFamily),
    "lag_seconds": ("Age of the oldest job not yet handed over.", GaugeMetricFamily),
    "handed_over": (
        "Jobs handed over to the portal since the start of the process.",
        CounterMetricFamily,
    ),
    "refused": ("Jobs in the journal that the portal rejects.", GaugeMetricFamily),
    "journal_bytes": ("Size of the journal on the host of capture.", GaugeMetricFamily),
}


@dataclass(frozen=True)
class _Health(Collector):
    """A collector of the figures at a time."""

    at: datetime

    def collect(self) -> Iterator[Metric]:
        hearts = list(Heartbeat.objects.order_by("name"))
        ok = GaugeMetricFamily(
            "opsportal_check_ok", "Whether a component of the portal is ok.", labels=["check"]
        )
        checks = check_components(self.at, ask_queue=True)
        # Without series, alerts about a retired process end.
        retired = {check.name for check in checks if check.is_retired}
        for check in checks:
            if not check.is_retired:
                ok.add_metric([check.name], check.ok)
        age = GaugeMetricFamily(
            "opsportal_heartbeat_age_seconds",
            "Time since the last heartbeat of a process.",
            labels=["process"],
        )
        for heart in hearts:
            if heart.name not in retired:
                age.add_metric([heart.name], (self.at - heart.at).total_seconds())
        plugins = GaugeMetricFamily(
            "opsportal_plugin_problems", "Broken or duplicate plugins.", labels=["group"]
        )
        for kind in loaded_plugins():
            plugins.add_metric([kind.group], len(kind.problems))
        yield from (
            ok,
            age,
            plugins,
            *_captures(hearts),
            *_sinks(self.at),
            *_queues(self.at),
            *_collections(self.at),
        )
        yield GaugeMetricFamily(
            "opsportal_logs_refused",
            "Failed jobs of the last 24 hours whose logs were refused, at most 1000.",
            value=refused_logs(at=self.at).count,
        )
        yield from (*_failures(), *_storage(self.at))
        yield from _services(self.at)


def metrics_text(*, at: datetime) -> bytes:
    return generate_latest(_Health(at))


def _collections(at: datetime) -> Iterator[Metric]:
    ok = GaugeMetricFamily(
        "opsportal_accounting_ok", "Whether accounting is reachable.", labels=["cluster"]
    )
    age = GaugeMetricFamily(
        "opsportal_accounting_lag_seconds", "Lag of accounting collection.", labels=["cluster"]
    )
    for collection in list_collections():
        ok.add_metric([collection.cluster.name], not collection.last_error)
        age.add_metric([collection.cluster.name], (at - collection.collected_until).total_seconds())
    yield from (ok, age)


def _captures(hearts: list[Heartbeat]) -> Iterator[Metric]:
    captures = [heart for heart in hearts if heart.name.startswith(CAPTURE)]
    # Pairs of cluster and host.
    places = [heart.name.removeprefix(CAPTURE).rpartition(" on ")[::2] for heart in captures]
    reports = list(
        zip(places, (CaptureReport.from_detail(heart.detail) for heart in captures), strict=True)
    )
    for name, (text, family) in _OF_CAPTURE.items():
        metric = family(
            f"opsportal_capture_{name.removesuffix('_count')}", text, labels=["cluster", "host"]
        )
        for place, report in reports:
            metric.add_metric(place, getattr(report, name))
        yield metric


def _sinks(at: datetime) -> Iterator[Metric]:
    behind = GaugeMetricFamily(
        "opsportal_sink_behind", "Jobs not yet written to the sink.", labels=["sink"]
    )
    lag = GaugeMetricFamily(
        "opsportal_sink_lag_seconds", "Age of the oldest job not yet written.", labels=["sink"]
    )
    written = CounterMetricFamily(
        "opsportal_sink_written", "Jobs written to the sink.", labels=["sink"]
    )
    retry = GaugeMetricFamily(
        "opsportal_sink_retry_seconds",
        "Wait before the next retry; 0 if the sink is reachable.",
        labels=["sink"],
    )
    refused = GaugeMetricFamily(
        "opsportal_sink_refused", "Jobs rejected by the sink (dead letters).", labels=["sink"]
    )
    for health in sinks_health(at=at):
        label = [health.sink.name]
        behind.add_metric(label, health.behind)
        lag.add_metric(label, health.lag_seconds)
        written.add_metric(label, health.sink.written)
        retry.add_metric(label, health.retry_seconds)
        refused.add_metric(label, health.refused)
    jobs, size_bytes = intake_size()
    yield from (behind, lag, written, retry, refused)
    yield GaugeMetricFamily(
        "opsportal_intake_jobs", "Captured jobs that some sink lacks.", value=jobs
    )
    yield GaugeMetricFamily(
        "opsportal_intake_bytes", "Their size in the database.", value=size_bytes
    )


def _queues(at: datetime) -> Iterator[Metric]:
    length = GaugeMetricFamily(
        "opsportal_queue_length", "Rows that wait or are worked on.", labels=["queue"]
    )
    oldest = GaugeMetricFamily(
        "opsportal_queue_oldest_seconds",
        "How long the oldest row is overdue; 0 if none is.",
        labels=["queue"],
    )
    failing = GaugeMetricFamily(
        "opsportal_queue_failing",
        "Rows that failed, or whose worker was killed, and are retried.",
        labels=["queue"],
    )
    for figures in all_queues(at=at):
        length.add_metric([figures.name], figures.length)
        oldest.add_metric([figures.name], figures.oldest_seconds)
        failing.add_metric([figures.name], figures.failing)
        if figures.name == EVENTS.name:
            yield from _deliveries(figures)
    yield from (length, oldest, failing)


def _deliveries(events: QueueFigures) -> Iterator[Metric]:
    """Yield the figures of events under the names from before all queues had figures."""
    yield GaugeMetricFamily(
        "opsportal_deliveries_waiting", "Events not delivered yet.", value=events.length
    )
    yield GaugeMetricFamily(
        "opsportal_deliveries_failing",
        "Events with failed delivery attempts.",
        value=events.failing,
    )


def _failures() -> Iterator[Metric]:
    responses = CounterMetricFamily(
        "opsportal_http_errors_total", "Responses that failed.", labels=["status"]
    )
    for status, count in failed_responses().items():
        responses.add_metric([status], count)
    tasks = CounterMetricFamily(
        "opsportal_task_failures_total",
        "Tasks that ended with an error: periodic ones by name, and all others.",
        labels=["task"],
    )
    for task, count in failed_tasks().items():
        tasks.add_metric([task], count)
    yield from (responses, tasks)


def _storage(at: datetime) -> Iterator[Metric]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        (size_bytes,) = cursor.fetchone()
    yield GaugeMetricFamily("opsportal_database_bytes", "Size of the database.", value=size_bytes)

    age = GaugeMetricFamily(
        "opsportal_backup_age_seconds", "Age of the newest dump in BACKUP_DIR; none without one."
    )
    if settings.BACKUP_DIR is not None:
        with suppress(OSError):
            newest = newest_dump_at(settings.BACKUP_DIR)
            if newest is not None:
                age.add_metric([], max(0.0, at.timestamp() - newest))
    yield age


def _services(at: datetime) -> Iterator[Metric]:
    """Yield the own state of each service, in three queries.

    A service without a stored state is unknown.
    """
    state = GaugeMetricFamily(
        "opsportal_service_state", "1 for the state of a service.", labels=["service", "state"]
    )
    age = GaugeMetricFamily(
        "opsportal_service_state_age_seconds",
        "Time in this state; none if always.",
        labels=["service"],
    )
    incidents = GaugeMetricFamily(
        "opsportal_service_open_incidents", "Open incidents.", labels=["service"]
    )
    current = {interval.service_id: interval for interval in StateInterval.objects.current(at)}
    unresolved = Counter(open_incidents().values_list("service", flat=True))
    for service in Service.objects.order_by("slug"):
        interval = current.get(service.pk)
        for possible_state in State:
            state.add_metric(
                [service.slug, possible_state],
                possible_state == (interval.state if interval else State.UNKNOWN),
            )
        if interval and interval.started_at > BEGINNING:
            age.add_metric([service.slug], (at - interval.started_at).total_seconds())
        incidents.add_metric([service.slug], unresolved[service.pk])
    yield from (state, age, incidents)
