"""Whether anything was made for a request yet. Apps above, which know of jobs, say how they can tell."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from django.db.models import Q

from apps.core.models import Event
from apps.production.enums import RequestState, Verb
from apps.production.events import kind_of_move
from apps.production.models import OutputReport, Request, StageHistory

Sign = Callable[[Sequence[int]], Iterable[int]]
_SIGNS: dict[str, Sign] = {}
_WORK = (RequestState.TESTING, RequestState.RUNNING)


def sign_of_work(name: str) -> Callable[[Sign], Sign]:
    """Register a function that keeps, of primary keys of requests, those for which something was sent."""

    def register(sign: Sign) -> Sign:
        _SIGNS[name] = sign
        return sign

    return register


def with_work(requests: Sequence[Request]) -> set[int]:
    """Return which of these were tested or started once, or have jobs or reports; a fixed number of queries."""
    keys = [request.pk for request in requests]
    moves = Event.objects.filter(
        kind__in=[kind_of_move(Verb.TEST), kind_of_move(Verb.START)],
        target_type=Request._meta.label_lower,
        target_id__in=[str(key) for key in keys],
        new__in=_WORK,
    )
    found = {int(key) for key in moves.values_list("target_id", flat=True)}
    found |= set(StageHistory.objects.filter(request__in=keys).values_list("request_id", flat=True))
    found |= set(OutputReport.objects.filter(stage__request__in=keys).values_list("stage__request_id", flat=True))
    for sign in _SIGNS.values():
        found |= set(sign(keys))
    return found


#: Apps above that know of running requests whose jobs wait for a person: each returns their keys, as of a moment.
STUCK: list[Callable[[datetime | None], Iterable[int]]] = []
#: And since when, by their keys.
STUCK_SINCE: list[Callable[[Sequence[int]], Mapping[int, datetime]]] = []


def stuck(at: datetime | None) -> Q:
    """Keep the running requests whose jobs wait for a person: to be sent again, or not to be waited for any more."""
    found = Q(pk__in=[])
    for ask in STUCK:
        found |= Q(pk__in=ask(at))
    return Q(state=RequestState.RUNNING) & found


def stuck_since(keys: Sequence[int]) -> dict[int, datetime]:
    """Return since when the first of the jobs that wait for a person does, of the requests of these keys."""
    found: dict[int, datetime] = {}
    for ask in STUCK_SINCE if keys else ():
        for key, since in ask(keys).items():
            found[key] = min(since, found.get(key, since))
    return found
