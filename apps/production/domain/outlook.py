"""Reasons not to submit jobs now: announcements, and services that are down."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.utils.text import get_text_list

from apps.production.models import Request, Stage
from apps.statusboard.domain.board.board import Disruption, list_disruptions
from apps.statusboard.enums import State
from apps.statusboard.models import Announcement, Service


@dataclass(frozen=True)
class Obstacle:
    """A reason not to submit jobs now: an announcement, or a service that is down."""

    announcement: Announcement | None = None
    disruption: Disruption | None = None


@dataclass(frozen=True)
class Outlook:
    """Announcements that advise against submitting, and services that are down, at a time.

    `down` has the disruption by primary key of the service.
    """

    at: datetime
    advice: Sequence[Announcement]
    down: Mapping[int, Disruption]

    def against(self, request: Request, stages: Iterable[Stage]) -> str:
        """Return why no jobs of these stages should be submitted now, or an empty text.

        It is also empty if the request ignores advice.
        """
        return self.against_services(request, services_of(stages))

    def against_services(self, request: Request, service_pks: Collection[int]) -> str:
        """Return why no jobs that need these services should be submitted now, as `against`."""
        if self._is_ignored_by(request):
            return ""
        announcement = self.find_announcement(request.experiment_id, service_pks)
        if announcement:
            return f"“{announcement.title}”: do not submit."
        names = [disruption.service.name for disruption in self.find_all_down(service_pks)]
        if not names:
            return ""
        verb = "is" if len(names) == 1 else "are"
        return f"{', '.join(names)} {verb} down."

    def waits_for(self, request: Request, service_pks: Collection[int]) -> str:
        """Return what jobs that need these services wait for, such as `samweb is up`.

        Empty unless only services that are down speak against them.
        """
        if self._is_ignored_by(request):
            return ""
        if self.find_announcement(request.experiment_id, service_pks):
            return ""
        disruptions = self.find_all_down(service_pks)
        return services_up([disruption.service.name for disruption in disruptions])

    def find_obstacle(
        self, experiment_id: int | None, service_pks: Collection[int]
    ) -> Obstacle | None:
        """Return why jobs of an experiment that need these services should not be submitted now."""
        announcement = self.find_announcement(experiment_id, service_pks)
        if announcement:
            return Obstacle(announcement=announcement)
        down = self.find_all_down(service_pks)
        return Obstacle(disruption=down[0]) if down else None

    def _is_ignored_by(self, request: Request) -> bool:
        return request.ignores_advice_until is not None and request.ignores_advice_until > self.at

    def find_announcement(
        self, experiment_id: int | None, service_pks: Collection[int]
    ) -> Announcement | None:
        """Return the first announcement that applies.

        An announcement without experiments or services applies to all of them.
        """
        for announcement in self.advice:
            experiment_pks = {experiment.pk for experiment in announcement.experiments.all()}
            if experiment_pks and experiment_id not in experiment_pks:
                continue
            announced_pks = {service.pk for service in announcement.services.all()}
            if not announced_pks or not announced_pks.isdisjoint(service_pks):
                return announcement
        return None

    def find_all_down(self, service_pks: Collection[int]) -> list[Disruption]:
        """Return the disruptions of the services that are down, by name."""
        down = [disruption for pk, disruption in self.down.items() if pk in service_pks]
        return sorted(down, key=lambda disruption: disruption.service.name)

    def find_down(self, name: str) -> Disruption | None:
        """Return the disruption of the service with this name or slug, if it is down."""
        for disruption in self.down.values():
            service = disruption.service
            if name.casefold() in (service.slug.casefold(), service.name.casefold()):
                return disruption
        return None


def services_up(names: Sequence[str]) -> str:
    """Return a clause such as `samweb is up`; empty without names."""
    if not names:
        return ""
    return f"{get_text_list(list(names), 'and')} {'is' if len(names) == 1 else 'are'} up"


def services_of(stages: Iterable[Stage]) -> set[int]:
    """Return the primary keys of the services that these stages need."""
    service_pks: set[int] = set()
    for stage in stages:
        service_pks.update(service.pk for service in stage.services.all())
    return service_pks


def read_outlook(at: datetime) -> Outlook:
    """Read the outlook at a time, in a fixed number of queries."""
    advice = (
        Announcement.objects.current(at)
        .filter(do_not_submit=True)
        .prefetch_related("experiments", "services")
    )
    down = {disruption.service.pk: disruption for disruption in list_disruptions(at, (State.DOWN,))}
    return Outlook(at, list(advice), down)


@dataclass(frozen=True)
class Hindrances:
    """Why jobs of requests should not be submitted now.

    `reasons` has the reason by primary key of the request, and `waits_for` which services its jobs
    wait for: `samweb is up`. `advice` and `down` have how many of the
    requests each announcement concerns, and how many need each service that is down, most first.
    """

    reasons: Mapping[int, str] = field(default_factory=dict)
    waits_for: Mapping[int, str] = field(default_factory=dict)
    advice: Sequence[tuple[Announcement, int]] = ()
    down: Sequence[tuple[Service, int]] = ()


def find_hindrances(requests: Collection[Request], at: datetime) -> Hindrances:
    """Return why jobs of these requests should not be submitted now.

    The number of queries is fixed.
    """
    outlook = read_outlook(at)
    if not (outlook.advice or outlook.down):
        return Hindrances()

    stages = defaultdict(list)
    for stage in Stage.objects.filter(request__in=requests).prefetch_related("services"):
        stages[stage.request_id].append(stage)

    reasons = {}
    waits_for = {}
    advice: Counter[Announcement] = Counter()
    down: Counter[Service] = Counter()
    for request in requests:
        reason = outlook.against(request, stages[request.pk])
        if not reason:
            continue
        reasons[request.pk] = reason
        service_pks = services_of(stages[request.pk])
        waits_for[request.pk] = outlook.waits_for(request, service_pks)
        announcement = outlook.find_announcement(request.experiment_id, service_pks)
        if announcement:
            advice[announcement] += 1
        for disruption in outlook.find_all_down(service_pks):
            down[disruption.service] += 1
    return Hindrances(reasons, waits_for, advice.most_common(), down.most_common())
