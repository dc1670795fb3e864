"""Search in jobs, requests, datasets, scripts, known errors, hosts, services and incidents."""

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import Exists, Func, OuterRef, Q, TextField, Value
from django.db.models.lookups import Exact
from django.urls import reverse

from apps.accounts.domain.users import find_people
from apps.accounts.models import User
from apps.archive.domain.search.search import ScriptHit, ScriptSearch, TooWide, hits_in
from apps.archive.domain.search.search import find as find_scripts
from apps.archive.domain.store.contents import archived_jobs_for_list
from apps.archive.models import ArchivedJob
from apps.clusters.models import Cluster
from apps.datasets.domain.listing import (
    find_datasets,
    find_input_files,
    find_inputs,
    find_output_files,
)
from apps.datasets.models import InputFile, OutputFile
from apps.diagnosis.domain.causes.totals import CauseTotal, failures_by_cause
from apps.diagnosis.domain.groups.triage import has_in_readable_line, visible_groups
from apps.diagnosis.models import DailyCauseTotals, FailureGroup, KnownError
from apps.jobs.domain.records.conversion import day_of
from apps.jobs.domain.records.jobs import (
    has_raw_id,
    jobs_for_list,
    matches_host,
    short_host,
)
from apps.jobs.models import SHORT_HOST, Job, StatisticsValue
from apps.production.models import Request
from apps.statusboard.models import Incident, Service

#: Maximum number of results of each kind.
SHOWN = 20
#: Maximum number of failure groups found by words.
MOST_GROUPS = 10
#: Known errors without failed jobs are listed only until the list has this many known errors.
MOST_WITHOUT_JOBS = 8
#: Failures by known errors are counted over this time.
ERRORS_SINCE = timedelta(days=30)
#: Shorter texts are part of the names of many known errors.
SHORTEST_ERROR = 3
#: A shorter text is part of the names of many people.
SHORTEST_NAME = 3
#: A shorter text is the beginning of the names of too many hosts.
SHORTEST_HOST = 3
#: Hosts whose jobs are searched: the user may see the jobs of few hosts.
MOST_HOSTS = 500
_SEPARATORS = re.compile(r"[\W_]+")
#: The name of a failure group on the pages.
_GROUP = re.compile(r"F-(\d{1,18})", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class Error:
    """A known error, its number of recently failed jobs, and the URL of their list.

    A cause that the catalogue does not list has no `title`, and no page at `about_url`.
    """

    name: str
    title: str
    jobs: int
    url: str
    about_url: str

    def get_absolute_url(self) -> str:
        """Return the URL of its failed jobs, or of its page if there are none."""
        return self.url if self.jobs or not self.about_url else self.about_url


@dataclass(frozen=True)
class SearchResults:
    """Results by kind.

    `jobs_url` lists all matching jobs, `scripts_url` all scripts with the words,
    `datasets_url` all datasets with the text in their name. `exact_url` is the page that
    the text names, if there is one. `incidents` are open.
    """

    jobs: list[Job] = field(default_factory=list)
    people: list[User] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    groups: list[FailureGroup] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)
    errors: list[Error] = field(default_factory=list)
    scripts: list[tuple[ArchivedJob, list[ScriptHit]]] = field(default_factory=list)
    datasets: list[str] = field(default_factory=list)
    input_files: list[InputFile] = field(default_factory=list)
    output_files: list[OutputFile] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    exact_url: str = ""
    jobs_url: str = ""
    scripts_url: str = ""
    datasets_url: str = ""

    def __bool__(self) -> bool:
        return bool(
            self.jobs
            or self.people
            or self.requests
            or self.groups
            or self.incidents
            or self.hosts
            or self.services
            or self.clusters
            or self.errors
            or self.scripts
            or self.datasets
            or self.input_files
            or self.output_files
        )

    def single_url(self) -> str:
        """Return the URL that the text names, or of the only result; else an empty text."""
        if self.exact_url:
            return self.exact_url
        # Nobody has a page: the result lists what is theirs.
        if self.people:
            return ""
        pages: list[Any] = [
            *self.jobs,
            *self.requests,
            *self.groups,
            *self.incidents,
            *self.services,
        ]
        urls = [page.get_absolute_url() for page in pages]
        urls += [reverse("jobs:host", args=[host]) for host in self.hosts]
        urls += [_jobs_url(cluster=cluster.name) for cluster in self.clusters]
        urls += [error.get_absolute_url() for error in self.errors]
        datasets = reverse("datasets:dataset")
        urls += [f"{datasets}?{urlencode({'name': name})}" for name in self.datasets]
        urls += [_file_url("submission:file-list", file) for file in self.input_files]
        urls += [_file_url("submission:output-list", file) for file in self.output_files]
        urls += [reverse("archive:job", args=[archived.pk]) for archived, _ in self.scripts]
        return urls[0] if len(urls) == 1 else ""


def find(*, query: str, user: User, at: datetime) -> SearchResults:
    """Search jobs, people, scripts, requests, datasets, hosts, known errors, services, clusters.

    Jobs match by ID, host and user. A request key, a job ID or a failure group such as F-19 returns
    only its own page, the name of a service also its open incidents, failure groups and known
    errors. A host matches with or without its domain, or by the beginning of its name. Every query
    is limited and uses an index.
    """
    query = query.strip()
    if not query:
        return SearchResults()
    requests = Request.objects.visible_to(user).select_related("experiment")
    if exact := requests.filter(key__iexact=query).first():
        return SearchResults(requests=[exact])
    if (named := _GROUP.fullmatch(query)) and (
        group := visible_groups(user).filter(pk=int(named[1])).first()
    ):
        return SearchResults(groups=[group])
    if service := Service.objects.filter(Q(name__iexact=query) | Q(slug__iexact=query)).first():
        return SearchResults(
            services=[service],
            exact_url=service.get_absolute_url(),
            incidents=list(
                Incident.objects.filter(service=service, ended_at=None, merged_into=None)[:SHOWN]
            ),
            groups=list(
                visible_groups(user)
                .filter(service__iexact=query, last_seen_at__gte=at - ERRORS_SINCE)
                .order_by("-last_seen_at")[:SHOWN]
            ),
            errors=_errors(query, user, at),
        )
    jobs, jobs_url = _jobs(query, user)
    if jobs and not jobs_url:
        return SearchResults(jobs=jobs)
    if jobs and _is_name_of(jobs[0].host, query):
        hosts = [query]
    elif jobs:
        hosts = []
    else:
        hosts = _hosts(query, user)
    archived, scripts_url = _scripts(query, user, by_id=not jobs)
    written = find_datasets(query, user, most=SHOWN)
    inputs = find_inputs(query, user, most=SHOWN - len(written)) if len(written) < SHOWN else []
    return SearchResults(
        jobs=jobs,
        people=list(find_people(query, user)[:SHOWN]) if len(query) >= SHORTEST_NAME else [],
        requests=list(requests.filter(title__icontains=query).order_by("-pk")[:SHOWN]),
        groups=_groups(query, user, at),
        services=list(Service.objects.filter(name__icontains=query)[:SHOWN]),
        clusters=list(Cluster.objects.filter(name__iexact=query)),
        errors=_errors(query, user, at),
        scripts=archived,
        datasets=written + inputs,
        input_files=find_input_files(query, user, most=SHOWN),
        output_files=find_output_files(query, user, most=SHOWN),
        hosts=hosts,
        jobs_url=jobs_url,
        scripts_url=scripts_url,
        datasets_url=_datasets_url(query, made=bool(written)) if written or inputs else "",
    )


def _file_url(view: str, file: InputFile | OutputFile) -> str:
    """Return the address of a file in a list of its stage."""
    parameters = {"stage": file.stage.position + 1, "q": file.name}
    return f"{reverse(view, args=[file.stage.request.key])}?{urlencode(parameters)}"


def _datasets_url(query: str, *, made: bool) -> str:
    """Return the address of the datasets with a text in their name, made by requests or not."""
    parameters = {"q": query} if made else {"made": "no", "q": query}
    return f"{reverse('datasets:list')}?{urlencode(parameters)}"


def _jobs_url(**query: str) -> str:
    return f"{reverse('jobs:list')}?{urlencode(query)}"


def jobs_with_id(query: str, user: User) -> tuple[list[Job], str]:
    """Return the jobs with this ID, and no URL.

    If there are none, return tasks of the array with this ID and the URL of their list, else the
    tasks that have the number in the scheduler, such as Slurm's `JobIDRaw`, and no URL. The IDs of
    a job's steps batch and extern, which `sacct` prints, stand for the job.
    """
    query = query.removesuffix(".batch").removesuffix(".extern")
    jobs = jobs_for_list(user)
    newest = jobs.order_by("-ended_at", "-pk")
    if with_id := list(newest.filter(job_id=query)[:SHOWN]):
        return with_id, ""
    # An array has any number of tasks, so they are not sorted.
    if tasks := list(jobs.filter(spool_id=query)[:SHOWN]):
        return tasks, _jobs_url(job=query)
    return list(newest.filter(has_raw_id(query))[:SHOWN]), ""


def _jobs(query: str, user: User) -> tuple[list[Job], str]:
    """Return the jobs with this ID, and the URL of the list of all matches.

    If there are none, return tasks of the array with this ID, else the newest jobs on the host or
    of the user. The URL is empty for jobs with this ID.
    """
    with_id, tasks_url = jobs_with_id(query, user)
    if with_id:
        return with_id, tasks_url

    newest = jobs_for_list(user).order_by("-ended_at", "-pk")
    if on_host := list(newest.filter(matches_host(query))[:SHOWN]):
        return on_host, _jobs_url(host=query)

    of_user = list(newest.filter(user=query)[:SHOWN])
    return of_user, _jobs_url(user=query) if of_user else ""


def _is_name_of(host: str, query: str) -> bool:
    """Return whether a text is the name of a host, with or without its domain."""
    return query in (host, short_host(host))


def _hosts(query: str, user: User) -> list[str]:
    """Return the hosts whose names begin with this text and of which the user can see jobs."""
    if len(query) < SHORTEST_HOST:
        return []
    names = StatisticsValue.objects.filter(dimension="host", text__istartswith=query)
    first = names.order_by("text").values("pk")[:MOST_HOSTS]
    short = Func(
        OuterRef("text"), Value("."), Value(1), function="split_part", output_field=TextField()
    )
    on_host = jobs_for_list(user).order_by().filter(Exact(SHORT_HOST, short), host=OuterRef("text"))
    seen = StatisticsValue.objects.filter(Exists(on_host.values("pk")), pk__in=first)
    return list(seen.order_by("text").values_list("text", flat=True)[:SHOWN])


def _scripts(
    query: str, user: User, *, by_id: bool
) -> tuple[list[tuple[ArchivedJob, list[ScriptHit]]], str]:
    """Return the archived jobs with this ID, else the newest with these words in their script.

    Also return the URL of the list of all matches.
    """
    rows = archived_jobs_for_list(user).order_by("-submitted_at", "-pk")
    if by_id and (same := list(rows.filter(job_id=query)[:SHOWN])):
        return [(archived_job, []) for archived_job in same], ""
    search = ScriptSearch(words=query)
    if not search.terms:
        return [], ""
    url = f"{reverse('archive:jobs')}?{urlencode({'words': query})}"
    try:
        matching = find_scripts(rows, SHOWN, search=search).rows
        hits = hits_in(matching, search)
    except TooWide:
        return [], url
    if not matching:
        return [], ""
    return [(archived_job, hits.get(archived_job.script_id, [])) for archived_job in matching], url


def _groups(query: str, user: User, at: datetime) -> list[FailureGroup]:
    """Return the failure groups seen recently with these words in title or line, newest first.

    One word alone is part of too many lines.
    """
    terms = [term for term in _SEPARATORS.split(query) if term]
    if len(query) < SHORTEST_ERROR or not terms or _GROUP.fullmatch(query):
        return []
    groups = visible_groups(user).filter(last_seen_at__gte=at - ERRORS_SINCE)
    for term in terms:
        has_term = Q(title__icontains=term)
        if len(terms) > 1:
            has_term |= has_in_readable_line(term, user)
        groups = groups.filter(has_term)
    return list(groups.order_by("-last_seen_at")[:MOST_GROUPS])


def _errors(query: str, user: User, at: datetime) -> list[Error]:
    """Return the known errors with these words in ID or title, those with most failures first."""
    if len(query) < SHORTEST_ERROR or _GROUP.fullmatch(query):
        return []
    terms = [term for term in _SEPARATORS.split(query) if term]
    named = KnownError.objects.all()
    of_cause = Q()
    for term in terms:
        named = named.filter(Q(pk__icontains=term) | Q(title__icontains=term))
        of_cause &= Q(cause__icontains=term)
    if not terms:
        return []
    titles = dict(named.values_list("pk", "title"))
    jobs = dict.fromkeys(titles, 0)

    since = day_of(at - ERRORS_SINCE)
    totals = DailyCauseTotals.objects.visible_to(user).filter(day__gte=since)
    rows: list[CauseTotal] = failures_by_cause(totals.filter(of_cause | Q(cause__in=list(jobs))))
    for cause_total in rows:
        jobs[cause_total.cause] = jobs.get(cause_total.cause, 0) + cause_total.jobs
    start = f"{since:%Y-%m-%dT%H:%MZ}"
    most_first = sorted(jobs.items(), key=lambda item: (-item[1], item[0]))
    link = reverse("diagnosis:failed-jobs")
    errors: list[Error] = []
    for name, n in most_first[:SHOWN]:
        if not n and len(errors) >= MOST_WITHOUT_JOBS:
            break
        url = f"{link}?{urlencode({'cause': name, 'start': start})}"
        about_url = ""
        if name in titles:
            about_url = reverse("diagnosis:known-error", args=[name])
        errors.append(Error(name, titles.get(name, ""), n, url, about_url))
    return errors
