"""Filters of the request list, for page and API."""

from datetime import date

import django_filters as filters
from django import forms
from django.db.models import (
    BigIntegerField,
    Case,
    Exists,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Value,
    When,
)
from django.db.models.functions import Cast, Coalesce
from django.utils import timezone

from apps.accounts.domain.experiments import visible_experiments
from apps.accounts.models import User
from apps.core.models import Event
from apps.core.web.moments import DayFilter
from apps.core.web.query import AnyOf, Several
from apps.production.domain.approvals.inbox import waiting_for
from apps.production.enums import AttentionKind, RequestedPriority, RequestState
from apps.production.events import DECISIONS
from apps.production.models import MAX_PRIORITY, Attention, Request, Stage, WorkflowType

#: The orders of a list of requests: parameter, and column that `ordered` adds or the model has.
ORDERS = {
    "created": "created_at",
    "deadline": "due",
    "end": "ends",
    "priority": "level_rank",
    "progress": "part",
    "requested": "requested_rank",
    "title": "title",
}
#: Up to this many matches of a text are looked up by primary key.
_FEW = 1000
_DAY = forms.DateInput(attrs={"type": "date"})


def ordered(requests: QuerySet[Request]) -> QuerySet[Request]:
    """Return requests with the columns that they can be ordered by.

    Requests without a date come last, those without a priority first.
    """
    return requests.annotate(
        due=Coalesce("deadline", date.max),
        ends=Coalesce("expected_end", date.max),
        part=Coalesce("part_done", -1.0),
        level_rank=_rank("priority_class") * (MAX_PRIORITY + 1) + Coalesce("priority", 0),
        requested_rank=_rank("requested_priority"),
    )


def _rank(field: str) -> Case:
    ranks = []
    for rank, level in enumerate(RequestedPriority, 1):
        ranks.append(When(**{field: level}, then=Value(rank)))
    return Case(*ranks, default=Value(0), output_field=IntegerField())


def _decided_by(user: User) -> Q:
    """Return a condition for the requests that a user signed, returned or rejected."""
    decisions = Event.objects.filter(
        kind__in=DECISIONS, actor=user.username, target_type=Request._meta.label_lower
    )
    keys = decisions.order_by().values_list(Cast("target_id", BigIntegerField()))
    return Q(pk__in=keys)


def matching_words(text: str) -> Q:
    """Return a condition for requests with a text in their key, title or the name of an output.

    The trigram indexes are fast for few matches. If there are many matches, a list reads rows in
    its own order and stops at the end of its first page.
    """
    requests = Request.objects.order_by()
    parts = []
    for name in ("key", "title"):
        parts.append(requests.filter(**{f"{name}__icontains": text}).values_list("pk"))
    writing = Stage.objects.filter(output_dataset__icontains=text).order_by()
    matching = [pk for (pk,) in writing.values_list("request").union(*parts, all=True)[: _FEW + 1]]
    if len(matching) <= _FEW:
        return Q(pk__in=set(matching))
    return (
        Q(key__icontains=text)
        | Q(title__icontains=text)
        | Q(Exists(writing.filter(request=OuterRef("pk"))))
    )


class RequestFilter(AnyOf):
    text = filters.CharFilter(
        method="by_text",
        label="Key or words",
        max_length=200,
        widget=forms.TextInput(attrs={"type": "search"}),
    )
    state = Several(choices=RequestState, label="State")
    experiment = filters.ModelChoiceFilter(
        queryset=lambda request: visible_experiments(getattr(request, "user", None)),
        to_field_name="key",
        empty_label="all",
    )
    attention = filters.ChoiceFilter(
        method="by_attention",
        label="Needs attention",
        empty_label="any",
        choices=[("yes", "for any reason"), *AttentionKind.choices],
    )
    mine = filters.ChoiceFilter(
        method="by_person",
        label="Whose",
        empty_label="any",
        choices=[("yes", "mine"), ("turn", "my turn"), ("decided", "decided by me")],
    )

    type = filters.ModelChoiceFilter(
        field_name="workflow__type",
        queryset=WorkflowType.objects.all(),
        to_field_name="key",
        label="Workflow type",
        empty_label="any",
    )
    campaign = filters.CharFilter(label="Campaign", max_length=64)
    requester = filters.CharFilter(
        field_name="created_by__username", label="Requester", max_length=150
    )
    priority = filters.ChoiceFilter(
        method="by_priority", choices=RequestedPriority, label="Priority", empty_label="any"
    )
    scan = filters.ChoiceFilter(
        method="by_scan",
        label="Parameter scan",
        empty_label="any",
        choices=[("yes", "scans"), ("no", "others")],
    )
    due_from = DayFilter(
        field_name="deadline", lookup_expr="gte", label="Deadline from", widget=_DAY
    )
    due_to = DayFilter(field_name="deadline", lookup_expr="lte", label="Deadline to", widget=_DAY)

    #: Fields shown at once. The others are behind "More filters".
    FIRST = ("text", "experiment", "mine", "attention")

    class Meta:
        model = Request
        fields: list[str] = []

    def by_text(self, requests: QuerySet[Request], name: str, value: str) -> QuerySet[Request]:
        return requests.filter(matching_words(value))

    def by_attention(self, requests: QuerySet[Request], name: str, value: str) -> QuerySet[Request]:
        if value == "yes":
            marks = Attention.objects.all()
        else:
            marks = Attention.objects.filter(kind=value)
        return requests.filter(pk__in=marks.order_by().values("request"))

    def by_scan(self, requests: QuerySet[Request], name: str, value: str) -> QuerySet[Request]:
        if value == "yes":
            return requests.exclude(scan="")
        return requests.filter(scan="")

    def by_person(self, requests: QuerySet[Request], name: str, value: str) -> QuerySet[Request]:
        user = self.request.user
        if value == "turn":
            return requests.filter(pk__in=waiting_for(user, timezone.now()).order_by().values("pk"))
        if value == "decided":
            return requests.filter(_decided_by(user))
        return requests.filter(Q(created_by=user) | Q(submitted_by=user))

    def by_priority(self, requests: QuerySet[Request], name: str, value: str) -> QuerySet[Request]:
        """Match the class set by the OPG, or else the requested one."""
        return requests.filter(
            Q(priority_class=value) | Q(priority_class="", requested_priority=value)
        )
