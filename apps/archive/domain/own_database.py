"""The portal whose database this is, as a place that capture reports to."""

from collections.abc import Mapping
from typing import Any

from django.db import connection
from django.utils import timezone

from apps.core.domain.health import beat_heart
from apps.core.domain.masking import Rule
from apps.jobs.domain.masking_rules import current_rules


class OwnDatabase:
    """Writes heartbeats, and reads masking rules."""

    def report(self, cluster: str, detail: Mapping[str, Any]) -> None:
        beat_heart(name=f"capture {cluster}", at=timezone.now(), detail=dict(detail))

    def masking_rules(self) -> list[Rule]:
        return current_rules()

    def close(self) -> None:
        connection.close()
