"""The jobs that failed like one job: their numbers, and the next ones to look at."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max, Min, Q, Sum

from apps.accounts.models import User
from apps.diagnosis.models import DailyCauseTotals, FailureGroup, Verdict


@dataclass(frozen=True, slots=True)
class SameFailure:
    """The failure group of a job, as far as a user may see its jobs.

    `open` jobs have not succeeded since. `newer` and `older` are the primary keys of the next jobs
    of the group.
    """

    group: FailureGroup
    jobs: int
    open: int
    in_stage: int
    first_ended_at: datetime
    last_ended_at: datetime
    newer: int | None
    older: int | None


def same_failure(verdict: Verdict, *, stage: str, user: User) -> SameFailure | None:
    """Return the group of a verdict; None without a group, or before its jobs are counted.

    The numbers are sums of totals.
    """
    if verdict.group is None:
        return None
    totals = DailyCauseTotals.objects.visible_to(user).filter(group=verdict.group)
    in_stage = Q(stage__iexact=stage)
    sums = totals.aggregate(
        all_jobs=Sum("jobs", default=0),
        all_succeeded=Sum("succeeded", default=0),
        in_stage=Sum("jobs", filter=in_stage, default=0),
        first=Min("first_ended_at"),
        last=Max("last_ended_at"),
    )
    if not sums["all_jobs"]:
        return None

    others = Verdict.objects.visible_to(user).filter(group=verdict.group)
    same_end = Q(ended_at=verdict.ended_at)
    newer = others.filter(Q(ended_at__gt=verdict.ended_at) | same_end & Q(pk__gt=verdict.pk))
    older = others.filter(Q(ended_at__lt=verdict.ended_at) | same_end & Q(pk__lt=verdict.pk))
    next_newer = newer.order_by("ended_at", "pk").first()
    next_older = older.order_by("-ended_at", "-pk").first()
    return SameFailure(
        verdict.group,
        sums["all_jobs"],
        sums["all_jobs"] - sums["all_succeeded"],
        sums["in_stage"],
        sums["first"],
        sums["last"],
        next_newer.job_id if next_newer else None,
        next_older.job_id if next_older else None,
    )
