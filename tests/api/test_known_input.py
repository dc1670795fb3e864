"""What a call says and its route does not know is refused by name, on every route of the schema."""

import json
from datetime import date
from functools import partial

import pytest

from apps.core.api.operations import whole_schema
from apps.production.domain.lineage.templates import save_template
from apps.production.models import Request
from tests.factories.requests import draft, request_in
from tests.pumps import seconds_of

JSON = "application/json"
LIST = "/api/v1/requests/"


@pytest.fixture
def as_admin(client, admin):
    client.force_login(admin)
    return client


@pytest.fixture
def as_liaison(client, liaison):
    client.force_login(liaison)
    return client


def operations():
    for path, methods in whole_schema()["paths"].items():
        for method, operation in methods.items():
            filled = path.replace("{id}", "1").replace("{number}", "1").replace("{job}", "1")
            yield method, filled.replace("{key}", "x").replace("{slug}", "x"), operation


def test_every_route_names_an_unknown_parameter(as_admin):
    named = 0
    for method, path, _ in operations():
        answer = getattr(as_admin, method)(f"{path}?no_such_parameter=1")
        if answer.status_code in {401, 403, 404}:  # as without the parameter
            assert getattr(as_admin, method)(path).status_code == answer.status_code, (method, path)
            continue
        named += 1
        assert (method, path, answer.status_code, list(answer.json())) == (
            method,
            path,
            400,
            ["no_such_parameter"],
        )
    assert named > 30


def test_every_route_with_a_json_body_names_an_unknown_key(as_admin):
    sent = 0
    for method, path, operation in operations():
        if (
            method in {"get", "delete"}
            or JSON not in operation.get("requestBody", {"content": JSON})["content"]
        ):
            continue
        answer = getattr(as_admin, method)(path, {"no_such_field": 1}, content_type=JSON)
        if answer.status_code in {401, 403, 404}:
            assert (
                getattr(as_admin, method)(path, {}, content_type=JSON).status_code
                == answer.status_code
            )
            continue
        sent += 1
        assert (method, path, answer.status_code, list(answer.json())) == (
            method,
            path,
            400,
            ["no_such_field"],
        )
    assert sent > 10


def test_permission_is_checked_before_names(client, nova, liaison, other_liaison, approver):
    made = request_in("submitted", by=liaison, experiment=nova, approver=approver)
    for user, status in ((other_liaison, 404), (liaison, 403)):
        client.force_login(user)
        answer = client.post(f"{LIST}{made.key}/approve/", {"raeson": "x"}, content_type=JSON)
        assert (answer.status_code, list(answer.json())) == (status, ["detail"])
    client.force_login(approver)
    answer = client.post(f"{LIST}{made.key}/approve/", {"raeson": "x"}, content_type=JSON)
    assert (answer.status_code, list(answer.json())) == (400, ["raeson"])
    made.refresh_from_db()
    assert made.state == "submitted"
    client.force_login(liaison)
    assert client.post("/api/v1/incidents/", {"nmae": "x"}, content_type=JSON).status_code == 403
    assert client.post(f"{LIST}{made.key}/approve/", "{", content_type=JSON).status_code == 403


@pytest.mark.parametrize("who", ["shifter", "approver", "liaison"])
def test_permission_comes_before_names_and_values_on_every_kind_of_call(
    who, request, client, nova, liaison, approver
):
    """The calls that users with this role may see the target of, and may not make."""
    made, key = (
        request_in("queued", by=liaison, experiment=nova, approver=approver),
        f"{LIST}NOVA-0001/",
    )
    template = save_template(request=made, name="Standard", by=liaison, at=made.created_at)
    forbidden = {
        "shifter": {
            ("post", LIST),
            ("post", f"{LIST}import/"),
            ("put", key),
            ("patch", key),
            ("post", f"{key}clone/"),
            ("post", f"{key}next-names/"),
            ("post", f"{key}split/"),
            ("post", f"{key}combine/"),
            ("post", f"{key}set-priority/"),
            ("post", f"/api/v1/queue/{made.key}/move/"),
            ("post", f"/api/v1/queue/{made.key}/undo-move/"),
            ("post", f"/api/v1/templates/{template.pk}/make-draft/"),
            ("post", "/api/v1/delegations/"),
        },
        "approver": {("post", LIST), ("patch", key), ("post", f"{key}clone/")},
        "liaison": {
            ("post", f"{key}set-priority/"),
            ("post", f"/api/v1/queue/{made.key}/move/"),
            ("post", "/api/v1/holds/"),
            ("post", "/api/v1/retry-batches/"),
            ("post", "/api/v1/delegations/"),
        },
    }
    client.force_login(request.getfixturevalue(who))
    for method, path in forbidden[who]:
        for body in ({"no_such_field": 1}, {}):
            answer = getattr(client, method)(path, body, content_type=JSON)
            assert (method, path, answer.status_code) == (method, path, 403)


def test_nearest_name_is_proposed(as_liaison, nova):
    answer = as_liaison.post(LIST, {"experiment": "NOVA", "tilte": "Muons"}, content_type=JSON)
    assert (answer.status_code, answer.json()) == (
        400,
        {"tilte": ["This field does not exist. Did you mean “title”?"]},
    )
    assert not Request.objects.exists()
    answer = as_liaison.post(
        LIST, {"experiment": "NOVA", "stages": [{}, {"evnets": 3}]}, content_type=JSON
    )
    assert answer.json() == {
        "stages.1.evnets": ["This field does not exist. Did you mean “events”?"]
    }
    answer = as_liaison.get(f"{LIST}?stat=draft")
    assert answer.json() == {"stat": ["This parameter does not exist. Did you mean “state”?"]}
    assert as_liaison.head(f"{LIST}?stat=draft").status_code == 400


def test_call_without_a_body_takes_none(as_liaison, nova, liaison):
    made = draft(liaison, nova)
    answer = as_liaison.post(f"{LIST}{made.key}/clone/", {"titel": "x"}, content_type=JSON)
    assert answer.json() == {"titel": ["This field does not exist."]}
    assert as_liaison.post(f"{LIST}{made.key}/clone/", {}, content_type=JSON).status_code == 201


def test_parameter_of_one_value_is_not_taken_twice(as_liaison):
    answer = as_liaison.get(f"{LIST}?page_size=1&page_size=2")
    assert (answer.status_code, answer.json()) == (
        400,
        {"page_size": ["This parameter takes one value."]},
    )


def test_strangers_are_asked_to_log_in_before_their_body_is_read(client, db):
    assert client.post(LIST, {"tilte": 1}, content_type=JSON).status_code == 401


def keys(answer) -> list[str]:
    return [row["key"] for row in answer.json()["results"]]


def test_repeated_filter_matches_any_of_its_values(as_liaison, nova, liaison, approver):
    for state in ("draft", "submitted", "queued"):
        request_in(state, by=liaison, experiment=nova, approver=approver)
    assert keys(as_liaison.get(f"{LIST}?state=draft&state=queued")) == ["NOVA-0003", "NOVA-0001"]
    assert keys(as_liaison.get(f"{LIST}?state=draft&state=&state=queued&text=0003")) == [
        "NOVA-0003"
    ]
    assert keys(as_liaison.get(f"{LIST}?text=0002&text=0003")) == ["NOVA-0003", "NOVA-0002"]
    assert as_liaison.get(f"{LIST}?state=nowhere&state=queued").status_code == 400
    many = "&".join(f"text={number}" for number in range(101))
    assert list(as_liaison.get(f"{LIST}?{many}").json()) == ["text"]


def test_list_is_ordered_as_asked_for_page_by_page(as_liaison, nova, liaison):
    for day in (3, None, 1, 2):
        draft(liaison, nova, deadline=day and date(2027, 1, day))
    soonest, found = f"{LIST}?ordering=deadline&page_size=1", []
    while soonest:
        answer = as_liaison.get(soonest)
        found += keys(answer)
        soonest = answer.json()["next"]
    assert found == ["NOVA-0003", "NOVA-0004", "NOVA-0001", "NOVA-0002"]
    assert keys(as_liaison.get(f"{LIST}?ordering=-deadline")) == found[::-1]
    refused = as_liaison.get(f"{LIST}?ordering=titel")
    assert refused.json() == {
        "ordering": ["Choose one of: created_at, -created_at, deadline, -deadline."]
    }
    cursor = as_liaison.get(f"{LIST}?page_size=1").json()["next"]
    assert as_liaison.get(f"{cursor}&ordering=deadline").status_code == 404


@pytest.mark.parametrize(
    "stages", [[{"evnets": 1}] * 100_000, [{}] * 700_000], ids=["unknown keys", "empty"]
)
def test_a_large_body_costs_little(as_liaison, stages):
    """Each unknown key cost a search for similar names: 7 s for a body of 2 MB."""
    body = json.dumps({"stages": stages}, separators=(",", ":"))
    as_liaison.post("/api/v1/requests/check/", "{}", content_type=JSON)  # the schema is made once
    check = partial(as_liaison.post, "/api/v1/requests/check/", body, content_type=JSON)
    assert check().status_code == 400
    assert seconds_of(check) < 2
