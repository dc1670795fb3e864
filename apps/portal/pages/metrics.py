"""The figures of the health page in Prometheus' text format. No jobs are counted for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from apps.archive.wire.report import CaptureReport
from apps.core.domain.health import CAPTURE, components
from apps.core.models import Delivery, Heartbeat
from apps.jobs.domain.jobs import collections
from apps.portal.pages.health import loaded_plugins

_OF_CAPTURE = {
    "captured": ("Jobs captured since the start of the process.", CounterMetricFamily),
    "waiting": ("Jobs found in the spool but not read yet.", GaugeMetricFamily),
    "unreadable_count": ("Unreadable spool entries.", GaugeMetricFamily),
    "behind": ("Jobs in the journal, not yet handed over to the portal.", GaugeMetricFamily),
    "lag_seconds": ("Age of the oldest job not yet handed over.", GaugeMetricFamily),
    "handed_over": ("Jobs handed over to the portal since the start of the process.", CounterMetricFamily),
    "refused": ("Jobs in the journal that the portal rejects.", GaugeMetricFamily),
}


@dataclass(frozen=True)
class _Health(Collector):
    """The figures at a time."""

    at: datetime

    def collect(self) -> Iterator[Metric]:
        hearts = list(Heartbeat.objects.order_by("name"))
        ok = GaugeMetricFamily("opsportal_check_ok", "Whether a component of the portal is ok.", labels=["check"])
        for check in components(self.at, ask_queue=True):
            ok.add_metric([check.name], check.ok)
        age = GaugeMetricFamily(
            "opsportal_heartbeat_age_seconds", "Time since the last heartbeat of a process.", labels=["process"]
        )
        for heart in hearts:
            age.add_metric([heart.name], (self.at - heart.at).total_seconds())
        plugins = GaugeMetricFamily("opsportal_plugin_problems", "Broken or duplicate plugins.", labels=["group"])
        for kind in loaded_plugins():
            plugins.add_metric([kind.group], len(kind.problems))
        yield from (ok, age, plugins, *_captures(hearts), *_deliveries(), *_collections(self.at))


def metrics_text(*, at: datetime) -> bytes:
    return generate_latest(_Health(at))


def _collections(at: datetime) -> Iterator[Metric]:
    ok = GaugeMetricFamily("opsportal_accounting_ok", "Whether accounting is reachable.", labels=["cluster"])
    age = GaugeMetricFamily("opsportal_accounting_lag_seconds", "Lag of accounting collection.", labels=["cluster"])
    for each in collections():
        ok.add_metric([each.cluster.name], not each.last_error)
        age.add_metric([each.cluster.name], (at - each.collected_until).total_seconds())
    yield from (ok, age)


def _captures(hearts: list[Heartbeat]) -> Iterator[Metric]:
    captures = [heart for heart in hearts if heart.name.startswith(CAPTURE)]
    reports = [(_place(heart), CaptureReport.from_detail(heart.detail)) for heart in captures]
    for name, (text, family) in _OF_CAPTURE.items():
        metric = family(f"opsportal_capture_{name.removesuffix('_count')}", text, labels=["cluster", "host"])
        for place, report in reports:
            metric.add_metric(place, getattr(report, name))
        yield metric


def _place(heart: Heartbeat) -> list[str]:
    """Return cluster and host of a capture."""
    cluster, _, host = heart.name.removeprefix(CAPTURE).rpartition(" on ")
    return [cluster, host]


def _deliveries() -> Iterator[Metric]:
    waiting: Any = Delivery.objects.filter(delivered_at=None)
    for name, text, rows in (
        ("waiting", "Events not delivered yet.", waiting),
        ("failing", "Events with failed delivery attempts.", waiting.filter(attempts__gt=0)),
    ):
        yield GaugeMetricFamily(f"opsportal_deliveries_{name}", text, value=rows.count())
