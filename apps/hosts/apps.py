from typing import Any

from django.apps import AppConfig
from django.db import connection
from django.db.models.signals import post_migrate


class HostsConfig(AppConfig):
    name = "apps.hosts"

    def ready(self) -> None:
        post_migrate.connect(_load_probes, sender=self)


def _load_probes(**_: Any) -> None:
    """Add the probes that this version of the portal ships."""
    from apps.hosts.domain.probes.shipped import load_shipped_probes
    from apps.hosts.models import MeasuredState

    # The newest table: the migrations of this version have been applied.
    if MeasuredState._meta.db_table in connection.introspection.table_names():
        load_shipped_probes()
