"""YAML of users: no implicit types, linear time, a size limit,
and permission before anything is parsed.
"""

import pytest

from apps.core.errors import NotAllowed
from apps.production.domain.requests import exchange
from apps.production.domain.requests.exchange import InvalidText, import_request, read_import
from apps.production.domain.types import declaration
from apps.production.domain.yaml_text import MAX_BYTES, parse_yaml
from tests.factories.people import person
from tests.factories.requests import AT
from tests.pumps import seconds_of


@pytest.mark.parametrize(
    "text",
    [
        *("yes", "No", "on", "OFF", "y", "59:59", "08:00:00", "1:2:3.5", "2026-12-31"),
        *("2026-12-31T10:00:00Z", "0x1F", "0o17", "0b101", "1_000", ".inf", "-.INF", ".nan"),
        *("=", "<<", "1e5000", "1234567890123456789012345678901", "٣"),
    ],
)
def test_plain_words_stay_text(text):
    assert parse_yaml(f"a: {text}\nb: [{text}]\n").data == {"a": text, "b": [text]}


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a: 017", {"a": 17}),
        ("a: 1e3", {"a": 1000.0}),
        ("a: ~", {"a": None}),
        ("a: TRUE", {"a": True}),
    ],
)
def test_values_are_those_of_json(text, data):
    assert parse_yaml(text).data == data


def test_merge_keys_merge_nothing():
    assert parse_yaml("b: {<<: {c: 2}}\n").data == {"b": {"<<": {"c": 2}}}
    assert parse_yaml("a: &unused 1\n").faults
    assert "References" in parse_yaml("base: &base {a: 1}\nb: {<<: *base}\n").faults[0].message


@pytest.mark.parametrize("field", ["wall_seconds", "events", "memory_bytes", "name"])
def test_long_sexagesimal_number_takes_no_time(field, nova, liaison):
    text = f"experiment: NOVA\nstages:\n- {{kind: stage, {field}: {'59:' * 400_000}59}}\n"

    def refuse():
        with pytest.raises(InvalidText):
            read_import(text, by=liaison, at=AT)

    assert seconds_of(refuse) < 0.5


@pytest.fixture
def no_parser(monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("parsed before the permission was checked")

    monkeypatch.setattr(exchange, "parse_yaml", fail)
    monkeypatch.setattr(declaration, "parse_yaml", fail)


def test_permission_comes_before_parsing(nova, approver, browse, api, no_parser):
    with pytest.raises(NotAllowed):
        import_request(text="experiment: NOVA", by=approver, at=AT)
    assert (
        browse(approver).post("/requests/import/", {"text": "experiment: NOVA"}).status_code == 403
    )
    answer = api(approver).post(
        "/api/v1/requests/import/", "experiment: NOVA", content_type="application/yaml"
    )
    assert answer.status_code == 403
    clerk = person("clerk")
    clerk.is_staff = True
    clerk.save()
    sent = {"key": "x", "enabled": "on", "declaration": "title: x"}
    assert browse(clerk).post("/admin/production/workflowtype/add/", sent).status_code in {302, 403}


def test_too_long_a_text_is_not_parsed(monkeypatch):
    monkeypatch.setattr("yaml.parse", lambda *args, **kwargs: pytest.fail("parsed"))
    assert parse_yaml("a" * (MAX_BYTES + 1)).faults[0].message.startswith("Use at most")
