"""Reasons not to submit jobs now: announcements that advise against it, and services that are down."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.production.models import Request, Stage
from apps.statusboard.domain.board import disruptions
from apps.statusboard.enums import State
from apps.statusboard.models import Announcement, Service


@dataclass(frozen=True)
class Outlook:
    """Announcements that advise against submitting, and services that are down, by primary key."""

    advice: Sequence[Announcement]
    down: Mapping[int, Service]

    def against(self, request: Request, stages: Iterable[Stage]) -> str:
        """Return why no jobs of these stages should be submitted now, or an empty text.

        An announcement without experiments or services is about all of them.
        """
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
    return Outlook(list(advice), {trouble.service.pk: trouble.service for trouble in disruptions(at, (State.DOWN,))})
