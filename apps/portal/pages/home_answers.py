"""The top of the home page.

It answers whether jobs can run and what broke since yesterday, and shows failed jobs per hour with
outages.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from urllib.parse import urlencode

from django.db.models import Count, Exists, F, OuterRef, Q, Sum
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobState
from apps.core.charts import Band, Bin, Series, Tick, bars
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.models import CauseTotals, DirtyImpact, Impact, ImpactGroup
from apps.jobs.domain.records.conversion import last_hours
from apps.jobs.models import HourlyEnds
from apps.production.domain.advice import AdviceReason, SubmitAdvice, submit_advice
from apps.production.enums import RequestState
from apps.production.models import Request
from apps.statusboard.domain.incidents.incidents import incidents_since
from apps.statusboard.enums import State, severity_of
from apps.statusboard.models import Incident
from apps.submission.domain.retries.eligibility import MOST_JOBS
from apps.submission.domain.retries.offers import RetryOffer

#: Length of the jobs that the answer assumes, and the number of hours in the chart.
USUAL_JOB = timedelta(hours=12)
CHART_HOURS = 48
#: Maximum number of outages marked in the chart.
MOST_BANDS = 3
#: Maximum number of experiments and services named in the answer.
MOST_NAMED = 3
#: States of requests whose jobs are to be submitted.
_TO_RUN = (RequestState.QUEUED, RequestState.TESTING, RequestState.RUNNING)

SERIES = [
    Series("service", "service"),
    Series("code", "code"),
    Series("resource", "resource"),
    Series("user", "user"),
    Series("unknown", "unknown"),
]


@dataclass(frozen=True)
class RunAnswer:
    """Whether jobs can be submitted: the sign and text of the answer, and the advice behind it.

    Of the `requests` in the queue and in production, `hindered` need a service that prevents jobs.
    """

    sign: str
    text: str
    advice: SubmitAdvice
    requests: int = 0
    hindered: int = 0

    @property
    def counts_hindered(self) -> bool:
        """Whether some of the requests are hindered, but not most, which the text says."""
        return 0 < 2 * self.hindered <= self.requests


@dataclass(frozen=True)
class FailureChart:
    """The chart of failed jobs.

    `legend` has the verdicts in the chart with their numbers of jobs. `left_out` are the earliest
    outages of this time, which the chart does not mark.
    """

    svg: SafeString
    legend: Sequence[tuple[str, int]]
    left_out: Sequence[Incident]


@dataclass(frozen=True)
class Broken:
    """Incidents since yesterday evening, including finished ones, and their cost.

    `is_counted` is false if an incident was never counted, or must be counted again because of new
    jobs or verdicts. `to_retry` is the incident with most of the `confirmed` jobs among those with
    jobs that were not retried. `victims` are the confirmed jobs by primary key of the incident.
    """

    since: datetime
    incidents: Sequence[Incident]
    victims: Mapping[int, int]
    to_retry: Incident | None
    is_counted: bool

    @property
    def confirmed(self) -> int:
        return sum(self.victims.values())

    @property
    def victims_by_service(self) -> dict[int, int]:
        """The confirmed jobs of open incidents, by primary key of the service."""
        jobs: dict[int, int] = {}
        for incident in self.incidents:
            if incident.ended_at is None:
                counted = self.victims.get(incident.pk, 0)
                jobs[incident.service_id] = jobs.get(incident.service_id, 0) + counted
        return jobs

    def with_offer(self, offer: RetryOffer | None) -> "Broken":
        """Count the jobs of the incident to retry as its offer does, which divides them.

        The offer is as of a minute ago, the count of an incident as of its last new verdict.
        """
        if self.to_retry is None or offer is None or not 0 < offer.failed < MOST_JOBS:
            return self
        return replace(self, victims={**self.victims, self.to_retry.pk: offer.failed})

    @property
    def of_other_services(self) -> list[Incident]:
        """The first incident of each service, except the service of the very first incident."""
        first_of_service: dict[int, Incident] = {}
        for incident in self.incidents:
            first_of_service.setdefault(incident.service_id, incident)
        return list(first_of_service.values())[1:]


def can_run(*, user: User, at: datetime) -> RunAnswer:
    """Answer whether jobs of any stage that run twelve hours can be submitted."""
    advice = submit_advice(user=user, at=at, length=USUAL_JOB)
    against = [reason for reason in advice.reasons if reason.submit == "no"]
    if any(not (reason.service_names or reason.experiment_names) for reason in against):
        return RunAnswer("down", "No: do not submit", advice)
    if against:
        services: set[str] = set()
        for reason in against:
            services.update(reason.service_names)
        requests, hindered = _count_hindered(user, services)
        if requests and hindered == requests:
            needed = _name_some(sorted(services))
            text = f"No: every request in queue and production needs {needed}"
            return RunAnswer("down", text, advice, requests, hindered)
        if 2 * hindered > requests:
            text = _mostly_hindered(hindered, requests, services)
            if all(reason.service for reason in against):
                text += ", which is down" if len(services) == 1 else ", which are down"
            return RunAnswer("down", text, advice, requests, hindered)
        text = f"Yes, except {_describe_jobs(against)}"
        return RunAnswer("degraded", text, advice, requests, hindered)
    if advice.submit == "wait":
        return RunAnswer("degraded", "Yes, except jobs that run into maintenance", advice)
    return RunAnswer(
        "degraded" if advice.reasons else "up",
        "Yes, with care" if advice.reasons else "Yes",
        advice,
    )


def _mostly_hindered(hindered: int, requests: int, services: Collection[str]) -> str:
    """Return the answer if more than half of the requests need services that prevent jobs."""
    needed = _name_some(sorted(services))
    verb = "needs" if hindered == 1 else "need"
    return f"Hardly: {hindered:,} of {requests:,} requests {verb} {needed}"


def _count_hindered(user: User, services: Collection[str]) -> tuple[int, int]:
    """Return how many requests are in the queue and in production, and how many of them need one
    of these services.
    """
    if not services:
        return 0, 0
    counts = Request.objects.visible_to(user).filter(state__in=_TO_RUN)
    needed = Q(stages__services__name__in=services)
    sums = counts.order_by().aggregate(
        requests=Count("pk", distinct=True), hindered=Count("pk", filter=needed, distinct=True)
    )
    return sums["requests"], sums["hindered"]


def _describe_jobs(reasons: Sequence[AdviceReason]) -> str:
    """Return a text for the jobs that these reasons are about."""
    experiments: dict[str, None] = {}
    services: dict[str, None] = {}
    for reason in reasons:
        if reason.experiment_names:
            experiments |= dict.fromkeys(reason.experiment_names)
        else:
            services |= dict.fromkeys(reason.service_names)

    parts = []
    if experiments:
        parts.append(f"jobs of {_name_some(list(experiments))}")
    if services:
        parts.append(f"jobs that need {_name_some(list(services))}")
    return " and ".join(parts)


def _name_some(names: Sequence[str]) -> str:
    others = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {others} more" if others > 0 else "")


def broke_since_yesterday(*, user: User, at: datetime) -> Broken:
    """Return the incidents since yesterday at 18:00: those that last, the worst first, and others.

    Those of the same state, and all that are over, are sorted by failed jobs.
    It takes two queries.
    """
    today = timezone.localtime(at).date()
    since = datetime.combine(today - timedelta(days=1), time(18), timezone.get_current_timezone())
    of_incident = {"incident": OuterRef("pk")}
    counted = Exists(Impact.objects.filter(**of_incident)) & ~Exists(
        DirtyImpact.objects.filter(**of_incident)
    )
    rows = list(incidents_since(since, at).annotate(is_counted=counted)[:50])
    groups = ImpactGroup.objects.visible_to(user).filter(impact__incident__in=rows)
    left = F("confirmed") - F("succeeded") - F("retried")
    sums = (
        groups.order_by()
        .values("impact__incident")
        .annotate(victims=Sum("confirmed"), left=Sum(left))
    )
    victims = {}
    not_retried = set()
    for pk, confirmed, open_jobs in sums.values_list("impact__incident", "victims", "left"):
        victims[pk] = confirmed
        if open_jobs:
            not_retried.add(pk)
    rows.sort(key=lambda row: (-victims.get(row.pk, 0), -row.started_at.timestamp()))
    to_retry = next((row for row in rows if row.pk in not_retried), None)
    rows.sort(key=_place_by_state)
    is_counted = all(row.is_counted for row in rows)
    return Broken(since, rows, victims, to_retry, is_counted)


def _place_by_state(incident: Incident) -> int:
    """Return the place of an incident: what is down, what is degraded, and what is over."""
    if incident.ended_at is not None:
        return len(State)
    return severity_of(incident.state)


def failures_by_hour(*, user: User, at: datetime) -> FailureChart:
    """Return the chart of failed jobs by hour and verdict, with outages as bands.

    It takes three queries.
    """
    start, end = last_hours(at, CHART_HOURS)
    counts: dict[datetime, dict[str, int]] = defaultdict(
        lambda: dict.fromkeys(VerdictKind.values, 0)
    )
    totals = CauseTotals.objects.visible_to(user).filter(hour__gte=start, hour__lt=end).order_by()
    for hour, verdict, jobs in totals.values_list("hour", "verdict").annotate(Sum("jobs")):
        counts[hour][verdict] = jobs
    ended = HourlyEnds.objects.visible_to(user).filter(hour__gte=start, hour__lt=end).order_by()
    broken = ended.exclude(state=JobState.COMPLETED).values_list("hour").annotate(Sum("jobs"))
    # Jobs that did not complete and have no verdict count as unexplained.
    for hour, jobs in broken:
        counts[hour]["unknown"] += max(0, jobs - sum(counts[hour].values()))

    hours = [start + timedelta(hours=number) for number in range(CHART_HOURS)]
    bins = []
    for hour in hours:
        label = f"{timezone.localtime(hour):%a %H:%M}"
        if hour in counts:
            bins.append(
                Bin(label, [counts[hour][series.name] for series in SERIES], _failed_jobs(hour))
            )
        else:
            bins.append(Bin(label, [0] * len(SERIES), ""))
    most = max(bins, key=lambda hour_bin: sum(hour_bin.values))
    sentence = (
        f"Failed jobs per hour, last {CHART_HOURS} hours; most, {sum(most.values):,.0f}, at "
        f"{most.label}"
    )

    outages = list(
        Incident.objects.filter(merged_into=None).overlapping(start, at).select_related("service")
    )
    outages.sort(key=lambda outage: outage.started_at)
    newest = outages[-MOST_BANDS:]
    bands = _bands(newest, start, at)
    svg = bars(
        bins,
        SERIES,
        sentence=sentence,
        heading="Hour",
        ticks=_ticks(hours),
        bands=bands,
        height=90,
    )
    legend = []
    for series in SERIES:
        jobs = sum(counts[hour][series.name] for hour in hours if hour in counts)
        if jobs:
            legend.append((series.name, jobs))
    return FailureChart(svg, legend, left_out=outages[: len(outages) - len(newest)])


def _failed_jobs(hour: datetime) -> str:
    end = hour + timedelta(hours=1)
    window = {"start": f"{hour:%Y-%m-%dT%H:%MZ}", "end": f"{end:%Y-%m-%dT%H:%MZ}"}
    return f"{reverse('diagnosis:failed-jobs')}?{urlencode(window)}"


def _ticks(hours: Sequence[datetime]) -> list[Tick]:
    ticks = []
    for number, hour in enumerate(map(timezone.localtime, hours)):
        if hour.hour % 6 == 0:
            is_midnight = hour.hour == 0
            label = f"{hour:%a} {hour.day}" if is_midnight else f"{hour:%H:%M}"
            ticks.append(Tick(number, label, is_midnight, hour.hour == 6))
    return ticks


def _bands(outages: Sequence[Incident], start: datetime, at: datetime) -> list[Band]:
    hour = timedelta(hours=1)
    bands = []
    for number, row in enumerate(outages):
        bands.append(
            Band(
                f"{row.service.name} {row.get_state_display().lower()}",
                row.state,
                max(0.0, (row.started_at - start) / hour),
                ((row.ended_at or at) - start) / hour,
                row.get_absolute_url(),
                _times(row),
                number,
            )
        )
    return bands


def _times(row: Incident) -> str:
    start = f"{timezone.localtime(row.started_at):%H:%M}"
    if row.ended_at:
        return f"{start}–{timezone.localtime(row.ended_at):%H:%M}"
    return f"since {start}"
