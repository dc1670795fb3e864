"""Times with zones that Python knows and PostgreSQL does not, and dates that no user means."""

from collections.abc import Iterator

import django_filters
import pytest
from django import forms
from drf_spectacular.generators import SchemaGenerator
from rest_framework import serializers

from apps.core.api import moments as api_moments
from apps.core.domain.dates import OUT_OF_RANGE
from apps.core.web.moments import DayField, DayFilter, MomentField, MomentFilter

FAR = "1296-07-24T08:22:28-23:32"


@pytest.mark.parametrize(
    "address",
    [
        "/api/v1/incidents/?started_after=",
        "/api/v1/verdicts/?start=",
        "/api/v1/jobs/?ended_from=",
        "/jobs/?ended_to=",
        "/jobs/?started_from=",
    ],
)
@pytest.mark.parametrize("when", [FAR, "9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+23:00"])
def test_a_filter_takes_or_refuses_any_time(client, admin, address, when):
    client.force_login(admin)
    assert client.get(address + when.replace("+", "%2B")).status_code in {200, 400}


def test_what_leads_nowhere_below_the_api_is_told_in_json(client, admin):
    client.force_login(admin)
    for address, status in {"/api/v1/nothing/": 404, "/api/v1/requests/?a=%00": 400}.items():
        response = client.get(address)
        assert (response.status_code, list(response.json())) == (status, ["detail"])


@pytest.mark.parametrize("year", ["9999", "0001", "1999", "2101"])
@pytest.mark.parametrize(
    ("address", "field"),
    [
        ("/statistics/?since={}-12-31T23&until=2026-01-01", "since"),
        ("/statistics/?until={}-12-31T23:30", "until"),
        ("/api/v1/statistics/?since={}-12-31T23&until=2026-01-01", "since"),
        ("/api/v1/statistics/?until={}-01-01T00:00", "until"),
        ("/api/v1/causes/?until={}-01-01T00:00", "until"),
        ("/api/v1/archive/?since={}-01-01", "since"),
        ("/api/v1/archive/?until={}-12-31", "until"),
        ("/api/v1/requests/?due_from={}-12-31", "due_from"),
        ("/archive/?since={}-01-01", "since"),
        ("/requests/?due_to={}-01-01", "due_to"),
        ("/failures/?start={}-01-01T00:00", ""),
        ("/services/windows/calendar/?month={}-12", ""),
    ],
)
def test_dates_out_of_range_are_refused_by_the_name_of_their_field(
    client, admin, address, field, year
):
    client.force_login(admin)
    answer = client.get(address.format(year))
    assert answer.status_code in {200, 400}
    if field:
        assert OUT_OF_RANGE in answer.content.decode()
    if address.startswith("/api/"):
        assert answer.status_code == 400
        assert answer.json() == {field: [OUT_OF_RANGE]}


def test_since_and_until_that_swallow_each_other(client, admin):
    client.force_login(admin)
    assert client.get("/statistics/?since=9999-12-31T23&until=0001-01-01").status_code == 400


def classes_below(base: type) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield from classes_below(kind)
        if kind.__module__.startswith("apps."):
            yield kind


def test_every_form_and_filter_takes_only_such_dates(client, admin):
    client.force_login(admin)
    client.get("/")  # imports all URLs, and so all forms
    fields = {
        f"{form.__module__}.{form.__name__}.{name}": field
        for form in classes_below(forms.BaseForm)
        for name, field in form.base_fields.items()
        if isinstance(field, forms.DateTimeField | forms.DateField)
    }
    assert len(fields) > 5
    assert [
        name for name, field in fields.items() if not isinstance(field, MomentField | DayField)
    ] == []
    filters = {
        f"{filterset.__name__}.{name}": kind
        for filterset in classes_below(django_filters.FilterSet)
        for name, kind in filterset.base_filters.items()
        if isinstance(kind, django_filters.DateTimeFilter | django_filters.DateFilter)
    }
    assert len(filters) > 5
    assert [
        name for name, kind in filters.items() if not isinstance(kind, MomentFilter | DayFilter)
    ] == []


def test_every_body_of_the_api_takes_only_such_dates(db):
    generator = SchemaGenerator()
    schema = generator.get_schema(request=None, public=True)
    text = str(
        [
            operation.get("requestBody")
            for path in schema["paths"].values()
            for operation in path.values()
        ]
    )
    fields = {
        f"{component.name}.{name}": field
        for component in generator.registry._components.values()
        if f"/{component.name}'" in text
        and isinstance(component.object, type | serializers.BaseSerializer)
        for name, field in fields_of(component.object).items()
        if isinstance(field, serializers.DateTimeField | serializers.DateField)
        and not field.read_only
    }
    assert len(fields) > 5
    assert [
        name
        for name, field in fields.items()
        if not isinstance(field, api_moments.MomentField | api_moments.DayField)
    ] == []


def fields_of(serializer) -> dict[str, serializers.Field]:
    made = serializer() if isinstance(serializer, type) else serializer
    return dict(getattr(made, "fields", {}))
