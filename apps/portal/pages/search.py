"""Search over jobs, requests, services and clusters."""

from dataclasses import dataclass, field
from urllib.parse import urlencode

from django.urls import reverse

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.jobs.models import Job
from apps.production.models import Request
from apps.statusboard.models import Service

#: Maximum number of results of each kind.
SHOWN = 20


@dataclass(frozen=True)
class Found:
    """Results by kind; `jobs_url` is the list of all jobs found, if there are more."""

    jobs: list[Job] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)
    jobs_url: str = ""

    def single_url(self) -> str:
        """Return the URL of the result if there is exactly one that has a page, else an empty text."""
        found: list[Job | Request | Service] = [*self.jobs, *self.requests, *self.services]
        if len(found) != 1 or self.clusters:
            return ""
        if isinstance(found[0], Service):
            return reverse("statusboard:service-detail", args=[found[0].slug])
        return found[0].get_absolute_url()


def find(*, words: str, user: User) -> Found:
    """Search ids, hosts and users of jobs, keys and titles of requests, names of services and clusters.

    Every query is limited and uses an index.
    """
    words = words.strip()
    if not words:
        return Found()
    requests = Request.objects.visible_to(user).select_related("experiment")
    if exact := requests.filter(key__iexact=words).first():
        return Found(requests=[exact])
    jobs = Job.objects.visible_to(user).select_related("cluster", "experiment").order_by("-ended_at", "-pk")
    found, jobs_url = list(jobs.filter(job_id=words)[:SHOWN]), ""
    for name in ("host", "user"):
        if not found and (found := list(jobs.filter(**{name: words})[:SHOWN])):
            jobs_url = f"{reverse('jobs:list')}?{urlencode({name: words})}"
    return Found(
        jobs=found,
        requests=list(requests.filter(title__icontains=words).order_by("-pk")[:SHOWN]),
        services=list(Service.objects.filter(name__icontains=words)[:SHOWN]),
        clusters=list(Cluster.objects.filter(name__iexact=words)),
        jobs_url=jobs_url,
    )
