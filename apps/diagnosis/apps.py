from typing import Any

from django.apps import AppConfig
from django.db import connection
from django.db.models.signals import post_migrate
from django.utils import timezone


class DiagnosisConfig(AppConfig):
    name = "apps.diagnosis"

    def ready(self) -> None:
        post_migrate.connect(_load_known_errors, sender=self)
        post_migrate.connect(_load_exit_codes, sender=self)


def _load_known_errors(**_: Any) -> None:
    """Load the known errors that this version of the portal ships."""
    from apps.diagnosis.domain.known_errors.shipped import load_shipped
    from apps.diagnosis.models import KnownErrorChange

    if KnownErrorChange._meta.db_table in connection.introspection.table_names():
        load_shipped(at=timezone.now())


def _load_exit_codes(**_: Any) -> None:
    """Load the exit codes that this version of the portal ships."""
    from apps.diagnosis.domain.known_errors.exit_codes import load_shipped_codes
    from apps.diagnosis.models import ExitCodeMeaning

    if ExitCodeMeaning._meta.db_table in connection.introspection.table_names():
        load_shipped_codes()
