"""The portal whose database this is, as a place that capture reports to."""

import socket
from collections.abc import Mapping
from typing import Any

from django.db import connection
from django.utils import timezone

from apps.core.domain.health import beat_capture
from apps.core.domain.masking import Rule
from apps.jobs.domain.masking_rules import current_rules


class OwnDatabase:
    """Writes heartbeats, and reads masking rules."""

    def report(self, cluster: str, detail: Mapping[str, Any]) -> None:
        beat_capture(cluster=cluster, host=socket.gethostname(), at=timezone.now(), detail=detail)

    def masking_rules(self) -> list[Rule]:
        return current_rules()

    def close(self) -> None:
        connection.close()
