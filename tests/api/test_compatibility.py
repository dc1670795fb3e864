"""API v1 only grows: what a client of a release calls and reads is still there.

The schemas of the releases are kept with their dumps (docs/development.md).
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import recorded
from tests.upgrade.databases import RELEASES

SUFFIX = ".openapi.json.gz"
#: Fields that a release has renamed: before 1.0 that was allowed, with a line in the changelog.
RENAMED = {
    "0.2.0": {
        "asked_at",
        "asked_by",
        "cancel_asked_at",
        "clusters_not_asked",
        "core_hours_asked",
        "jobs_asked",
        "judged_at",
    },
}

Schema = dict[str, Any]


class Comparison:
    """What a client of the old API would miss in the new one."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self.old, self.new = old, new
        self._compared: set[tuple[str, str, bool]] = set()

    def faults(self) -> Iterator[str]:
        for path, operations in self.old["paths"].items():
            for method, operation in operations.items():
                place = f"{method.upper()} {path}"
                now = self.new["paths"].get(path, {}).get(method)
                if now is None:
                    yield f"{place} is gone"
                    continue
                yield from self._parameters(place, operation, now)
                body, body_now = operation.get("requestBody", {}), now.get("requestBody", {})
                yield from self._contents(f"body of {place}", body, body_now, answered=False)
                for status, answer in operation["responses"].items():
                    answer_now = now["responses"].get(status)
                    if answer_now is None:
                        yield f"{place} no longer answers {status}"
                        continue
                    answer_place = f"answer {status} of {place}"
                    yield from self._contents(answer_place, answer, answer_now, answered=True)

    def _parameters(self, place: str, operation: Schema, now: Schema) -> Iterator[str]:
        before = {(item["in"], item["name"]) for item in operation.get("parameters", [])}
        after = {(item["in"], item["name"]): item for item in now.get("parameters", [])}
        for _, name in sorted(before - after.keys()):
            yield f"{place} no longer takes {name}"
        for kind, name in sorted(after.keys() - before):
            if after[kind, name].get("required"):
                yield f"{place} now needs {name}"

    def _contents(
        self, place: str, content: Schema, content_now: Schema, *, answered: bool
    ) -> Iterator[str]:
        types_now = content_now.get("content", {})
        for media_type, body in content.get("content", {}).items():
            if media_type not in types_now:
                yield f"{place} is no longer {media_type}"
                continue
            schema_now = types_now[media_type].get("schema", {})
            yield from self._schemas(place, body.get("schema", {}), schema_now, answered=answered)

    def _schemas(
        self, place: str, schema: Schema, schema_now: Schema, *, answered: bool
    ) -> Iterator[str]:
        names = (schema.get("$ref", ""), schema_now.get("$ref", ""), answered)
        if names[0] and names in self._compared:
            return
        self._compared.add(names)
        before, after = _resolve(self.old, schema), _resolve(self.new, schema_now)
        if before.get("type") != after.get("type"):
            yield f"{place}: {before.get('type')} became {after.get('type')}"
        yield from self._requirements(place, before, after, answered=answered)
        properties_now = after.get("properties", {})
        for name, field in before.get("properties", {}).items():
            if name not in properties_now:
                yield f"{place}: {name} is gone"
                continue
            field_place = f"{place}: {name}"
            yield from self._schemas(field_place, field, properties_now[name], answered=answered)
        for kind in ("allOf", "anyOf", "oneOf"):
            for part, part_now in zip(before.get(kind, []), after.get(kind, []), strict=False):
                yield from self._schemas(place, part, part_now, answered=answered)
        if "items" in before:
            items_now = after.get("items", {})
            yield from self._schemas(place, before["items"], items_now, answered=answered)

    def _requirements(
        self, place: str, before: Schema, after: Schema, *, answered: bool
    ) -> Iterator[str]:
        needed, needed_now = set(before.get("required", [])), set(after.get("required", []))
        if answered:
            for name in sorted(needed - needed_now):
                yield f"{place}: {name} is not always there"
            return
        for name in sorted(needed_now - needed):
            yield f"{place} now needs {name}"
        for value in before.get("enum", []):
            if value not in after.get("enum", [value]):
                yield f"{place} no longer takes {value!r}"


def _resolve(document: Schema, schema: Schema) -> Schema:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def read_schema(release: str) -> Schema:
    return json.loads(gzip.decompress((RELEASES / f"{release}{SUFFIX}").read_bytes()))


@pytest.fixture(scope="module")
def present():
    """The schema as it is recorded, which `test_schema` compares with the code."""
    return yaml.load(
        Path(recorded.__file__).with_name("openapi.yaml").read_text(), Loader=yaml.CSafeLoader
    )


@pytest.mark.parametrize(
    "release", [path.name.removesuffix(SUFFIX) for path in RELEASES.glob(f"*{SUFFIX}")]
)
def test_clients_of_a_release_still_work(release, present):
    faults = list(Comparison(read_schema(release), present).faults())
    renamed = RENAMED.get(release, set())
    others = [fault for fault in faults if not any(f": {name} is" in fault for name in renamed)]
    assert others == []
    for name in renamed:
        assert any(f": {name} is gone" in fault for fault in faults), f"{name} is back"


def document(*, method="get", parameters=(), field="name", required=("name",), states=("a", "b")):
    """A small API with one operation."""
    thing = {
        "type": "object",
        "properties": {field: {"type": "string"}, "state": {"enum": list(states)}},
        "required": list(required),
    }
    content = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}}
    operation = {
        "parameters": list(parameters),
        "requestBody": content,
        "responses": {"200": content},
    }
    return {"paths": {"/things/": {method: operation}}, "components": {"schemas": {"Thing": thing}}}


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        ({"method": "post"}, ["GET /things/ is gone"]),
        (
            {"parameters": [{"in": "query", "name": "of", "required": True}]},
            ["GET /things/ now needs of"],
        ),
        (
            {"required": ["name", "state"]},
            ["body of GET /things/ now needs state"],
        ),
        (
            {"required": []},
            ["answer 200 of GET /things/: name is not always there"],
        ),
        (
            {"field": "title"},
            [
                "body of GET /things/: name is gone",
                "answer 200 of GET /things/: name is gone",
            ],
        ),
        (
            {"states": ["a"]},
            ["body of GET /things/: state no longer takes 'b'"],
        ),
        (
            {
                "states": ["a", "b", "c"],
                "parameters": [{"in": "query", "name": "of", "required": False}],
            },
            [],
        ),
    ],
    ids=["operation", "parameter", "needed", "not there", "renamed", "value", "growth"],
)
def test_comparison_finds_what_breaks_clients(change, faults):
    assert list(Comparison(document(), document(**change)).faults()) == faults
