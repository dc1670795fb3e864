"""Reasons not to submit jobs now: announcements that advise against it, and services that are down."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.production.models import Request, Stage
from apps.statusboard.domain.board import disruptions
from apps.statusboard.enums import State
from apps.statusboard.models import Announcement, Service


@dataclass(frozen=True)
class Outlook:
    """Announcements that advise against submitting, and services that are down, by primary key, at a time."""

    at: datetime
    advice: Sequence[Announcement]
    down: Mapping[int, Service]

    def against(self, request: Request, stages: Iterable[Stage]) -> str:
        """Return why no jobs of these stages should be submitted now, or an empty text.

        An announcement without experiments or services is about all of them. Empty also if the request ignores advice.
        """
        if request.ignores_advice_until and request.ignores_advice_until > self.at:
            return ""
        needed = {service.pk for stage in stages for service in stage.services.all()}
        for one in self.advice:
            experiments = {experiment.pk for experiment in one.experiments.all()}
            services = {service.pk for service in one.services.all()}
            if (not experiments or request.experiment_id in experiments) and (not services or services & needed):
                return f"“{one.title}”: do not submit."
        names = sorted(service.name for pk, service in self.down.items() if pk in needed)
        return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} down." if names else ""

    def is_down(self, name: str) -> bool:
        """Whether the service with this name or slug is down."""
        return any(name.casefold() in {one.slug.casefold(), one.name.casefold()} for one in self.down.values())


def outlook(at: datetime) -> Outlook:
    """Read the outlook at a time, in a fixed number of queries."""
    advice = Announcement.objects.current(at).filter(do_not_submit=True).prefetch_related("experiments", "services")
    down = {trouble.service.pk: trouble.service for trouble in disruptions(at, (State.DOWN,))}
    return Outlook(at, list(advice), down)


def reasons_against(requests: Collection[Request], at: datetime) -> dict[int, str]:
    """Return why jobs of requests should not be submitted now, by primary key, where there is a reason. Few queries."""
    now, stages = outlook(at), defaultdict(list)
    if not (now.advice or now.down):
        return {}
    for stage in Stage.objects.filter(request__in=requests).prefetch_related("services"):
        stages[stage.request_id].append(stage)
    found = {request.pk: now.against(request, stages[request.pk]) for request in requests}
    return {pk: text for pk, text in found.items() if text}
