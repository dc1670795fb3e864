"""Registry of monitoring feed formats."""

from apps.core.domain.plugins import Registry
from apps.statusboard.feeds.base import Feed

FEEDS: Registry[type[Feed]] = Registry(
    "opsportal.monitoring_feeds",
    {"alertmanager": "apps.statusboard.feeds.alertmanager:Alertmanager"},
)
