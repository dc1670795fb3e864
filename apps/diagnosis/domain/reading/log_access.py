"""Locate the logs of a job, and decide which files may be read as its logs.

The decision depends on the user and uid in accounting, and on the cluster.
"""

import logging
import pwd
from datetime import datetime

from django.conf import settings

from apps.clusters.domain import checks_log_rights, log_owners_of, log_url_of
from apps.clusters.schedulers.base import SchedulerError
from apps.clusters.schedulers.user_files import FileReader, account_of
from apps.diagnosis.domain.reading.job_facts import log_paths, submission_of
from apps.diagnosis.engine.logs.access import LogAccess
from apps.diagnosis.enums import Stream
from apps.jobs.domain.collection.origin import locate_log
from apps.jobs.models import Job

log = logging.getLogger(__name__)

#: Root, and the owner that file systems report for files of unknown accounts. A job's user in
#: accounting is never mapped to either of them, because schedulers too write `nobody` for a user
#: they do not know.
NOT_USERS = frozenset({0, 65534})


def locate_logs(*, job: Job, at: datetime) -> list[tuple[Stream, str]]:
    """Return the paths of a job's logs; ask its scheduler for unknown paths and store them."""
    if job.started_at and not job.log_path and not log_url_of(job.cluster):
        script, environment = submission_of(job)
        try:
            locate_log(job=job, script=script, environment=environment, at=at)
        except SchedulerError as error:
            log.warning("log path of %s unknown: %s", job, error)
    return log_paths(job)


def log_access(job: Job) -> LogAccess:
    """Return which files may be read as logs of this job."""
    uid = uid_of(job.user) if job.uid is None else job.uid
    uid = None if uid in NOT_USERS else uid
    allowed = (
        int(owner) if owner.isdecimal() else uid_of(owner) for owner in log_owners_of(job.cluster)
    )
    return LogAccess(
        roots=tuple(settings.LOG_ROOTS),
        user=job.user,
        uid=uid,
        allowed_uids=frozenset(uid for uid in allowed if uid is not None),
        reader=(FileReader() if uid is None else account_of(uid))
        if checks_log_rights(job.cluster)
        else None,
    )


def uid_of(user: str) -> int | None:
    """Return the uid of an account on this host; None if there is no such account."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return None
