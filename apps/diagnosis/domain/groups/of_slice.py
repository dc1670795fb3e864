"""The failure groups of the newest failed jobs of one host, site or user."""

from collections import Counter
from datetime import datetime

from django.db.models import Q

from apps.accounts.models import User
from apps.diagnosis.models import FailureGroup, Verdict
from apps.jobs.domain.records.jobs import matches_host
from apps.jobs.domain.statistics.slices import SliceKind
from apps.jobs.models import Job, JobQuerySet

#: The newest failed jobs whose groups are listed: a slice may have any number of them.
MOST_JOBS = 200
MOST_GROUPS = 10


def groups_of_slice(
    kind: SliceKind, name: str, *, user: User, since: datetime
) -> tuple[list[tuple[FailureGroup, int]], int]:
    """Return the groups with their number of jobs, most first, and how many jobs were examined."""
    failed = _jobs_of(kind, name, user).failed().filter(ended_at__gte=since)
    jobs = list(failed.order_by("-ended_at", "-pk").values_list("pk", flat=True)[:MOST_JOBS])
    groups = Verdict.objects.filter(job__in=jobs).exclude(group=None)
    counts = Counter(groups.values_list("group", flat=True))
    most_common = counts.most_common(MOST_GROUPS)
    rows = FailureGroup.objects.defer("profile").in_bulk([pk for pk, _ in most_common])
    return [(rows[pk], count) for pk, count in most_common], len(jobs)


def sees_slice(kind: SliceKind, name: str, user: User) -> bool:
    """Return whether a user may see any job of a slice."""
    return _jobs_of(kind, name, user).exists()


def _jobs_of(kind: SliceKind, name: str, user: User) -> JobQuerySet[Job]:
    conditions = {"host": matches_host(name), "site": Q(site__name=name), "user": Q(user=name)}
    return Job.objects.visible_to(user).filter(conditions[kind])
