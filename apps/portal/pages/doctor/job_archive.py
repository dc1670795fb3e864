"""The store of archived months: it answers, has all months, and is the same on all hosts."""

import socket
from collections.abc import Iterator
from datetime import datetime

from django.conf import settings
from django.core.cache import cache

from apps.core.http.bucket_url import is_object_store
from apps.jobs.domain.months.stores.base import BadArchive
from apps.jobs.domain.months.stores.chosen import job_archive
from apps.jobs.models import ArchivedMonth
from apps.portal.pages.doctor.findings import DoctorFinding, ok, problem

#: How long the result of a host is remembered: long enough to run the doctor on each host.
SEEN_SECONDS = 3_600
_SEEN = "doctor:job-archive"
_SHARE = (
    "Let JOB_ARCHIVE be a directory that all hosts see, or an object store (docs/scale-out.md)."
)
_MOST_NAMES = 6


def check_store(at: datetime) -> Iterator[DoctorFinding]:
    """Write, read and delete an object of the object store."""
    if not is_object_store(settings.JOB_ARCHIVE):
        return  # one of the directories
    store = job_archive()
    name = f"JOB_ARCHIVE {store.name}"
    try:
        store.probe()
    except (BadArchive, OSError) as error:
        yield problem(
            name,
            " ".join(str(error).split()),
            "Start that server, or correct JOB_ARCHIVE and the settings beside it (docs/jobs.md).",
        )
    else:
        yield ok(name, "objects can be written, read and deleted")


def check_months(at: datetime) -> Iterator[DoctorFinding]:
    """Check that the months that were dropped from the database are in the store."""
    store = job_archive()
    name = "archived months"
    dropped = ArchivedMonth.objects.exclude(dropped_at=None).order_by("month")
    months = list(dropped.values_list("month", flat=True))
    try:
        there = set(store.months())
    except (BadArchive, OSError) as error:
        yield problem(name, " ".join(str(error).split()), _SHARE)
        return
    if missing := [f"{month:%Y-%m}" for month in months if month not in there]:
        names = ", ".join(missing[:_MOST_NAMES])
        more = f" and {len(missing) - _MOST_NAMES} more" if len(missing) > _MOST_NAMES else ""
        yield problem(name, f"{names}{more} not in {store.name}, as this host sees it", _SHARE)
    else:
        yield ok(name, f"{len(months)} in {store.name}")


def check_hosts(at: datetime) -> Iterator[DoctorFinding]:
    """Compare the store with the store of the host on which the doctor ran before."""
    identity = job_archive().identity()
    if not identity:
        return  # the directory is not there yet
    name = "shared JOB_ARCHIVE"
    host = socket.gethostname()
    seen = cache.get(_SEEN)
    if seen and seen["host"] != host and seen["identity"] != identity:
        yield problem(name, f"{seen['host']} sees another one: {seen['store']}", _SHARE)
        return
    if seen and seen["host"] != host:
        yield ok(name, f"{seen['host']} sees the same")
    else:
        yield ok(name, f"no other host was checked in the last {SEEN_SECONDS // 60} minutes")
    here = {"host": host, "identity": identity, "store": job_archive().name}
    cache.set(_SEEN, here, SEEN_SECONDS)
