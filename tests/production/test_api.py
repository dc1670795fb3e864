"""Requests over the API: the same rules as on the pages, told in status codes and field paths."""

import json
import re

import pytest
from django.conf import settings
from rest_framework.test import APIClient

from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.domain.requests.drafts import save_draft
from apps.production.models import Request
from apps.production.tasks import check_waiting
from tests.factories.requests import AT, content, draft, pass_quality, request_in

LIST = "/api/v1/requests/"
STAGE = {
    "name": "generation",
    "release": "v09_72",
    "configuration": "genie.fcl",
    "events": 1000,
    "jobs": 10,
    "memory_bytes": 4_000_000_000,
    "wall_seconds": 3600,
    "retry_memory_bytes": None,
    "retry_wall_seconds": None,
    "output_dataset": "nova.gen",
}
COMPLETE = {
    "experiment": "NOVA",
    "title": "ND rock muons",
    "purpose": "Freeze",
    "deadline": "2026-12-12",
    "stages": [STAGE],
}


def one(request: Request, verb: str = "") -> str:
    return f"{LIST}{request.key}/{verb}"


def test_stranger_is_refused(db):
    assert APIClient().get(LIST).status_code == 401


def test_whole_life_over_the_api(nova, liaison, approver, samweb, api):
    sent = {**COMPLETE, "stages": [{**STAGE, "services": ["samweb"]}]}
    made = api(liaison).post(LIST, sent, format="json")
    assert (made.status_code, made.json()["key"], made.json()["state"]) == (
        201,
        "NOVA-0001",
        "draft",
    )
    assert made.json()["stages"] == [
        {**STAGE, "kind": "stage", "input_dataset": "", "services": ["samweb"], "arguments": {}}
    ]
    path = f"{LIST}NOVA-0001/"
    changed = api(liaison).patch(path, {"version": 1, "title": "Rock muons"}, format="json")
    assert (changed.json()["title"], len(changed.json()["stages"])) == ("Rock muons", 1)
    states = []
    for by, verb in [
        (liaison, "submit"),
        (approver, "request-changes"),
        (liaison, "submit"),
        (approver, "approve"),
        (approver, "hold"),
        (approver, "release"),
    ]:
        states.append(
            api(by).post(f"{path}{verb}/", {"reason": "because"}, format="json").json()["state"]
        )
        check_waiting()
    assert states == ["submitted", "changes_requested", "submitted", "queued", "on_hold", "queued"]
    ranked = (
        api(approver)
        .post(f"{path}set-priority/", {"priority": 7, "reason": "freeze"}, format="json")
        .json()
    )
    assert (ranked["priority"], ranked["rank"], ranked["approved_by"]) == (7, 1, "opg-one")
    for verb in ("start", "complete", "review", "done"):
        if verb == "done":
            pass_quality(Request.objects.get(), approver)
        state = api(approver).post(f"{path}{verb}/", {}, format="json").json()["state"]
    assert state == "done"


def test_successor_is_named_by_its_key(nova, liaison, approver, api):
    obj = request_in("queued", by=liaison, experiment=nova, approver=approver)
    other = draft(liaison, nova)
    told = api(liaison).post(
        one(obj, "supersede/"), {"reason": "x", "successor": "NOVA-9999"}, format="json"
    )
    assert (told.status_code, list(told.json())) == (400, ["successor"])
    done = (
        api(liaison)
        .post(one(obj, "supersede/"), {"reason": "x", "successor": other.key}, format="json")
        .json()
    )
    assert (done["state"], done["superseded_by"]) == ("superseded", other.key)


def test_put_empties_what_is_not_sent(nova, liaison, api):
    made = draft(liaison, nova)
    answer = api(liaison).put(one(made), {"version": 1, "title": "Only this"}, format="json").json()
    assert (answer["title"], answer["purpose"], answer["deadline"], answer["stages"]) == (
        "Only this",
        "",
        None,
        [],
    )


@pytest.mark.parametrize(
    ("sent", "paths"),
    [
        ({"stages": [{**STAGE, "memory_bytes": "much"}]}, {"stages.0.memory_bytes"}),
        ({"stages": [STAGE, {"events": -1, "jobs": 10**9}]}, {"stages.1.events", "stages.1.jobs"}),
        ({"stages": [{"services": ["nfs"]}]}, {"stages.0.services"}),
        ({"stages": [{"services": "nfs"}]}, {"stages.0.services"}),
        ({"stages": [STAGE] * 101}, {"stages"}),
        ({"stages": {"name": "x"}}, {"stages"}),
        ({"stages": ["x"]}, {"stages.0"}),
        ({"stages": None}, {"stages"}),
        ({"deadline": "tomorrow", "title": "x" * 300}, {"deadline", "title"}),
        ({"title": "a\0b"}, {"title"}),
        ({"experiment": "ATLAS"}, {"experiment"}),
        ({"requested_priority": "now"}, {"requested_priority"}),
        ([], {"non_field_errors"}),
    ],
)
def test_what_cannot_be_read_is_answered_by_field_path(sent, paths, nova, liaison, api):
    body = {**COMPLETE, **sent} if isinstance(sent, dict) else sent
    answer = api(liaison).post(LIST, body, format="json")
    assert (answer.status_code, set(answer.json())) == (400, paths)
    assert Request.objects.count() == 0


def test_half_a_character_is_a_problem_of_its_field(nova, liaison, api):
    body = '{"experiment": "NOVA", "title": "\\ud800"}'
    answer = api(liaison).post(LIST, body, content_type="application/json")
    assert (answer.status_code, set(answer.json())) == (400, {"title"})


def test_submit_of_an_incomplete_draft_answers_every_problem(nova, liaison, api):
    made = api(liaison).post(LIST, {"experiment": "NOVA", "stages": [{}]}, format="json").json()
    answer = api(liaison).post(f"{LIST}{made['key']}/submit/", {}, format="json")
    assert answer.status_code == 400
    assert {"title", "deadline", "stages.0.memory_bytes"} < set(answer.json())


@pytest.mark.parametrize("method", ["get", "put", "patch"])
def test_request_of_another_experiment_is_not_found(method, nova, liaison, other_liaison, api):
    made = draft(liaison, nova)
    sent = None if method == "get" else {"version": 1}
    assert getattr(api(other_liaison), method)(one(made), sent, format="json").status_code == 404
    assert api(other_liaison).post(one(made, "submit/"), {}, format="json").status_code == 404
    assert api(other_liaison).get(LIST).json()["results"] == []


def test_draft_for_an_experiment_of_others_is_forbidden(nova, dune, other_liaison, shifter, api):
    answer = api(other_liaison).post(LIST, COMPLETE, format="json")
    # The answer is as for one that does not exist.
    assert (answer.status_code, list(answer.json())) == (
        400,
        ["experiment"],
    )
    assert api(shifter).post(LIST, COMPLETE, format="json").status_code == 403


@pytest.mark.parametrize(
    ("verb", "role"),
    [
        ("submit", "approver"),
        ("approve", "liaison"),
        ("request-changes", "shifter"),
        ("reject", "admin"),
        ("start", "liaison"),
        ("done", "liaison"),
        ("set-priority", "liaison"),
    ],
)
def test_move_of_the_wrong_person_is_forbidden(verb, role, nova, liaison, approver, api, request):
    obj = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    sent = {"reason": "x", "priority": 3}
    assert (
        api(request.getfixturevalue(role))
        .post(one(obj, f"{verb}/"), sent, format="json")
        .status_code
        == 403
    )


def test_move_from_the_wrong_state_is_a_conflict(nova, liaison, approver, api):
    obj = draft(liaison, nova)
    answer = api(approver).post(one(obj, "approve/"), {}, format="json")
    assert (answer.status_code, answer.json()) == (
        409,
        {"detail": "“Approve” is not possible: NOVA-0001 is “draft”."},
    )


def test_stale_version_is_a_conflict(nova, liaison, approver, api):
    made = draft(liaison, nova)
    save_draft(request=made, content=content(title="New"), version=1, by=liaison, at=AT)
    assert (
        api(liaison).patch(one(made), {"version": 1, "title": "Old"}, format="json").status_code
        == 409
    )
    assert api(liaison).post(one(made, "submit/"), {"version": 1}, format="json").status_code == 409
    assert Request.objects.get().title == "New"


def test_missing_reason_version_and_priority_are_problems_of_fields(nova, liaison, approver, api):
    made = draft(liaison, nova)
    assert set(api(liaison).patch(one(made), {"title": "x"}, format="json").json()) == {"version"}
    obj = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    assert set(api(approver).post(one(obj, "reject/"), {}, format="json").json()) == {"reason"}
    assert set(
        api(approver).post(one(obj, "set-priority/"), {"reason": "x"}, format="json").json()
    ) == {"priority"}


def test_list_filters_and_keeps_its_query_count(
    nova, liaison, approver, api, django_assert_max_num_queries
):
    counts = []
    for rows in (1, 3):
        for _ in range(rows - Request.objects.count()):
            request_in("queued", by=liaison, experiment=nova, approver=approver)
        with django_assert_max_num_queries(8) as seen:
            assert len(api(liaison).get(LIST).json()["results"]) == rows
        counts.append(len(seen))
    assert counts[0] == counts[1]
    assert api(liaison).get(LIST + "?state=draft").json()["results"] == []


def test_list_leaves_out_what_is_at_the_address_of_each(nova, liaison, api):
    key = draft(liaison, nova).key
    row, whole = (
        api(liaison).get(LIST).json()["results"][0],
        api(liaison).get(f"{LIST}{key}/").json(),
    )
    assert whole.keys() - row.keys() == {
        "purpose",
        "priority_reason",
        "scan",
        "points",
        "arguments",
        "stages",
    }
    assert row == {name: whole[name] for name in row}


def test_nothing_is_deleted(nova, liaison, api):
    assert api(liaison).delete(one(draft(liaison, nova))).status_code == 405


def test_schema_names_every_route_without_a_warning(db):
    from drf_spectacular.drainage import GENERATOR_STATS
    from drf_spectacular.generators import SchemaGenerator

    GENERATOR_STATS.reset()
    with GENERATOR_STATS.silence():
        schema = SchemaGenerator().get_schema(public=True)
        warnings = [text for text in GENERATOR_STATS._warn_cache if "production" in text]
    assert warnings == []
    verbs = {path.split("/")[-2] for path in schema["paths"] if path.startswith(LIST + "{key}/")}
    signing = {"signatures", "withdraw-signature"}
    moves = {
        *(verb.value for verb in MOVE_FUNCTIONS),
        "set-priority",
        "reschedule",
        "outputs",
        "located",
        "yaml",
        *signing,
    }
    assert verbs >= {"{key}"} | moves


def test_example_of_the_documentation_is_accepted_as_it_stands(nova, liaison, api):
    page = (settings.BASE_DIR / "docs/workflows.md").read_text()
    (example,) = re.findall(r"^```json\n(.+?)^```", page, re.MULTILINE | re.DOTALL)
    sent = json.loads(example)

    answer = api(liaison).post(LIST, sent, format="json")
    assert answer.status_code == 201, answer.json()
    stored = api(liaison).get(f"{LIST}{answer.json()['key']}/").json()
    assert stored["arguments"] == sent["arguments"]
    stage = stored["stages"][0]
    assert {key: stage["arguments"][key] for key in sent["stages"][0]["arguments"]} == (
        sent["stages"][0]["arguments"]
    )
    assert (stage["kind"], stage["events"]) == ("generation", 100_000)

    findings = api(liaison).post(f"{LIST}check/", sent, format="json").json()["findings"]
    assert [finding for finding in findings if finding["severity"] == "error"] == []


def test_wrong_types_and_unknown_services_are_told_at_once(nova, liaison, api):
    stage = {"name": "reco", "jobs": "many", "services": ["nowhere"]}
    answer = api(liaison).post(
        "/api/v1/requests/",
        {"experiment": "NOVA", "deadline": "soon", "stages": [stage]},
        format="json",
    )
    assert answer.status_code == 400
    assert set(answer.json()) == {"deadline", "stages.0.jobs", "stages.0.services"}
