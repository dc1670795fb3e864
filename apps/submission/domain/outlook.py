"""What speaks against sending jobs just now: announcements that advise against it, and services that are down."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from apps.production.models import Request, Stage
from apps.statusboard.domain.board import disruptions
from apps.statusboard.enums import State
from apps.statusboard.models import Announcement, Service


@dataclass(frozen=True)
class _Advice:
    title: str
    experiments: frozenset[int]
    services: frozenset[int]


@dataclass(frozen=True)
class Outlook:
    """How it looks at one moment, for any request."""

    advice: tuple[_Advice, ...]
    down: dict[int, Service]

    def against(self, request: Request, stages: Iterable[Stage]) -> str:
        """Say why no jobs of these stages should be sent now, or an empty text.

        An announcement is about its experiments and services, and with none of them about all.
        """
        needed = {service.pk for stage in stages for service in stage.services.all()}
        for one in self.advice:
            about = not one.experiments or request.experiment_id in one.experiments
            if about and (not one.services or one.services & needed):
                return f"“{one.title}”: do not submit."
        names = sorted(service.name for pk, service in self.down.items() if pk in needed)
        return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} down." if names else ""

    def is_down(self, name: str) -> bool:
        """Tell whether the service of this name, or slug, is down."""
        return any(name.casefold() in {one.slug.casefold(), one.name.casefold()} for one in self.down.values())


def outlook(at: datetime) -> Outlook:
    """Read what speaks against sending jobs now, in a fixed number of queries."""
    found = Announcement.objects.current(at).filter(do_not_submit=True).prefetch_related("experiments", "services")
    advice = tuple(
        _Advice(one.title, frozenset(e.pk for e in one.experiments.all()), frozenset(s.pk for s in one.services.all()))
        for one in found
    )
    return Outlook(advice, {trouble.service.pk: trouble.service for trouble in disruptions(at, (State.DOWN,))})
