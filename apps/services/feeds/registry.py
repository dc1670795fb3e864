"""Which formats of monitoring feeds there are."""

from apps.core.plugins import Registry
from apps.services.feeds.base import Feed

FEEDS: Registry[type[Feed]] = Registry(
    "opsportal.monitoring_feeds",
    {"alertmanager": "apps.services.feeds.alertmanager:Alertmanager"},
)
