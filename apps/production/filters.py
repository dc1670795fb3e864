"""Filters of the request list, for page and API."""

import django_filters as filters
from django import forms
from django.db.models import Q, QuerySet
from django.utils import timezone

from apps.core.web.query import AnyOf
from apps.production.domain.approvals.inbox import waiting_for
from apps.production.enums import AttentionKind, RequestState
from apps.production.models import Attention, Request, Stage
from apps.production.permissions import visible_experiments


class RequestFilter(AnyOf):
    text = filters.CharFilter(
        method="by_text", label="Key or words", max_length=200, widget=forms.TextInput(attrs={"type": "search"})
    )
    state = filters.ChoiceFilter(choices=RequestState, label="State", empty_label="any")
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
        choices=[("yes", "mine"), ("turn", "my turn")],
    )

    class Meta:
        model = Request
        fields: list[str] = []

    def by_text(self, requests: QuerySet[Request], name: str, value: str) -> QuerySet[Request]:
        writing = Stage.objects.filter(output_dataset__icontains=value).order_by().values("request")
        return requests.filter(Q(key__icontains=value) | Q(title__icontains=value) | Q(pk__in=writing))

    def by_attention(self, requests: QuerySet[Request], name: str, value: str) -> QuerySet[Request]:
        rows = Attention.objects.all() if value == "yes" else Attention.objects.filter(kind=value)
        return requests.filter(pk__in=rows.order_by().values("request"))

    def by_person(self, requests: QuerySet[Request], name: str, value: str) -> QuerySet[Request]:
        user = self.request.user
        if value == "turn":
            return requests.filter(pk__in=waiting_for(user, timezone.now()).order_by().values("pk"))
        return requests.filter(Q(created_by=user) | Q(submitted_by=user))
