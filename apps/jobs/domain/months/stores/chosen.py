"""The store that JOB_ARCHIVE names."""

from functools import lru_cache
from pathlib import Path

from django.conf import settings

from apps.core.http.bucket_url import ObjectStoreURL, is_object_store
from apps.jobs.domain.months.stores.base import MonthStore
from apps.jobs.domain.months.stores.bucket import BucketTarget
from apps.jobs.domain.months.stores.directory import Directory
from apps.jobs.domain.months.stores.object_store import ObjectStore

_CACHE = "job-month-cache"


def job_archive() -> MonthStore:
    """Return the store of archived months."""
    if not is_object_store(settings.JOB_ARCHIVE):
        return Directory(Path(settings.JOB_ARCHIVE))
    target = BucketTarget(
        ObjectStoreURL.parse(str(settings.JOB_ARCHIVE)),
        access_key=settings.JOB_ARCHIVE_ACCESS_KEY,
        secret_key=settings.JOB_ARCHIVE_SECRET_KEY,
        ca=str(settings.JOB_ARCHIVE_CA or ""),
    )
    return _object_store(target, settings.VAR_DIR / _CACHE, settings.JOB_ARCHIVE_CACHE_MAX_BYTES)


@lru_cache(maxsize=4)
def _object_store(target: BucketTarget, local: Path, max_bytes: int) -> ObjectStore:
    # One for all threads of a process: it knows when the store was last away.
    return ObjectStore(target, local=local, max_bytes=max_bytes)
