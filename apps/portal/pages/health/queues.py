"""All queues of work, for the health page and `/metrics`."""

from datetime import datetime
from typing import Any

from apps.archive.domain.masking_trials import TRIALS
from apps.archive.domain.sinks import DELIVERIES
from apps.core.domain.outbox import EVENTS
from apps.core.domain.work import Queue, QueueFigures, queue_figures
from apps.datasets.domain.look_ups import LOOK_UPS
from apps.datasets.domain.making import MAKINGS
from apps.datasets.domain.staging import STAGINGS
from apps.diagnosis.domain.causes.common.causes import ANALYSES
from apps.diagnosis.domain.reading.line_templates import COMPLETED_LOGS
from apps.diagnosis.domain.verdicts.harvest import HARVESTS
from apps.diagnosis.domain.verdicts.reclassification import RUNS
from apps.hosts.domain.probes.probe_jobs import PROBE_JOBS
from apps.notifications.domain.delivery import CALLS, MAIL
from apps.recovery.domain.decisions.decide import DECISIONS
from apps.search.domain.indexing.new_logs import LOGS_TO_INDEX
from apps.statusboard.domain.monitoring.payloads import PAYLOADS
from apps.submission.domain.retries.release import BATCHES

QUEUES: tuple[Queue[Any], ...] = (
    EVENTS,
    MAIL,
    CALLS,
    DELIVERIES,
    TRIALS,
    PAYLOADS,
    HARVESTS,
    COMPLETED_LOGS,
    LOGS_TO_INDEX,
    RUNS,
    ANALYSES,
    BATCHES,
    DECISIONS,
    PROBE_JOBS,
    LOOK_UPS,
    STAGINGS,
    MAKINGS,
)


def all_queues(*, at: datetime) -> list[QueueFigures]:
    """Return the figures of each queue, in one query."""
    return queue_figures(QUEUES, at=at)
