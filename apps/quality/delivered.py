"""How many jobs of each stage have delivered: each once, by its last attempt, without those of a test."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Q

from apps.clusters.schedulers.base import JobState
from apps.core.selectors import events_of
from apps.jobs.models import Job
from apps.production.enums import RequestState
from apps.production.models import Request

#: Clocks of portal and scheduler may differ by so much.
_SKEW = timedelta(minutes=5)


@dataclass(frozen=True)
class Delivered:
    """Jobs of a stage that completed: of production, and of before it."""

    jobs: int = 0
    tests: int = 0


def delivered_by(request: Request) -> dict[str, Delivered]:
    """Return what the jobs of each stage have delivered, by its name in small letters, counted from the jobs."""
    since = production_since(request)
    since = since - _SKEW if since else None
    last = Job.objects.filter(request=request).order_by("cluster_id", "job_id", "submitted_at", "-attempt")
    last = last.distinct("cluster_id", "job_id", "submitted_at")
    done = Job.objects.filter(pk__in=last.values("pk"), state=JobState.COMPLETED).order_by()
    of_production = Q(submitted_at__gte=since) if since else Q(pk__gt=0)
    found: dict[str, Delivered] = {}
    rows = done.values("stage").annotate(every=Count("pk"), jobs=Count("pk", filter=of_production))
    for row in rows:
        one = found.get(row["stage"].casefold(), Delivered())
        found[row["stage"].casefold()] = Delivered(one.jobs + row["jobs"], one.tests + row["every"] - row["jobs"])
    return found


def production_since(request: Request) -> datetime | None:
    """Return when production began: after the last test, or the last time in the queue; None where it never was."""
    moments = events_of(request).filter(Q(old=RequestState.TESTING) | Q(new=RequestState.QUEUED)).order_by("-pk")
    return moments.values_list("at", flat=True).first()
