"""What goes wrong at the other end: each time a clear message, and nothing is lost."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Membership
from apps.core.domain.events import events_of
from apps.production.models import Request
from tests.factories import people
from tests.factories.requests import draft, request_in

JSON = "application/json"
LIST = "/api/v1/requests/"


@pytest.fixture
def obj(nova, liaison):
    return draft(liaison, nova)


@pytest.fixture
def as_liaison(client, liaison):
    client.force_login(liaison)
    return client


def stages_of(obj) -> list[tuple[str, str, str]]:
    return list(
        obj.stages.order_by("position").values_list("name", "input_dataset", "output_dataset")
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("experiment: NOVA\nstages: [", "Line 2"),
        ("experiment: NOVA\nstages:\n- jobs: many\n", "Line 3"),
        ("!!python/object/apply:os.system [true]", "Line 1"),
        ("a: &a [*a]", "Line 1"),
        ("", ""),
    ],
)
def test_bad_yaml_is_told_with_its_line_and_makes_nothing(as_liaison, nova, text, words):
    answer = as_liaison.post(f"{LIST}import/", text, content_type="application/yaml")
    assert answer.status_code == 400
    assert words in answer.content.decode()
    assert not Request.objects.exists()


def test_ten_thousand_stages_are_refused_in_one_sentence(as_liaison, obj):
    before, many = stages_of(obj), [{"name": f"s{number}"} for number in range(10_000)]
    for answer in (
        as_liaison.post(LIST, {"experiment": "NOVA", "stages": many}, content_type=JSON),
        as_liaison.patch(f"{LIST}{obj.key}/", {"version": 1, "stages": many}, content_type=JSON),
        as_liaison.post(f"{LIST}check/", {"experiment": "NOVA", "stages": many}, content_type=JSON),
    ):
        assert answer.status_code == 400
        assert list(answer.json()) == ["stages"]
        assert "100" in answer.json()["stages"][0]
        assert len(answer.content) < 500
    assert (Request.objects.count(), stages_of(obj)) == (1, before)


def test_a_cyclic_chain_stays_a_draft_and_is_told_when_it_is_submitted(as_liaison, obj):
    common = {
        "release": "v1",
        "events": 1000,
        "jobs": 10,
        "memory_bytes": 10**9,
        "wall_seconds": 3600,
    }
    stages = [
        {
            "name": "a",
            "configuration": "a.fcl",
            "input_dataset": "nova.b",
            "output_dataset": "nova.a",
            **common,
        },
        {
            "name": "b",
            "configuration": "b.fcl",
            "input_dataset": "nova.a",
            "output_dataset": "nova.b",
            **common,
        },
    ]
    saved = as_liaison.patch(
        f"{LIST}{obj.key}/", {"version": 1, "stages": stages}, content_type=JSON
    )
    assert saved.status_code == 200
    refused = as_liaison.post(f"{LIST}{obj.key}/submit/", {}, content_type=JSON)
    assert refused.status_code == 400
    assert "stages.0.input_dataset" in refused.json()
    obj.refresh_from_db()
    assert (obj.state, stages_of(obj)) == (
        "draft",
        [("a", "nova.b", "nova.a"), ("b", "nova.a", "nova.b")],
    )


def test_a_deadline_in_the_past_is_told_and_the_rest_stays(as_liaison, obj):
    past = str(timezone.localdate() - timedelta(days=400))
    answer = as_liaison.patch(
        f"{LIST}{obj.key}/", {"version": 1, "deadline": past}, content_type=JSON
    )
    if answer.status_code == 200:
        answer = as_liaison.post(f"{LIST}{obj.key}/submit/", {}, content_type=JSON)
    assert (answer.status_code, list(answer.json())) == (400, ["deadline"])
    obj.refresh_from_db()
    assert (obj.state, obj.stages.count()) == ("draft", 2)


@pytest.mark.django_db(transaction=True)
def test_of_two_approvers_one_decides_and_the_other_is_told(nova, liaison, approver):
    obj = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    people_, barrier = (approver, people.person("opg-two", ("approver", None))), Barrier(2)
    clients = [Client(), Client()]
    for client, person in zip(clients, people_, strict=True):
        client.force_login(person)
    version = obj.version

    def decide(client, verb):
        try:
            barrier.wait(timeout=30)
            return client.post(
                f"{LIST}{obj.key}/{verb}/", {"reason": "so", "version": version}, content_type=JSON
            )
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(decide, clients, ("approve", "reject")))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    refused = next(answer for answer in answers if answer.status_code == 409)
    assert refused.json()["detail"].startswith(f"{obj.key} ")
    kinds = [event.kind for event in events_of(obj)]
    assert kinds.count("request.approve") + kinds.count("request.reject") == 1


def test_a_removed_member_changes_nothing_and_loses_nothing(as_liaison, obj, liaison):
    Membership.objects.filter(user=liaison).delete()
    for call in (
        lambda: as_liaison.patch(
            f"{LIST}{obj.key}/", {"version": 1, "title": "x"}, content_type=JSON
        ),
        lambda: as_liaison.post(f"{LIST}{obj.key}/submit/", {}, content_type=JSON),
        lambda: as_liaison.post(f"{LIST}{obj.key}/comments/", {"text": "x"}, content_type=JSON),
        lambda: as_liaison.get(f"{LIST}{obj.key}/"),
    ):
        assert call().status_code == 404
    refused = as_liaison.post(LIST, {"experiment": "NOVA"}, content_type=JSON)
    assert refused.status_code == 403
    obj.refresh_from_db()
    assert (obj.version, obj.state) == (1, "draft")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"7",
        b"\xff\xfe",
        b'{"experiment": "NOVA", "title": "a\\u0000b"}',
        b'{"experiment": "NOVA", "title": "\\ud800"}',
        b'{"experiment": "NOVA", "stages": [{"jobs": 1e400}]}',
        b'{"experiment": "NOVA", "stages": [{"jobs": ' + b"9" * 5_000 + b"}]}",
        b'{"experiment": "NOVA", "stages": [{"jobs": NaN}]}',
        b'{"experiment": "NOVA", "arguments": {"a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}}",
        b'{"experiment": ' + b"[" * 100_000,
        b'{"experiment": {"key": "NOVA"}}',
        b'{"experiment": "NOVA", "deadline": "99999-01-01"}',
    ],
)
def test_a_body_that_cannot_be_read_is_told(as_liaison, nova, body):
    answer = as_liaison.post(LIST, body, content_type=JSON)
    assert answer.status_code == 400
    assert answer.json()
    assert not Request.objects.exists()


@pytest.mark.parametrize(
    "query",
    [
        "cursor=x",
        "cursor=cD0lMDA%3D",
        "cursor=cD05OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5",
        "page_size=99999999999999999999",
        "page_size=-1",
        "state=nowhere",
        "experiment=%FF",
        "text=%ED%A0%80",
        "mine=%00",
    ],
)
def test_a_list_asked_for_nonsense_is_told_or_answered(as_liaison, obj, query):
    assert as_liaison.get(f"{LIST}?{query}").status_code in {200, 400, 404}


@pytest.mark.parametrize(
    "key", ["NOVA-%FF", "..%2F", "%ED%A0%80", "NOVA-0001%0A", "x" * 3_000, "%F0%9F%92%A9"]
)
def test_a_key_that_is_none_is_not_found(as_liaison, obj, key):
    assert as_liaison.get(f"{LIST}{key}/").status_code in {400, 404}
