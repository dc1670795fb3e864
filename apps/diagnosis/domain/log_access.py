"""Whose files may be read as logs of a job: by its user and uid in accounting, and the options of its cluster."""

import pwd

from django.conf import settings

from apps.clusters.domain import log_owners_of
from apps.diagnosis.engine.access import LogAccess
from apps.jobs.models import Job

#: Root, and the owner that file systems name for files that belong to no account they know. A job's user in
#: accounting is never taken for either of them: schedulers too write `nobody` for a user whom they do not know.
NOT_USERS = frozenset({0, 65534})


def log_access(job: Job) -> LogAccess:
    """Return which files may be read as logs of this job."""
    uid = uid_of(job.user) if job.uid is None else job.uid
    allowed = (int(owner) if owner.isdecimal() else uid_of(owner) for owner in log_owners_of(job.cluster))
    return LogAccess(
        roots=tuple(settings.LOG_ROOTS),
        user=job.user,
        uid=None if uid in NOT_USERS else uid,
        allowed_uids=frozenset(uid for uid in allowed if uid is not None),
    )


def uid_of(user: str) -> int | None:
    """Return the uid of an account of this host; None if there is no such account."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return None
