"""Log paths of a job: as stored, else as the scheduler reports them."""

import logging
from datetime import datetime

from apps.clusters.schedulers.base import SchedulerError
from apps.diagnosis.domain.facts import log_paths, submission_of
from apps.diagnosis.enums import Stream
from apps.jobs.domain.origin import locate_log
from apps.jobs.models import Job

log = logging.getLogger(__name__)


def locate_logs(*, job: Job, at: datetime) -> list[tuple[Stream, str]]:
    """Return the job's log paths; unknown ones are requested from its scheduler and stored."""
    if job.started_at and not job.log_path:
        script, environment = submission_of(job)
        try:
            locate_log(job=job, script=script, environment=environment, at=at)
        except SchedulerError as error:
            log.warning("log path of %s unknown: %s", job, error)
    return log_paths(job)
