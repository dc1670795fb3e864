"""The OpenAPI schema is whole, and tools can read it without a token."""

import json
import re

import pytest
import yaml
from django.core.management import call_command
from drf_spectacular.generators import SchemaGenerator
from rest_framework.serializers import ChoiceField, ModelSerializer

from apps.api.views import SchemaView, write_ahead
from apps.core.api.operations import whole_schema
from opsportal.version import VERSION
from tests.recorded import compare_with_recorded


def test_schema_has_no_warning_and_is_as_recorded(tmp_path):
    schema = tmp_path / "schema.yaml"
    call_command("spectacular", file=str(schema), fail_on_warn=True, validate=True)
    compare_with_recorded(
        schema.read_text().replace(f"x-portal-version: {VERSION}", ""), name="openapi.yaml"
    )


def model_serializers(base=ModelSerializer):
    for cls in base.__subclasses__():
        yield from model_serializers(cls)
        if getattr(cls, "Meta", None) and cls.__module__.startswith("apps."):
            yield cls


def test_schema_allows_every_empty_choice_that_is_answered(db):
    """`role: ""` of a delegation was none of the values in the schema."""
    faults = [
        f"{cls.__name__}.{name}"
        for cls in model_serializers()
        for name, field in cls().get_fields().items()
        if isinstance(field, ChoiceField)
        and not field.allow_blank
        and (field.source or name) == name
        if any(
            model_field.name == name and model_field.blank and not model_field.generated
            for model_field in cls.Meta.model._meta.fields
        )
    ]
    assert faults == []


def test_times_of_day_are_described_as_they_are_answered():
    schema = whole_schema()["components"]["schemas"]
    described = schema["PreferencesReader"]["properties"]["quiet_from"]
    assert "format" not in described
    assert all(
        re.search(described["pattern"], time) for time in ("22:00:00", "07:30", "23:59:59.5")
    )
    assert not any(re.search(described["pattern"], time) for time in ("24:00", "7:30", "22:00:00Z"))


def test_each_operation_says_what_it_does():
    """An action without a docstring was described by its view set: a withdrawal as the list."""
    operations = {}
    for path, methods in whole_schema()["paths"].items():
        for method, operation in methods.items():
            summary = operation["summary"]
            assert summary not in operations, f"{method} {path} and {operations[summary]}"
            assert len(summary) < 90
            operations[summary] = f"{method} {path}"
    assert operations["Withdraw an announcement"] == "post /api/v1/announcements/{id}/withdraw/"
    assert operations["List debug runs"] == "get /api/v1/debug-runs/"
    assert operations["Return an incident"] == "get /api/v1/incidents/{id}/"


@pytest.mark.django_db
def test_schema_names_the_actions_of_requests(client):
    paths = client.get(
        "/api/v1/schema/", headers={"Accept": "application/vnd.oai.openapi+json"}
    ).json()["paths"]
    assert {"approve", "reject", "request-changes", "submit", "cancel", "done"} <= {
        path.strip("/").rpartition("/")[2]
        for path in paths
        if path.startswith("/api/v1/requests/{key}/")
    }


@pytest.mark.django_db
def test_schema_names_the_version_of_the_portal_beside_its_own(client):
    info = client.get("/api/v1/schema/", headers={"Accept": "application/json"}).json()["info"]
    assert (info["version"], info["x-portal-version"]) == ("1", VERSION)


@pytest.mark.django_db
def test_versions_are_told_to_anybody(client):
    assert client.get("/api/v1/version/").json() == {"portal": VERSION, "api": "1"}


def test_first_reader_does_not_wait_for_the_schema_to_be_written(rf, monkeypatch):
    monkeypatch.setattr(SchemaView, "throttle_classes", [])  # which ask the cache
    write_ahead()  # without a database: the web server forks after it
    monkeypatch.setattr(SchemaGenerator, "get_schema", None)

    answer = SchemaView.as_view()(rf.get("/api/v1/schema/"))

    assert yaml.load(answer.content, Loader=yaml.CSafeLoader)["info"]["title"] == "opsportal"


@pytest.mark.django_db
def test_schema_is_the_same_each_time_in_the_format_that_is_wanted(client):
    kinds = [
        "application/vnd.oai.openapi+json",
        "application/json",
        "application/yaml",
        "application/json",
    ]
    found = [client.get("/api/v1/schema/", headers={"Accept": kind}) for kind in kinds]
    assert [each.headers["Content-Type"] for each in found] == kinds
    assert found[1].content == found[3].content
    as_json, as_yaml = (
        json.loads(found[1].content),
        yaml.load(found[2].content, Loader=yaml.CSafeLoader),
    )
    assert json.loads(found[0].content) == as_json == as_yaml
    assert as_json["info"]["title"] == "opsportal"
