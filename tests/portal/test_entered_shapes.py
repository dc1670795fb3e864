"""YAML and JSON of any shape is refused with an error of its field, wherever it is entered."""

import json
from contextlib import suppress
from copy import deepcopy

import pytest
import yaml
from django.contrib import admin as back_office
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from apps.core.errors import InvalidFields
from apps.diagnosis.domain.known_errors.exchange import import_known_errors
from apps.diagnosis.domain.packs.changes import decide_pack, propose_pack
from apps.production.domain.requests.exchange import read_import
from apps.production.domain.types.versions import save_workflow
from apps.production.models import WorkflowType
from apps.statusboard.domain.monitoring.payloads import parse_payload, receive_payload
from apps.statusboard.models import MonitoringSource
from tests.factories.clusters import cluster
from tests.factories.statusboard import source

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.sampled_from(["\0", "\ud800", "x" * 400, "", "2026-12-31", "(", "{", "name"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
DECLARATION = {
    "title": "X",
    "help": "h",
    "arguments": [
        {"name": "cut", "type": "choice", "choices": ["a"], "default": "a", "required": True},
        {"name": "part", "type": "number", "minimum": 1, "maximum": 3, "editable_in": ["running"]},
    ],
    "stages": {
        "make": {
            "title": "Make",
            "arguments": ["name", {"name": "size", "type": "size", "pattern": "a"}],
            "command": ["run", "{size}", ["-n", "{name}"]],
        },
        "join": {"title": "J", "merges": True, "arguments": ["name"], "command": ["m", "{files}"]},
    },
    "begins_with": ["make"],
}
KNOWN_ERROR = {
    "id": "GEO-GONE",
    "title": "Geometry service lost",
    "category": "service",
    "service": "samweb",
    "regex": "lost",
    "role": "cause",
    "example": "lost",
    "where": "",
    "expires_at": "2026-12-31T12:00:00Z",
    "passive": False,
}
RULE = {
    "name": "Retry",
    "scope": {"stage": "reco"},
    "condition": {"verdicts": ["service"], "exit_codes": [1]},
    "action": {"kind": "retry", "factor": 1.5, "wait_minutes": 5},
    "limits": {"attempts": 3},
}
PACK = {
    "experiment": "NOVA",
    "known_errors": [KNOWN_ERROR],
    "exit_codes": [{"number": 65, "kind": "exit", "title": "t", "category": "service"}],
    "phases": [{"start": "(?P<name>a)", "end": "b"}],
    "levels": [{"level": "error", "regex": "a"}],
    "recovery_rules": [RULE],
}
REQUEST = {
    "experiment": "NOVA",
    "workflow": "general",
    "workflow_version": 0,
    "title": "t",
    "deadline": "2027-01-31",
    "arguments": {},
    "stages": [{"name": "s", "memory_bytes": 2, "services": ["samweb"], "arguments": {"a": 1}}],
}


def _places(data, place=()):
    """List the path of each value of this data, and of the whole."""
    places = [place]
    if isinstance(data, dict):
        parts = list(data.items())
    elif isinstance(data, list):
        parts = list(enumerate(data))
    else:
        parts = []
    for name, part in parts:
        places += _places(part, (*place, name))
    return places


def _replaced(data, place, value):
    if not place:
        return value
    changed = deepcopy(data)
    above = changed
    for name in place[:-1]:
        above = above[name]
    above[place[-1]] = value
    return changed


def misshapen(data):
    """Return valid data in which any one value is replaced by any other."""
    return st.builds(_replaced, st.just(data), st.sampled_from(_places(data)), VALUES)


def entered(data):
    """Write data as a person may: as JSON, which is YAML, too, or as YAML."""
    try:
        return json.dumps(data, allow_nan=False)
    except ValueError:
        return yaml.safe_dump(data)


@pytest.fixture(autouse=True)
def no_list_of_models(monkeypatch):
    """It takes a tenth of the time of a page of the back office."""
    monkeypatch.setattr(back_office.site, "get_app_list", lambda request, app_label=None: [])


many = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@many
@given(data=misshapen(DECLARATION))
@example(data={"title": "X", "stages": 3})
@example(data={"title": "X", "stages": True})
@example(data={"title": "X" * 101, "stages": {"a": {"title": "A", "arguments": ["name"]}}})
def test_declaration_of_a_workflow_type(data, db, at):
    workflow_type, _ = WorkflowType.objects.get_or_create(key="mine")
    with suppress(InvalidFields):
        save_workflow(workflow_type=workflow_type, declaration=entered(data), by="ana", at=at)


@many
@given(data=misshapen({"known_errors": [KNOWN_ERROR]}))
def test_known_errors(data, db, approver, at):
    done = import_known_errors(text=entered(data), by=approver, at=at, reason="so", dry_run=False)
    assert all(fault.message for fault in done.faults)


@many
@given(data=misshapen(PACK))
def test_pack_of_an_experiment(data, nova, approver, at):
    with suppress(InvalidFields):
        proposed = propose_pack(text=entered(data), by=approver, at=at, reason="so")
        decide_pack(proposed=proposed, approve=True, by=approver, at=at)


@many
@given(data=misshapen(REQUEST))
def test_request(data, liaison, at):
    with suppress(InvalidFields):
        read_import(entered(data), by=liaison, at=at)


@pytest.mark.parametrize("field", ["options", "submission"])
@settings(many, max_examples=12)
@given(value=VALUES)
def test_options_of_a_cluster_in_the_back_office(field, value, admin, browse):
    row = cluster()
    fields = {"name": "alps", "scheduler": "simulated", "options": "{}", "submission": "{}"}
    address = f"/admin/clusters/cluster/{row.pk}/change/"

    answer = browse(admin).post(address, fields | {field: entered(value)})

    assert answer.status_code in {200, 302}
    assert browse(admin).get(address).status_code == 200


@settings(many, max_examples=12)
@given(value=misshapen({"key": "a", "state": "b", "items": "c"}))
def test_mapping_of_a_source_in_the_back_office(value, admin, at, browse):
    row = MonitoringSource.objects.filter(slug="probe").first() or source(at, "probe", feed="json")
    address = f"/admin/statusboard/monitoringsource/{row.pk}/change/"
    fields = {"name": "p", "feed": "json", "monitored_since_0": "2026-11-01"}
    fields |= {"monitored_since_1": "12:00", "heartbeat_timeout_seconds": "15 min"}
    fields |= {"lease_seconds": "1 h", "mapping": entered(value)}

    answer = browse(admin).post(address, fields)

    assert answer.status_code in {200, 302}
    assert browse(admin).get(f"/services/monitoring/sources/{row.slug}/mapping/").status_code == 200
    payload = receive_payload(source=row, body=b'{"a": 1, "c": [{"a": 1, "b": 2}]}', at=at)
    assert parse_payload(payload_id=payload.pk)


@settings(many, max_examples=12)
@given(value=misshapen({"job": "samweb"}))
def test_labels_of_a_rule_in_the_back_office(value, admin, at, browse):
    row = MonitoringSource.objects.filter(slug="probe").first() or source(at, "probe")
    fields = {"source": row.pk, "matchers": entered(value), "state": "down"}

    answer = browse(admin).post("/admin/statusboard/labelrule/add/", fields)

    assert answer.status_code in {200, 302}


@settings(many, max_examples=12)
@given(value=misshapen({"most_missing": 0.001}))
def test_limits_of_a_check_in_the_back_office(value, admin, browse):
    fields = {"check_name": "missing_jobs", "effect": "block", "unknown": "block", "reason": "so"}

    answer = browse(admin).post(
        "/admin/quality/thresholds/add/", fields | {"limits": entered(value)}
    )

    assert answer.status_code in {200, 302}


@settings(many, max_examples=12)
@given(value=VALUES)
def test_options_of_a_catalogue_in_the_back_office(value, admin, browse):
    fields = {"name": "c", "kind": "json", "base_url": "", "options": entered(value)}

    answer = browse(admin).post("/admin/datasets/catalogue/add/", fields)

    assert answer.status_code in {200, 302}
