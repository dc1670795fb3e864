"""What the health page shows, as numbers in Prometheus' text format. No jobs are counted for it."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from apps.archive.handover.report import CaptureReport
from apps.core.domain.health import readiness
from apps.core.models import Delivery, Heartbeat
from apps.jobs.domain.jobs import collections
from apps.portal.pages.health import CAPTURE, plugin_kinds

_OF_CAPTURE = {
    "captured": ("Jobs captured since the start of the process.", CounterMetricFamily),
    "waiting": ("Jobs found in the spool but not read yet.", GaugeMetricFamily),
    "unreadable_count": ("Unreadable spool entries.", GaugeMetricFamily),
}
_OF_SINK = {
    "behind": ("Jobs not yet written to the sink.", GaugeMetricFamily),
    "lag_seconds": ("Age of the oldest job not yet written.", GaugeMetricFamily),
    "written": ("Jobs written to the sink since the start of the process.", CounterMetricFamily),
    "retry_seconds": ("Wait before the next retry; 0 if the sink is reachable.", GaugeMetricFamily),
    "refused": ("Jobs rejected by the sink (dead letters).", GaugeMetricFamily),
}


def metrics_text(*, at: datetime) -> bytes:
    """Return the text."""
    registry = CollectorRegistry()
    registry.register(_Health(at))
    return generate_latest(registry)


class _Health:
    """Collects anew each time it is asked."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def describe(self) -> list[Metric]:
        """Keep the registry from asking the database when this is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        hearts = list(Heartbeat.objects.order_by("name"))
        yield from self._parts(hearts)
        yield from _captures(
            {heart.name.removeprefix(CAPTURE): heart for heart in hearts if heart.name.startswith(CAPTURE)}
        )
        yield from _deliveries()
        yield from self._collections()

    def _parts(self, hearts: list[Heartbeat]) -> Iterator[Metric]:
        well = GaugeMetricFamily("opsportal_check_ok", "Whether a component of the portal is ok.", labels=["check"])
        for check in readiness(self._at):
            well.add_metric([check.name], check.ok)
        age = GaugeMetricFamily(
            "opsportal_heartbeat_age_seconds", "Time since the last heartbeat of a process.", labels=["process"]
        )
        for heart in hearts:
            age.add_metric([heart.name], (self._at - heart.at).total_seconds())
        plugins = GaugeMetricFamily("opsportal_plugin_problems", "Broken or duplicate plugins.", labels=["group"])
        for kind in plugin_kinds():
            plugins.add_metric([kind.group], len(kind.problems))
        yield from (well, age, plugins)

    def _collections(self) -> Iterator[Metric]:
        well = GaugeMetricFamily("opsportal_accounting_ok", "Whether accounting is reachable.", labels=["cluster"])
        age = GaugeMetricFamily("opsportal_accounting_lag_seconds", "Lag of accounting collection.", labels=["cluster"])
        for each in collections():
            well.add_metric([each.cluster.name], not each.last_error)
            age.add_metric([each.cluster.name], (self._at - each.collected_until).total_seconds())
        yield from (well, age)


def _captures(hearts: dict[str, Heartbeat]) -> Iterator[Metric]:
    reports = {cluster: CaptureReport.from_detail(heart.detail) for cluster, heart in hearts.items()}
    for name, (text, family) in _OF_CAPTURE.items():
        metric = family(f"opsportal_capture_{name.removesuffix('_count')}", text, labels=["cluster"])
        for cluster, report in reports.items():
            metric.add_metric([cluster], getattr(report, name))
        yield metric
    for name, (text, family) in _OF_SINK.items():
        metric = family(f"opsportal_sink_{name}", text, labels=["cluster", "sink"])
        for cluster, report in reports.items():
            for sink, said in report.sinks.items():
                metric.add_metric([cluster, sink], getattr(said, name))
        yield metric


def _deliveries() -> Iterator[Metric]:
    waiting: Any = Delivery.objects.filter(delivered_at=None)
    for name, text, rows in (
        ("waiting", "Events not delivered yet.", waiting),
        ("failing", "Events with failed delivery attempts.", waiting.filter(attempts__gt=0)),
    ):
        yield GaugeMetricFamily(f"opsportal_deliveries_{name}", text, value=rows.count())
