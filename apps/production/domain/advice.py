"""Advice on whether to submit jobs now.

It depends on outages, maintenance windows, announcements and the length of the jobs.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from django.db.models import Q

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import NOBODY, Scope, scope_of
from apps.production.domain.content.model import RequestContent
from apps.production.domain.outlook import services_up
from apps.production.models import Request, Stage
from apps.statusboard.enums import State, WindowEffect
from apps.statusboard.models import (
    Announcement,
    AnnouncementQuerySet,
    DowntimeWindow,
    Service,
    StateInterval,
)

Submit = Literal["yes", "no", "wait"]
#: The longest job length considered. Longer jobs count as this long.
LONGEST = timedelta(days=60)


@dataclass(frozen=True)
class AdviceReason:
    """A reason not to submit, or something to know before submitting.

    `submit` is the advice from this reason alone. The reason is about all jobs, unless it names
    experiments or services.
    """

    submit: Submit
    text: str
    until: datetime | None = None
    service: Service | None = None
    service_names: tuple[str, ...] = ()
    experiment_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class SubmitAdvice:
    """Advice with its reasons, worst first.

    `until` is the planned end of a wait, None if unknown.
    """

    submit: Submit
    until: datetime | None = None
    reasons: list[AdviceReason] = field(default_factory=list)

    @property
    def waits_for(self) -> str:
        """What jobs wait for, if only services that are down prevent them: `samweb is up`."""
        names = []
        for reason in self.reasons:
            if reason.submit != "no":
                continue
            if reason.service is None:
                return ""
            names.append(reason.service.name)
        return services_up(names)


_ORDER: dict[Submit, int] = {"no": 0, "wait": 1, "yes": 2}
_UNPLANNED = {
    State.DOWN: "no",
    State.MAINTENANCE: "wait",
    State.DEGRADED: "yes",
    State.UNKNOWN: "yes",
}


def services_of_stage(stage: str, user: User) -> set[int]:
    """Return the services needed by stages of this name or kind, in requests the user can see."""
    stages = Stage.objects.filter(request__in=Request.objects.visible_to(user))
    named = stages.filter(name__iexact=stage) | stages.filter(kind__iexact=stage)
    return set(named.exclude(services=None).values_list("services", flat=True).distinct())


def submit_advice(
    *, user: User, at: datetime, length: timedelta, services: Collection[int] | None = None
) -> SubmitAdvice:
    """Advise on jobs of a length that start at `at`, in three queries.

    The jobs need these services; None means any service. Services that are down and announcements
    not to submit mean no. Maintenance during such a job means wait. Degraded and unknown states are
    only reasons to know. The end of an unplanned outage is unknown.
    """
    announcements = Announcement.objects.visible_to(user)
    return _advice(
        announcements,
        at,
        length,
        None if services is None else dict.fromkeys(services, length),
        scope_of(user),
    )


def request_advice(
    *, content: RequestContent, experiment: Experiment | None, user: User, at: datetime
) -> SubmitAdvice:
    """Advise on the jobs of a request as if they started at `at`, in five queries.

    Each service counts for the longest job that needs it, by the time limits of the stages.
    Announcements count if they are for everybody or for the experiment; without an experiment, if
    the user can see them.
    """
    needed: dict[str, timedelta] = {}
    for stage in content.stages:
        limit = timedelta(seconds=min(max(stage.wall_seconds or 0, 0), LONGEST.total_seconds()))
        for slug in stage.services:
            needed[slug] = max(needed.get(slug, limit), limit)
    # Read all slugs instead of filtering by them: a draft may hold text that PostgreSQL rejects.
    known = Service.objects.values_list("slug", "pk")
    lengths = {}
    for slug, pk in known:
        if slug in needed:
            lengths[pk] = needed[slug]
    announcements = Announcement.objects.visible_to(user)
    if experiment is not None:
        announcements = Announcement.objects.filter(Q(experiments=None) | Q(experiments=experiment))
    return _advice(announcements, at, max(lengths.values(), default=timedelta()), lengths)


def _advice(
    announcements: AnnouncementQuerySet,
    at: datetime,
    longest: timedelta,
    lengths: Mapping[int, timedelta] | None,
    scope: Scope = NOBODY,
) -> SubmitAdvice:
    """Advise on jobs by the services that they need.

    `lengths` has the length of the longest job that needs each service; None means any service.
    With a scope, the advice is on all jobs in it.
    """
    announced = _announced(announcements, at, lengths, scope)
    reasons = [*announced, *_states(at, lengths), *_planned(at, longest, lengths)]
    reasons.sort(key=lambda reason: _ORDER[reason.submit])
    submit: Submit = reasons[0].submit if reasons else "yes"

    ends = []
    for reason in reasons:
        if reason.submit != "yes":
            ends.append(reason.until)
    known_ends = [end for end in ends if end is not None]
    until = None
    if len(known_ends) == len(ends):
        until = max(known_ends, default=None)
    return SubmitAdvice(submit, until, reasons)


def _announced(
    announcements: AnnouncementQuerySet,
    at: datetime,
    services: Collection[int] | None,
    scope: Scope,
) -> list[AdviceReason]:
    """Return the announcements not to submit that concern these services, or all of them (None)."""
    current = announcements.current(at).filter(do_not_submit=True)
    reasons = []
    for announcement in current.prefetch_related("services", "experiments"):
        named_services = list(announcement.services.all())
        named_experiments = list(announcement.experiments.all())
        if (
            services is not None
            and named_services
            and not {service.pk for service in named_services} & set(services)
        ):
            continue

        service_names = tuple(service.name for service in named_services)
        covers_scope = not scope.sees_all and scope.experiment_keys <= {
            experiment.pk for experiment in named_experiments
        }
        experiment_names: tuple[str, ...] = ()
        if not covers_scope:
            experiment_names = tuple(experiment.name for experiment in named_experiments)
        text = f"“{announcement.title}”: do not submit."
        reasons.append(
            AdviceReason("no", text, announcement.ends_at, None, service_names, experiment_names)
        )
    return reasons


def _states(at: datetime, services: Collection[int] | None) -> list[AdviceReason]:
    intervals = (
        StateInterval.objects.current(at)
        .exclude(state=State.UP)
        .select_related("service", "window")
    )
    if services is None:
        # A service that is not monitored matters only if the jobs need it.
        intervals = intervals.exclude(state=State.UNKNOWN, cause="not_monitored")
    else:
        intervals = intervals.filter(service__in=services)

    descriptions = {
        State.DOWN: "is down",
        State.MAINTENANCE: "is in maintenance",
        State.UNKNOWN: "has an unknown state",
    }
    reasons = []
    for interval in intervals.order_by("service__name"):
        state = State(interval.state)
        until = interval.ended_at if state == State.MAINTENANCE else None
        submit: Submit = _UNPLANNED[state]  # type: ignore[assignment]
        text = f"{interval.service} {descriptions.get(state, 'is degraded')}."
        reasons.append(
            AdviceReason(submit, text, until, interval.service, (interval.service.name,))
        )
    return reasons


def _planned(
    at: datetime, longest: timedelta, lengths: Mapping[int, timedelta] | None
) -> list[AdviceReason]:
    """Return the maintenance windows that start before a job that needs their services ends.

    The job starts at `at`.
    """
    windows = DowntimeWindow.objects.filter(
        starts_at__gt=at, starts_at__lt=at + longest, cancelled_at=None
    )
    if lengths is not None:
        windows = windows.filter(services__in=lengths).distinct().prefetch_related("services")

    reasons = []
    for window in windows.order_by("starts_at"):
        if lengths is not None:
            job_lengths = [
                lengths.get(service.pk, timedelta()) for service in window.services.all()
            ]
            if window.starts_at >= at + max(job_lengths, default=timedelta()):
                continue
        submit: Submit = "yes" if window.effect == WindowEffect.AT_RISK else "wait"
        start = f"{window.starts_at:%Y-%m-%d %H:%M} UTC"
        text = f"“{window.title}” starts {start}, before such a job ends."
        reasons.append(AdviceReason(submit, text, window.ends_at))
    return reasons
