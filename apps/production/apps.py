from typing import Any

from django.apps import AppConfig
from django.db import connection
from django.db.models.signals import post_migrate
from django.utils import timezone


class ProductionConfig(AppConfig):
    name = "apps.production"

    def ready(self) -> None:
        post_migrate.connect(_load_workflows, sender=self)


def _load_workflows(**_: Any) -> None:
    """Create the workflow types that come with this version of the portal."""
    from apps.production.domain.types.versions import load_builtin_workflows
    from apps.production.models import WorkflowVersion

    if WorkflowVersion._meta.db_table in connection.introspection.table_names():
        load_builtin_workflows(at=timezone.now())
