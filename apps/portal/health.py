"""The health page: how the portal's own parts do, for those who run it; and the system check on plugins."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.core import checks

from apps.clusters.schedulers.registry import SCHEDULERS
from apps.core.models import Delivery, Heartbeat
from apps.core.plugins import Registry
from apps.core.selectors import readiness
from apps.diagnosis.engine.registry import REGISTRY as CLASSIFIERS
from apps.diagnosis.engine.registry import classifiers
from apps.jobs.selectors import collections
from apps.services.feeds.registry import FEEDS

#: Every kind of plugin there is. Named here, so that each is loaded before it is judged.
PLUGINS: tuple[Registry[Any], ...] = (SCHEDULERS, FEEDS, CLASSIFIERS)
#: How many deliveries that fail the page shows.
SHOWN = 20


@dataclass(frozen=True)
class Capture:
    """What one capture process last said of itself."""

    name: str
    at: datetime
    captured: int
    waiting: int
    sinks: dict[str, dict[str, Any]]
    troubles: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PluginKind:
    """The plugins of one kind by name, and what is wrong with some."""

    group: str
    names: list[str]
    problems: dict[str, str]


def health_page(*, at: datetime) -> dict[str, Any]:
    """Return what the health page shows."""
    failing = Delivery.objects.filter(delivered_at=None, attempts__gt=0)
    hearts = Heartbeat.objects.filter(name__startswith="capture ").order_by("name")
    return {
        "at": at,
        "checks": readiness(at),
        "captures": [_capture(heart) for heart in hearts],
        "deliveries": failing.select_related("event").order_by("pk")[:SHOWN],
        "failing": failing.count(),
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
    """Read a heartbeat's detail, as `manage.py capture` writes it."""
    said = heart.detail
    sinks = said.get("sinks", {})
    troubles = [said["last_error"]] if said.get("last_error") else []
    troubles += [f"sink {name}: {sink['last_error']}" for name, sink in sinks.items() if sink.get("last_error")]
    troubles += [f"sink {name} refuses {sink['refused']} jobs" for name, sink in sinks.items() if sink.get("refused")]
    troubles += [f"not readable: {path}: {why}" for path, why in said.get("unreadable", {}).items()]
    troubles += [f"not written to its end: {path}" for path in said.get("incomplete", [])]
    return Capture(heart.name, heart.at, said.get("captured", 0), said.get("waiting", 0), sinks, troubles)
