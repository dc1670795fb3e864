"""Registry of monitoring feed formats."""

from apps.core.domain.plugins import Registry
from apps.statusboard.feeds.base import Feed

FEEDS: Registry[type[Feed]] = Registry(
    "opsportal.monitoring_feeds",
    {
        "alertmanager": "apps.statusboard.feeds.alertmanager:Alertmanager",
        "checkmk": "apps.statusboard.feeds.checkmk:Checkmk",
        "gocdb": "apps.statusboard.feeds.downtimes:Gocdb",
        "grafana": "apps.statusboard.feeds.grafana:Grafana",
        "ical": "apps.statusboard.feeds.ical:Ical",
        "icinga2": "apps.statusboard.feeds.icinga2:Icinga2",
        "json": "apps.statusboard.feeds.generic:GenericJson",
        "nagios": "apps.statusboard.feeds.nagios:Nagios",
        "osg-downtimes": "apps.statusboard.feeds.downtimes:OsgDowntimes",
        "statuspage": "apps.statusboard.feeds.statuspage:Statuspage",
        "uptime-kuma": "apps.statusboard.feeds.uptime_kuma:UptimeKuma",
        "zabbix": "apps.statusboard.feeds.zabbix:Zabbix",
    },
)
