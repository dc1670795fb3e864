"""Failure groups whose jobs only their owners can submit again."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from apps.accounts.models import Principal
from apps.accounts.permissions import is_opg
from apps.archive.domain.store.contents import archived_jobs_for
from apps.clusters.schedulers.base import JobState
from apps.core.short_cache import cached_for
from apps.diagnosis.enums import GroupKind, VerdictKind
from apps.diagnosis.models import FailureGroup, Verdict
from apps.submission.domain.retries.eligibility import array_of, arrays_with_ids_of

#: The groups that are examined: the newest of the last month, by their newest open jobs.
REMEMBERED = timedelta(days=30)
MOST_GROUPS = 20
MOST_JOBS = 50
#: How long the result is kept: it takes tens of milliseconds.
KEPT_SECONDS = 60


def step_of_owners(user: Principal) -> str:
    """Return what a user can do about jobs that only their owners can submit again."""
    if is_opg(user):
        return "only their owners can resubmit: notify them"
    return "only their owners can resubmit"


def steps_of_owners(user: Principal, at: datetime) -> dict[int, str]:
    """Return the next step of the groups of service problems left to owners, by primary key.

    It is as of `KEPT_SECONDS` ago at most.
    """
    newest = FailureGroup.objects.filter(
        kind=GroupKind.ERROR, verdict=VerdictKind.SERVICE, last_seen_at__gte=at - REMEMBERED
    ).order_by("-last_seen_at")
    pks = list(newest.values_list("pk", flat=True)[:MOST_GROUPS])
    key = f"groups-left-to-owners:{'-'.join(map(str, pks))}"
    groups = cached_for(KEPT_SECONDS, key, lambda: _without_scripts(pks))
    return dict.fromkeys(groups, step_of_owners(user))


def _without_scripts(pks: Sequence[int]) -> frozenset[int]:
    """Return the groups of whose newest open jobs the portal has no script, in few queries.

    It neither submitted them nor captured their scripts.
    """
    parts = []
    for pk in pks:
        of_group = Verdict.objects.filter(group=pk).exclude(later_state=JobState.COMPLETED)
        parts.append(of_group.order_by("-ended_at", "-pk").values("pk")[:MOST_JOBS])
    if not parts:
        return frozenset()
    union = parts[0].union(*parts[1:], all=True)
    verdicts = Verdict.objects.filter(pk__in=[row["pk"] for row in union])
    verdicts = verdicts.select_related("job__cluster")

    jobs = [verdict.job for verdict in verdicts]
    captured = archived_jobs_for(jobs)
    arrays = arrays_with_ids_of(jobs)
    has_script: dict[int | None, list[bool]] = defaultdict(list)
    for verdict in verdicts:
        job = verdict.job
        has_script[verdict.group_id].append(job.pk in captured or bool(array_of(job, arrays)))
    return frozenset(pk for pk, scripts in has_script.items() if pk and not any(scripts))
