"""Search over jobs, arrays, requests, scripts, known errors, hosts, users, services and clusters."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.db.models import Q
from django.urls import reverse

from apps.accounts.models import User
from apps.archive.domain.search.search import Hit, Search, TooWide, hits_in
from apps.archive.domain.search.search import find as find_scripts
from apps.archive.domain.store.contents import jobs_for_list as archived_jobs
from apps.archive.models import ArchivedJob
from apps.clusters.models import Cluster
from apps.diagnosis.domain.causes import CauseRow, failures_by_cause
from apps.diagnosis.models import DailyCauseTotals, KnownError
from apps.jobs.domain.jobs import jobs_for_list, matches_host
from apps.jobs.domain.records import day_of
from apps.jobs.models import Job
from apps.production.models import Request
from apps.statusboard.models import Service

#: Maximum number of results of each kind.
SHOWN = 20
#: Failures by known errors are counted over this time.
ERRORS_SINCE = timedelta(days=30)
#: Shorter words are part of the name of many known errors.
SHORTEST_ERROR = 3


@dataclass(frozen=True)
class Error:
    """A known error, how many jobs failed with it lately, and the URL of their list."""

    name: str
    jobs: int
    url: str


@dataclass(frozen=True)
class Found:
    """Results by kind; `jobs_url` is the list of all jobs found, `scripts_url` that of all scripts with the words."""

    jobs: list[Job] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)
    errors: list[Error] = field(default_factory=list)
    scripts: list[tuple[ArchivedJob, list[Hit]]] = field(default_factory=list)
    jobs_url: str = ""
    scripts_url: str = ""

    def __bool__(self) -> bool:
        return bool(self.jobs or self.requests or self.services or self.clusters or self.errors or self.scripts)

    def single_url(self) -> str:
        """Return the URL of the result if there is exactly one, else an empty text."""
        urls = [each.get_absolute_url() for each in self.jobs] + [each.get_absolute_url() for each in self.requests]
        urls += [each.get_absolute_url() for each in self.services]
        urls += [_jobs_url(cluster=each.name) for each in self.clusters]
        urls += [each.url for each in self.errors]
        urls += [reverse("archive:job", args=[each.pk]) for each, _ in self.scripts]
        return urls[0] if len(urls) == 1 else ""


def find(*, words: str, user: User, at: datetime) -> Found:
    """Search by ids, hosts and users of jobs, words of scripts, names of known errors, services and clusters, requests.

    A request key, a job ID or the name of a service finds that alone; a host is found with or without its domain. Every
    query is limited and uses an index.
    """
    words = words.strip()
    if not words:
        return Found()
    requests = Request.objects.visible_to(user).select_related("experiment")
    if exact := requests.filter(key__iexact=words).first():
        return Found(requests=[exact])
    if service := Service.objects.filter(Q(name__iexact=words) | Q(slug__iexact=words)).first():
        return Found(services=[service])
    jobs, jobs_url = _jobs(words, user)
    if jobs and not jobs_url:
        return Found(jobs=jobs)
    archived, scripts_url = _scripts(words, user, by_id=not jobs)
    return Found(
        jobs=jobs,
        requests=list(requests.filter(title__icontains=words).order_by("-pk")[:SHOWN]),
        services=list(Service.objects.filter(name__icontains=words)[:SHOWN]),
        clusters=list(Cluster.objects.filter(name__iexact=words)),
        errors=_errors(words, user, at),
        scripts=archived,
        jobs_url=jobs_url,
        scripts_url=scripts_url,
    )


def _jobs_url(**query: str) -> str:
    return f"{reverse('jobs:list')}?{urlencode(query)}"


def _jobs(words: str, user: User) -> tuple[list[Job], str]:
    """Return the jobs with this id, else tasks of the array, else the newest on the host or of the user.

    The URL is that of the list of all; empty for jobs with this id.
    """
    jobs = jobs_for_list(user)
    if found := list(jobs.filter(job_id=words).order_by("-ended_at", "-pk")[:SHOWN]):
        return found, ""
    if found := list(jobs.filter(spool_id=words)[:SHOWN]):  # an array has any number of tasks: not sorted
        return found, _jobs_url(job=words)
    newest = jobs.order_by("-ended_at", "-pk")
    if found := list(newest.filter(matches_host(words))[:SHOWN]):
        return found, _jobs_url(host=words)
    found = list(newest.filter(user=words)[:SHOWN])
    return found, _jobs_url(user=words) if found else ""


def _scripts(words: str, user: User, *, by_id: bool) -> tuple[list[tuple[ArchivedJob, list[Hit]]], str]:
    """Return the archived job with this id, else the newest with these words in their script; and the URL of all."""
    rows = archived_jobs(user).order_by("-submitted_at", "-pk")
    if by_id and (same := list(rows.filter(job_id=words)[:SHOWN])):
        return [(row, []) for row in same], ""
    search = Search(words=words)
    if not search.terms:
        return [], ""
    url = f"{reverse('archive:jobs')}?{urlencode({'words': words})}"
    try:
        found = find_scripts(rows, SHOWN, search=search).rows
        hits = hits_in(found, search)
    except TooWide:
        return [], url
    return [(row, hits.get(row.script_id, [])) for row in found], url if found else ""


def _errors(words: str, user: User, at: datetime) -> list[Error]:
    """Return the known errors with these words in their name, most failures first."""
    if len(words) < SHORTEST_ERROR:
        return []
    since = day_of(at - ERRORS_SINCE)
    totals = DailyCauseTotals.objects.visible_to(user).filter(day__gte=since)
    rows: list[CauseRow] = failures_by_cause(totals.filter(cause__icontains=words))
    named = KnownError.objects.filter(Q(pk__icontains=words) | Q(title__icontains=words))
    jobs = dict.fromkeys(named.values_list("pk", flat=True), 0)
    for row in rows:
        jobs[row.cause] = jobs.get(row.cause, 0) + row.jobs
    start = f"{since:%Y-%m-%dT%H:%MZ}"
    most_first = sorted(jobs.items(), key=lambda item: (-item[1], item[0]))
    link = reverse("diagnosis:failed-jobs")
    return [Error(name, n, f"{link}?{urlencode({'cause': name, 'start': start})}") for name, n in most_first[:SHOWN]]
