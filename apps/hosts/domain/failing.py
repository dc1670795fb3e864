"""Hosts by the failures that no outage explains."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter

from apps.accounts.models import User
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.models import KnownError
from apps.jobs.domain.statistics.intervals import wilson_interval
from apps.jobs.domain.statistics.questions import Answer, AnswerRow, Question, whole_hours
from apps.jobs.domain.statistics.slices import failing_hosts
from apps.statusboard.models import Incident

#: Maximum number of hosts to compare: those with the highest rates of all failures.
MOST_HOSTS = 1000
#: Maximum number of outages of the period to consider: the newest.
MOST_OUTAGES = 8
#: Maximum number of known errors of a service to look for: a question takes no more values.
MOST_CAUSES = 100
#: The name of a host, and its cluster.
Place = tuple[str, str]


@dataclass(frozen=True)
class FailingHost:
    """A host with failed jobs, and how many of them outages explain.

    The rate and its 95 % interval leave those out, of the failures and of the jobs.
    """

    row: AnswerRow
    in_outages: int

    @property
    def beyond(self) -> int:
        """Return the number of failed jobs that no outage explains."""
        return self.row.failed - self.in_outages

    @property
    def jobs(self) -> int:
        return self.row.jobs - self.in_outages

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.beyond, self.jobs)


@dataclass(frozen=True)
class FailingHosts:
    """The hosts with the highest rates, first those above the rate of all hosts.

    `standing_out` have a rate whose interval lies above the rate of all; `others` do not. `outages`
    explain `in_outages` of all failed jobs.
    """

    answer: Answer
    standing_out: list[FailingHost]
    others: list[FailingHost]
    outages: list[Incident]
    in_outages: int

    @property
    def beyond(self) -> int:
        """Return the number of all failed jobs that no outage explains."""
        return self.answer.all.failed - self.in_outages

    @property
    def jobs(self) -> int:
        return self.answer.all.jobs - self.in_outages


def failing_beyond_outages(
    *, user: User, since: datetime, until: datetime, cluster: str, limit: int
) -> FailingHosts:
    """Return the hosts that fail most beyond outages, by the lower end of the interval.

    An outage explains the failures by known errors of its service in the hours in which it lasted.
    """
    answer = failing_hosts(user=user, since=since, until=until, cluster=cluster, limit=MOST_HOSTS)
    outages = _outages(since, until)
    explained: Counter[Place] = Counter()
    if answer.rows:
        explained = _count_explained(user, answer.question, outages)

    hosts = []
    for row in answer.rows:
        in_outages = min(row.failed, explained[row.key["host"], row.key["cluster"]])
        if row.failed > in_outages:
            hosts.append(FailingHost(row, in_outages))
    hosts.sort(key=lambda host: (-host.interval[0], -host.beyond, host.row.key["host"]))

    in_outages = min(answer.all.failed, explained.total())
    jobs = answer.all.jobs - in_outages
    rate_of_all = (answer.all.failed - in_outages) / jobs if jobs else 0.0
    standing_out = []
    others = []
    for host in hosts[:limit]:
        if host.interval[0] > rate_of_all:
            standing_out.append(host)
        else:
            others.append(host)
    return FailingHosts(answer, standing_out, others, outages, in_outages)


def _outages(since: datetime, until: datetime) -> list[Incident]:
    incidents = Incident.objects.filter(merged_into=None).overlapping(since, until)
    return list(incidents.select_related("service").order_by("-started_at")[:MOST_OUTAGES])


def _count_explained(user: User, question: Question, outages: Iterable[Incident]) -> Counter[Place]:
    """Return how many failed jobs of each host outages explain; each job counts once."""
    # It loads numpy, which no process needs at its start.
    from apps.jobs.domain.statistics.explorer import Explorer

    explorer = Explorer(user)
    explained: Counter[Place] = Counter()
    for service, periods in _periods_by_service(question, outages).items():
        known_errors = KnownError.objects.filter(service__iexact=service)
        causes = tuple(known_errors.values_list("pk", flat=True)[:MOST_CAUSES])
        filters = {**question.filters, "verdict": (VerdictKind.SERVICE.value,), "cause": causes}
        for since, until in periods if causes else ():
            of_outage = replace(question, since=since, until=until, filters=filters)
            for row in explorer.answer(of_outage, limit=MOST_HOSTS, compare=False).rows:
                explained[row.key["host"], row.key["cluster"]] += row.failed
    return explained


def _periods_by_service(
    question: Question, outages: Iterable[Incident]
) -> dict[str, list[tuple[datetime, datetime]]]:
    """Return the whole hours of the outages within a period, which do not overlap."""
    periods: dict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
    for outage in sorted(outages, key=attrgetter("started_at")):
        start = max(outage.started_at, question.since)
        end = min(outage.ended_at or question.until, question.until)
        since, until = whole_hours(start, end)
        of_service = periods[outage.service.slug]
        if of_service and of_service[-1][1] >= since:
            earlier, earlier_end = of_service.pop()
            since = earlier
            until = max(until, earlier_end)
        of_service.append((since, until))
    return periods
