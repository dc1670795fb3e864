"""Advice whether to submit jobs now: from outages, maintenance windows and announcements, for jobs of some length."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from apps.accounts.models import User
from apps.production.domain.content.model import RequestContent
from apps.production.models import Request, Stage
from apps.statusboard.enums import Effect, State
from apps.statusboard.models import Announcement, DowntimeWindow, Service, StateInterval

Submit = Literal["yes", "no", "wait"]
#: The longest job that is advised on; a longer one counts as this long.
LONGEST = timedelta(days=60)


@dataclass(frozen=True)
class Reason:
    """One thing that speaks against submitting, or that one should know; `submit` is what it alone advises."""

    submit: Submit
    text: str
    until: datetime | None = None
    service: Service | None = None


@dataclass(frozen=True)
class Advice:
    """`until` is when a wait is over, as planned; None if unknown. Reasons come worst first."""

    submit: Submit
    until: datetime | None = None
    reasons: list[Reason] = field(default_factory=list)


_ORDER: dict[Submit, int] = {"no": 0, "wait": 1, "yes": 2}
_UNPLANNED = {State.DOWN: "no", State.MAINTENANCE: "wait", State.DEGRADED: "yes", State.UNKNOWN: "yes"}


def services_of_stage(stage: str, user: User) -> set[int]:
    """Return the services that stages of this name or kind need, in requests that the user may see."""
    stages = Stage.objects.filter(request__in=Request.objects.visible_to(user))
    named = stages.filter(name__iexact=stage) | stages.filter(kind__iexact=stage)
    return set(named.exclude(services=None).values_list("services", flat=True).distinct())


def submit_advice(*, user: User, at: datetime, length: timedelta, services: Collection[int] | None = None) -> Advice:
    """Advise on jobs of a length that start at `at` and need these services, or any service (None). Three queries.

    Down and “do not submit” mean no; maintenance that such a job would meet means wait; degraded and unknown are
    reasons to know. The end of an unplanned outage is not known.
    """
    return _advice(user, at, length, None if services is None else dict.fromkeys(services, length))


def request_advice(*, content: RequestContent, user: User, at: datetime) -> Advice:
    """Advise on the jobs of a request as if they started at `at`. Five queries.

    Each service counts for the longest jobs that need it, by the time limits of the stages.
    """
    needed: dict[str, timedelta] = {}
    for stage in content.stages:
        limit = timedelta(seconds=min(max(stage.wall_seconds or 0, 0), LONGEST.total_seconds()))
        for slug in stage.services:
            needed[slug] = max(needed.get(slug, limit), limit)
    # All slugs are read: what a draft holds may be no text for the database.
    known = Service.objects.values_list("slug", "pk")
    lengths = {pk: needed[slug] for slug, pk in known if slug in needed}
    return _advice(user, at, max(lengths.values(), default=timedelta()), lengths)


def _advice(user: User, at: datetime, longest: timedelta, lengths: Mapping[int, timedelta] | None) -> Advice:
    """Advise on jobs by the services that they need and how long those run that need it; None for any service."""
    reasons = [*_announced(user, at, lengths), *_states(at, lengths), *_planned(at, longest, lengths)]
    reasons.sort(key=lambda reason: _ORDER[reason.submit])
    submit: Submit = reasons[0].submit if reasons else "yes"
    against = [reason.until for reason in reasons if reason.submit != "yes"]
    until = None if None in against else max((each for each in against if each), default=None)
    return Advice(submit, until, reasons)


def _announced(user: User, at: datetime, services: Collection[int] | None) -> list[Reason]:
    rows = Announcement.objects.visible_to(user).current(at).filter(do_not_submit=True).prefetch_related("services")
    found = []
    for row in rows:
        about = {service.pk for service in row.services.all()}
        if services is None or not about or about & set(services):
            found.append(Reason("no", f"“{row.title}”: do not submit.", row.ends_at))
    return found


def _states(at: datetime, services: Collection[int] | None) -> list[Reason]:
    rows = StateInterval.objects.current(at).exclude(state=State.UP).select_related("service", "window")
    # A service that nobody monitors is no news, unless it is asked for.
    rows = (
        rows.exclude(state=State.UNKNOWN, cause="not_monitored")
        if services is None
        else rows.filter(service__in=services)
    )
    found = []
    for row in rows.order_by("service__name"):
        state = State(row.state)
        until = row.ended_at if state == State.MAINTENANCE else None
        words = {State.DOWN: "is down", State.MAINTENANCE: "is in maintenance", State.UNKNOWN: "has an unknown state"}
        submit: Submit = _UNPLANNED[state]  # type: ignore[assignment]
        found.append(Reason(submit, f"{row.service} {words.get(state, 'is degraded')}.", until, row.service))
    return found


def _planned(at: datetime, longest: timedelta, lengths: Mapping[int, timedelta] | None) -> list[Reason]:
    """Return the windows that start while a job that starts now and needs one of their services still runs."""
    rows = DowntimeWindow.objects.filter(starts_at__gt=at, starts_at__lt=at + longest, cancelled_at=None)
    if lengths is not None:
        rows = rows.filter(services__in=lengths).distinct().prefetch_related("services")
    return [
        Reason(
            "yes" if row.effect == Effect.AT_RISK else "wait",
            f"“{row.title}” starts {row.starts_at:%Y-%m-%d %H:%M} UTC, before such a job ends.",
            row.ends_at,
        )
        for row in rows.order_by("starts_at")
        if lengths is None or any(row.starts_at < at + lengths.get(each.pk, timedelta()) for each in row.services.all())
    ]
