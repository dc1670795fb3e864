"""The history of one host for its page: states, exclusions, and how many jobs failed in each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.core.paginator import Page, Paginator
from django.db.models import Value

from apps.accounts.models import User
from apps.hosts.domain.history import UNKNOWN_AFTER
from apps.hosts.domain.known_hosts import short_name
from apps.hosts.models import HostExclusion, HostSpan
from apps.jobs.domain.statistics.questions import MEASURES, Question, whole_hours

PAGE_SIZE = 20
#: Jobs are counted this far back at most.
COUNTED_DAYS = 90
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR = timedelta(hours=1)
_SPAN = "span"
_EXCLUSION = "exclusion"


@dataclass(frozen=True, slots=True)
class FailureCounts:
    """Finished jobs of a time, and how many of them failed."""

    jobs: int
    failed: int


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A span of a host's state, or an exclusion of it: one of the two is None.

    `until` is None while it lasts. `unknown_from` is set if the state is unknown from then to
    `until`, or to now. `failures` is None if its jobs are not counted.
    """

    span: HostSpan | None
    exclusion: HostExclusion | None
    since: datetime
    until: datetime | None
    unknown_from: datetime | None
    failures: FailureCounts | None


def history_page(host: str, *, user: User, number: int, at: datetime) -> Page[HistoryRow]:
    """Return a page of the history of a host, newest first, with the jobs that the user may see.

    Clusters may share the name; `host` may have its domain.
    """
    name = short_name(host)
    spans = HostSpan.objects.filter(host=name).order_by()
    excluded = HostExclusion.objects.filter(host=name, started_at__lte=at).order_by()
    keys = spans.values_list("since", Value(_SPAN), "pk").union(
        excluded.values_list("started_at", Value(_EXCLUSION), "pk"), all=True
    )
    page = Paginator(keys.order_by("-since", "-pk"), PAGE_SIZE).get_page(number)
    keys_of_page = list(page.object_list)
    span_keys = [pk for _, kind, pk in keys_of_page if kind == _SPAN]
    exclusion_keys = [pk for _, kind, pk in keys_of_page if kind == _EXCLUSION]
    spans_by_pk = HostSpan.objects.select_related("cluster").in_bulk(span_keys)
    exclusions_by_pk = HostExclusion.objects.select_related("cluster").in_bulk(exclusion_keys)

    shown: list[HostSpan | HostExclusion] = []
    for _, kind, pk in keys_of_page:
        of_kind = spans_by_pk if kind == _SPAN else exclusions_by_pk
        if pk in of_kind:
            shown.append(of_kind[pk])
    page.object_list = _rows(shown, host, user=user, at=at)
    return page


def _rows(
    shown: Sequence[HostSpan | HostExclusion], host: str, *, user: User, at: datetime
) -> list[HistoryRow]:
    counts = _jobs_by_hour(shown, host, user=user, at=at)
    rows = []
    for period in shown:
        since, until = _times(period, at)
        failures = _failures(counts, period.cluster.name, since, until or at, at)
        if isinstance(period, HostSpan):
            unknown_from = _unknown_from(period, at)
            rows.append(HistoryRow(period, None, since, until, unknown_from, failures))
        else:
            rows.append(HistoryRow(None, period, since, until, None, failures))
    return rows


def _times(period: HostSpan | HostExclusion, at: datetime) -> tuple[datetime, datetime | None]:
    """Return the beginning and the end; an exclusion that has expired ended then."""
    if isinstance(period, HostSpan):
        return period.since, period.until
    if period.ended_at is None and period.expires_at <= at:
        return period.started_at, period.expires_at
    return period.started_at, period.ended_at


def _unknown_from(span: HostSpan, at: datetime) -> datetime | None:
    return span.seen_at if (span.until or at) - span.seen_at > UNKNOWN_AFTER else None


def _jobs_by_hour(
    shown: Sequence[HostSpan | HostExclusion], host: str, *, user: User, at: datetime
) -> Mapping[tuple[str, int], FailureCounts]:
    """Return the jobs of a host by cluster and by the hour, since 1970, in which they ended."""
    # It loads numpy, which no process needs at its start.
    from apps.jobs.domain.statistics.explorer import Explorer

    if not shown:
        return {}
    times = [_times(period, at) for period in shown]
    since = max(min(start for start, _ in times), _counted_from(at))
    until = max(end or at for _, end in times)
    if until <= since:
        return {}
    first_hour, last_hour = whole_hours(since, until)
    question = Question(MEASURES["failures"], (), first_hour, last_hour, {"host": (host,)})
    by_hour = Explorer(user).series(question, step_hours=1, dimension="cluster")
    counts = {}
    for hour, answers in by_hour.items():
        for answer in answers:
            counts[answer.key["cluster"], hour] = FailureCounts(answer.jobs, answer.failed)
    return counts


def _counted_from(at: datetime) -> datetime:
    return at - timedelta(days=COUNTED_DAYS)


def _failures(
    counts: Mapping[tuple[str, int], FailureCounts],
    cluster: str,
    since: datetime,
    until: datetime,
    at: datetime,
) -> FailureCounts | None:
    """Return the jobs that ended in the hours that a time touches; None if it is too long ago."""
    if since < _counted_from(at):
        return None
    start, end = whole_hours(since, until)
    jobs = 0
    failed = 0
    for hour in range((start - _EPOCH) // _HOUR, (end - _EPOCH) // _HOUR):
        of_hour = counts.get((cluster, hour))
        if of_hour is not None:
            jobs += of_hour.jobs
            failed += of_hour.failed
    return FailureCounts(jobs, failed)
