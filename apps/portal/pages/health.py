"""The health page: how the portal's own parts do, for those who run it; and the system check on plugins."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core import checks

from apps.archive.handover.report import CaptureReport
from apps.archive.sinks.registry import SINKS
from apps.clusters.schedulers.registry import SCHEDULERS
from apps.core.domain.health import readiness_heard
from apps.core.domain.plugins import Registry
from apps.core.models import Delivery, Heartbeat
from apps.diagnosis.engine.registry import REGISTRY as CLASSIFIERS
from apps.diagnosis.engine.registry import classifiers
from apps.jobs.domain.jobs import collections
from apps.notifications.domain.health import channels_health
from apps.production.domain.checks.registry import RULES
from apps.production.domain.lifecycle.guards import CLOSING_CHECKS
from apps.production.domain.outputs.datasets import CATALOGUES
from apps.quality.checks.registry import CHECKS
from apps.statusboard.feeds.registry import FEEDS

#: Every kind of plugin there is. Named here, so that each is loaded before it is judged.
PLUGINS: tuple[Registry[Any], ...] = (SCHEDULERS, SINKS, FEEDS, CLASSIFIERS, RULES, CATALOGUES, CLOSING_CHECKS, CHECKS)
#: How many deliveries that fail the page shows.
SHOWN = 20
#: How many of the jobs that a sink refuses.
SHOWN_REFUSED = 3
#: How the name of a capture's heartbeat begins; the cluster follows.
CAPTURE = "capture "


@dataclass(frozen=True)
class Capture:
    """What one capture process last said of itself."""

    name: str
    host: str
    at: datetime
    said: CaptureReport
    troubles: list[str]


@dataclass(frozen=True)
class PluginKind:
    """The plugins of one kind by name, and what is wrong with some."""

    group: str
    names: list[str]
    problems: dict[str, str]


def health_page(*, at: datetime) -> dict[str, Any]:
    """Return what the health page shows."""
    failing = Delivery.objects.filter(delivered_at=None, attempts__gt=0)
    hearts = Heartbeat.objects.filter(name__startswith=CAPTURE).order_by("name")
    return {
        "at": at,
        "checks": readiness_heard(at),
        "captures": [_capture(heart) for heart in hearts],
        "deliveries": failing.select_related("event").order_by("pk")[:SHOWN],
        "failing": failing.count(),
        "channels": channels_health(at),
        "collections": collections(),
        "plugins": plugin_kinds(),
    }


def plugin_kinds() -> list[PluginKind]:
    """Load every plugin and tell what came of it."""
    for registry in PLUGINS:
        registry.working()
    classifiers()
    return [PluginKind(each.group, each.names(), dict(sorted(each.problems.items()))) for each in PLUGINS]


def check_plugins(**_: Any) -> Sequence[checks.CheckMessage]:
    """Warn of plugins that are repeated or broken; the portal works without them."""
    return [
        checks.Warning(f"{name}: {problem}", obj=kind.group, id="opsportal.W001")
        for kind in plugin_kinds()
        for name, problem in kind.problems.items()
    ]


def _capture(heart: Heartbeat) -> Capture:
    said = CaptureReport.from_detail(heart.detail)
    troubles = [said.last_error] if said.last_error else []
    troubles += [f"sink {name}: {sink.last_error}" for name, sink in said.sinks.items() if sink.last_error]
    for name, sink in said.sinks.items():
        troubles += [f"sink {name} refuses job {job_id}: {why}" for job_id, why in sink.last_refused[:SHOWN_REFUSED]]
    troubles += [f"not readable: {path}: {why}" for path, why in said.unreadable.items()]
    troubles += [f"not written to its end: {path}" for path in said.incomplete]
    host = heart.detail.get("host", "") if isinstance(heart.detail, dict) else ""
    return Capture(heart.name, str(host), heart.at, said, troubles)
