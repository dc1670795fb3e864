from typing import Any

from django.apps import AppConfig
from django.db import connection
from django.db.models.signals import post_migrate
from django.utils import timezone


class RecoveryConfig(AppConfig):
    name = "apps.recovery"

    def ready(self) -> None:
        post_migrate.connect(_load_rules, sender=self)


def _load_rules(**_: Any) -> None:
    """Add the rules that this version of the portal ships."""
    from apps.recovery.domain.rules.shipped import load_shipped_rules
    from apps.recovery.models import RecoveryRuleVersion

    if RecoveryRuleVersion._meta.db_table in connection.introspection.table_names():
        load_shipped_rules(at=timezone.now())
