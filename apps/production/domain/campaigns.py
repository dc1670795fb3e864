"""Campaigns: the requests of an experiment with the same campaign name, with totals."""

from dataclasses import dataclass, field
from datetime import date
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, Exists, F, Max, Min, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from apps.accounts.enums import Role
from apps.accounts.models import Experiment, User
from apps.accounts.permissions import is_liaison, scope_of
from apps.production.domain.slack import is_late_on
from apps.production.enums import CLOSED, RequestState
from apps.production.models import Attention, Request, Stage

_DONE = (RequestState.DONE, RequestState.DONE_PARTIAL)


@dataclass
class Campaign:
    """Totals of the requests with one campaign name.

    Rejected, cancelled and superseded requests count only in `dropped`. `jobs` are the requested
    jobs, and `completed` counts the ones that have completed. `deadline` is the next and
    `expected_end` the last of the open requests; `late` of them miss their own deadline, as
    `is_late_on` decides. `states` counts requests by state.
    """

    name: str
    experiment: str
    experiment_key: str
    requests: int = 0
    open: int = 0
    done: int = 0
    dropped: int = 0
    attention: int = 0
    late: int = 0
    jobs: int = 0
    completed: float = 0.0
    deadline: date | None = None
    expected_end: date | None = None
    without_end: int = 0
    newest: int = 0
    states: dict[RequestState, int] = field(default_factory=dict)

    @property
    def part_done(self) -> float | None:
        """The fraction of the requested jobs that has completed, 0 to 1; None if unknown."""
        return self.completed / self.jobs if self.jobs else None

    @property
    def counts(self) -> list[tuple[RequestState, int]]:
        """The number of requests in each state that any is in, in the order of production."""
        counts = []
        for state in RequestState:
            if state in self.states:
                counts.append((state, self.states[state]))
        return counts

    @property
    def is_private(self) -> bool:
        """Whether none of its requests was ever submitted.

        Then only the writers of the drafts may see its name.
        """
        return not self.dropped and set(self.states) == {RequestState.DRAFT}

    @property
    def query(self) -> str:
        """The query of the request list that shows the requests of the campaign."""
        return urlencode({"experiment": self.experiment_key, "campaign": self.name})

    def add(self, state: RequestState, sums: dict[str, Any]) -> None:
        """Add the requests in one state, as counted by `_by_state`."""
        self.newest = max(self.newest, sums["newest"])
        if state in CLOSED and state not in _DONE:
            self.dropped += sums["count"]
            return
        self.requests += sums["count"]
        self.states[state] = sums["count"]
        self.jobs += sums["requested_jobs"]
        self.completed += sums["completed"]
        if state in _DONE:
            self.done += sums["count"]
            return
        self.open += sums["count"]
        self.attention += sums["marked"]
        if state != RequestState.DRAFT:
            self.late += sums["late"]
        self.without_end += sums["without_end"]
        self.deadline = min((day for day in (self.deadline, sums["due"]) if day), default=None)
        self.expected_end = max(
            (day for day in (self.expected_end, sums["end"]) if day), default=None
        )


def campaigns_for(user: User, requests: QuerySet[Request]) -> list[Campaign]:
    """Return the campaigns of these requests.

    Campaigns of drafts alone are returned only if the user is a liaison.
    """
    mine = Experiment.objects.filter(
        pk__in=[pk for role, pk in scope_of(user).roles if role == Role.LIAISON]
    )
    keys = set(mine.values_list("key", flat=True))
    sees_drafts = is_liaison(user)
    campaigns = campaigns_of(requests)
    shown = []
    for campaign in campaigns:
        if not campaign.is_private or sees_drafts or campaign.experiment_key in keys:
            shown.append(campaign)
    return shown


def campaigns_of(requests: QuerySet[Request]) -> list[Campaign]:
    """Return the campaigns of these requests in one query, the one of the newest request first."""
    campaigns: dict[tuple[str, str], Campaign] = {}
    for sums in _by_state(requests.exclude(campaign="")):
        key = sums["experiment__key"]
        name = sums["campaign"]
        campaign = campaigns.setdefault((key, name), Campaign(name, sums["experiment__name"], key))
        campaign.add(RequestState(sums["state"]), sums)
    return sorted(campaigns.values(), key=lambda campaign: -campaign.newest)


def _by_state(requests: QuerySet[Request]) -> Any:
    """Return sums by experiment, campaign and state."""
    stages = Stage.objects.filter(request=OuterRef("pk")).order_by().values("request")
    sized = requests.order_by().annotate(
        jobs_of_request=Coalesce(Subquery(stages.annotate(sum=Sum("jobs")).values("sum")), 0),
        is_marked=Exists(Attention.objects.filter(request=OuterRef("pk"))),
    )
    return sized.values("experiment__key", "experiment__name", "campaign", "state").annotate(
        newest=Max("pk"),
        count=Count("pk"),
        requested_jobs=Sum("jobs_of_request"),
        completed=Coalesce(Sum(F("jobs_of_request") * F("part_done")), 0.0),
        marked=Count("pk", filter=Q(is_marked=True)),
        late=Count("pk", filter=is_late_on(timezone.localdate())),
        due=Min("deadline"),
        end=Max("expected_end"),
        without_end=Count("pk", filter=Q(expected_end=None)),
    )
