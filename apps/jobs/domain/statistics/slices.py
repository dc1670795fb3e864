"""The jobs of one host, site or user: their figures and history, from hourly and daily totals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

from django.db.models import Q, QuerySet

from apps.accounts.models import User
from apps.clusters.models import Host
from apps.jobs.domain.records.jobs import jobs_for_list, matches_host
from apps.jobs.domain.statistics.questions import MEASURES, Answer, AnswerRow, Question, whole_hours
from apps.jobs.models import Job

if TYPE_CHECKING:
    from apps.jobs.domain.statistics.explorer import Explorer

#: What the jobs have in common: a dimension of the statistics.
SliceKind = Literal["host", "site", "user"]
#: Tables of each page, by their dimensions.
TABLES: Mapping[SliceKind, Sequence[tuple[str, ...]]] = {
    "host": (("verdict", "cause"), ("request", "stage")),
    "site": (("host",), ("verdict", "cause"), ("request", "stage")),
    "user": (("request", "stage"), ("verdict", "cause"), ("site",)),
}
TABLE_ROWS = 10
NEWEST_JOBS = 10
#: A shorter period has a history by hour, a longer one by UTC day.
MOST_HOURS_BY_HOUR = 48


@dataclass(frozen=True)
class Slice:
    """The jobs of a host, site or user in a period.

    `compared` are the jobs of the host's site, or all jobs. `hosts` describe a host as the
    schedulers list it: two clusters may have hosts of one name.
    """

    kind: SliceKind
    name: str
    question: Question
    all: AnswerRow
    compared: AnswerRow
    compared_with: str
    steps: Mapping[int, Sequence[AnswerRow]]
    step_hours: int
    tables: Sequence[Answer]
    newest: Sequence[Job]
    hosts: Sequence[Host]


def slice_of(
    kind: SliceKind, name: str, *, user: User, since: datetime, until: datetime
) -> Slice | None:
    """Return the jobs of a slice that a user can see; None if there are none.

    All figures come from totals, so that their cost does not depend on the number of jobs.
    """
    from apps.jobs.domain.statistics.explorer import Explorer

    since, until = whole_hours(since, until)
    newest = _newest_jobs(kind, name, user=user, since=since)
    if not newest:
        return None
    explorer = Explorer(user)
    question = Question(MEASURES["failures"], (), since, until, {kind: (name,)})
    tables = []
    for dimensions in TABLES[kind]:
        question_by = replace(question, by=dimensions)
        tables.append(explorer.answer(question_by, limit=TABLE_ROWS, compare=False))

    site = newest[0].site
    is_at_site = kind == "host" and site is not None
    step_hours = 1 if question.hours <= MOST_HOURS_BY_HOUR else 24
    return Slice(
        kind=kind,
        name=name,
        question=question,
        all=tables[0].all,
        compared=failures_at(explorer, question, site=site.name if is_at_site and site else ""),
        compared_with=site.name if is_at_site and site else "all jobs",
        steps=explorer.series(question, step_hours=step_hours, dimension="verdict"),
        step_hours=step_hours,
        tables=tables,
        newest=newest,
        hosts=_hosts_named(name) if kind == "host" else (),
    )


class RecentFailures(NamedTuple):
    """The figures of a host, and of the jobs to compare it with: its site's, or all jobs."""

    question: Question
    of_host: AnswerRow
    of_site: AnswerRow
    site: str


def recent_failures(host: str, *, user: User, since: datetime, until: datetime) -> RecentFailures:
    """Return the figures of a host and of its site in a period, for the page of a job."""
    from apps.jobs.domain.statistics.explorer import Explorer

    explorer = Explorer(user)
    question = Question(MEASURES["failures"], (), *whole_hours(since, until), {"host": (host,)})
    newest = _newest_jobs("host", host, user=user, since=since)[:1]
    site = newest[0].site.name if newest and newest[0].site else ""
    of_host = explorer.answer(question, limit=1, compare=False).all
    of_site = failures_at(explorer, question, site=site)
    return RecentFailures(question, of_host, of_site, site or "all jobs")


def failing_hosts(
    *, user: User, since: datetime, until: datetime, cluster: str = "", limit: int
) -> Answer:
    """Return the hosts with the highest failure rates, by the lower end of the interval.

    Hosts without a name are left out: their jobs never started.
    """
    from apps.jobs.domain.statistics.explorer import Explorer

    filters = {"cluster": (cluster,)} if cluster else {}
    question = Question(
        MEASURES["failure_rate"], ("host", "cluster"), *whole_hours(since, until), filters
    )
    answer = Explorer(user).answer(question, limit=limit + 1, compare=False)
    rows = [row for row in answer.rows if row.key["host"] and row.failed]
    return replace(answer, rows=rows[:limit])


def failures_at(explorer: "Explorer", question: Question, *, site: str) -> AnswerRow:
    """Return the figures of all jobs in the period of a question, of one site if named."""
    filters = {"site": (site,)} if site else {}
    return explorer.answer(replace(question, filters=filters), limit=1, compare=False).all


def _newest_jobs(kind: SliceKind, name: str, *, user: User, since: datetime) -> list[Job]:
    """Return the newest jobs; of a site, which has no index, only jobs of the period."""
    conditions = {
        "host": matches_host(name),
        "site": Q(site__name=name, ended_at__gte=since),
        "user": Q(user=name),
    }
    jobs: QuerySet[Job] = jobs_for_list(user).filter(conditions[kind])
    return list(jobs.order_by("-ended_at", "-pk")[:NEWEST_JOBS])


def _hosts_named(name: str) -> list[Host]:
    hosts = Host.objects.filter(name=name).select_related("cluster")
    return list(hosts.order_by("cluster__name"))
