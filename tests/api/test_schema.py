"""The OpenAPI schema is whole, and tools can read it without a token."""

import pytest
import yaml
from django.core.management import call_command
from drf_spectacular.generators import SchemaGenerator

from apps.api.views import SchemaView, write_ahead
from opsportal.version import VERSION


def test_schema_has_no_warning(tmp_path):
    call_command("spectacular", file=str(tmp_path / "schema.yaml"), fail_on_warn=True, validate=True)


@pytest.mark.django_db
def test_schema_names_the_actions_of_requests(client):
    paths = client.get("/api/v1/schema/", headers={"Accept": "application/vnd.oai.openapi+json"}).json()["paths"]
    assert {"approve", "reject", "request-changes", "submit", "cancel", "done"} <= {
        path.strip("/").rpartition("/")[2] for path in paths if path.startswith("/api/v1/requests/{key}/")
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

    assert yaml.safe_load(answer.content)["info"]["title"] == "opsportal"


@pytest.mark.django_db
@pytest.mark.parametrize("kind", ["application/vnd.oai.openapi+json", "application/json", "application/yaml"])
def test_schema_is_the_same_each_time_in_the_format_that_is_wanted(client, kind):
    first, second = (client.get("/api/v1/schema/", headers={"Accept": kind}) for _ in range(2))
    assert first.headers["Content-Type"] == second.headers["Content-Type"] == kind
    assert first.content == second.content
    assert yaml.safe_load(first.content)["info"]["title"] == "opsportal"
