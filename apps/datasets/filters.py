"""Filters of the list of datasets, for page and API."""

import django_filters as filters
from django import forms
from django.db.models import QuerySet

from apps.accounts.domain.experiments import visible_experiments
from apps.core.web.query import AnyOf, Several
from apps.datasets.domain.listing import with_name_like
from apps.production.enums import RequestState
from apps.production.models import Stage

#: The orders of the list: parameter, and column of the stage.
ORDERS = {"created": "id", "name": "output_dataset", "release": "release"}


class DatasetFilter(AnyOf):
    q = filters.CharFilter(
        method="by_name",
        label="Part of the name",
        max_length=300,
        widget=forms.TextInput(attrs={"type": "search"}),
    )
    experiment = filters.ModelChoiceFilter(
        field_name="request__experiment",
        queryset=lambda request: visible_experiments(getattr(request, "user", None)),
        to_field_name="key",
        label="Experiment",
        empty_label="all",
    )
    release = filters.CharFilter(label="Release", max_length=100)
    state = Several(field_name="request__state", choices=RequestState, label="State of the request")

    #: Fields shown at once. The others are behind "More filters".
    FIRST = ("q", "experiment", "release")
    #: Fields for datasets that no request writes.
    OF_INPUTS = ("q", "experiment")

    class Meta:
        model = Stage
        fields: tuple[str, ...] = ()

    def by_name(self, stages: QuerySet[Stage], name: str, value: str) -> QuerySet[Stage]:
        return with_name_like(stages, value)
