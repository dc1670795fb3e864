"""What the pages of the portal read from several apps at once."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.urls import reverse

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.jobs.models import Job
from apps.production.models import Request
from apps.statusboard.models import Service

#: How many of each kind a search shows; the rest is in that kind's own list.
SHOWN = 20


@dataclass(frozen=True)
class Found:
    """What a search found, by kind; `jobs_url` leads to the whole list of jobs, where there is one."""

    jobs: list[Job] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)
    jobs_url: str = ""

    def only(self) -> str:
        """Return the address of the one thing found, or nothing when there is none or more."""
        everything: list[Any] = [*self.jobs, *self.requests, *self.services]
        if len(everything) != 1 or self.clusters:
            return ""
        return address(everything[0])


def address(thing: Job | Request | Service) -> str:
    """Return where the page of a thing is."""
    if isinstance(thing, Service):
        return reverse("statusboard:service-detail", args=[thing.slug])
    return thing.get_absolute_url()


def find(*, words: str, user: User) -> Found:
    """Look `words` up as a job's id, host, user, a request's key or title, a service's or cluster's name.

    Every look-up is bounded and uses an index, whatever the words are.
    """
    words = words.strip()
    if not words:
        return Found()
    requests = Request.objects.visible_to(user).select_related("experiment")
    if exact := requests.filter(key__iexact=words).first():
        return Found(requests=[exact])
    jobs = Job.objects.visible_to(user).select_related("cluster", "experiment").order_by("-ended_at", "-pk")
    found, jobs_url = list(jobs.filter(job_id=words)[:SHOWN]), ""
    if not found:
        found, jobs_url = _jobs_of(jobs, words)
    return Found(
        jobs=found,
        requests=list(requests.filter(title__icontains=words).order_by("-pk")[:SHOWN]),
        services=list(Service.objects.filter(name__icontains=words)[:SHOWN]),
        clusters=list(Cluster.objects.filter(name__iexact=words)),
        jobs_url=jobs_url,
    )


def _jobs_of(jobs: QuerySet[Job], words: str) -> tuple[list[Job], str]:
    for name in ("host", "user"):
        found = list(jobs.filter(**{name: words})[:SHOWN])
        if found:
            return found, f"{reverse('jobs:list')}?{urlencode({name: words})}"
    return [], ""
