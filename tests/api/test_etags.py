"""`ETag`, `If-None-Match` and `If-Match`: who changes something has seen what it is now."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.production.domain.holds import place_hold
from apps.production.domain.lifecycle.moves import set_priority
from apps.production.domain.requests.drafts import save_draft
from apps.production.models import Hold, Request
from tests.factories.requests import AT, content, draft, request_in


@pytest.fixture
def obj(nova, liaison):
    return draft(liaison, nova)


@pytest.fixture
def as_liaison(client, liaison):
    client.force_login(liaison)
    return client


def url(obj, verb="") -> str:
    return f"/api/v1/requests/{obj.key}/{verb}"


def send(client, address, data, etag, method="post"):
    return getattr(client, method)(
        address, data, content_type="application/json", headers={"If-Match": etag}
    )


def test_a_request_has_a_strong_etag_of_its_version(as_liaison, obj, liaison):
    first = as_liaison.get(url(obj))["ETag"]
    assert first.startswith('"1-')
    assert as_liaison.get(url(obj))["ETag"] == first
    save_draft(request=obj, content=content(title="anew"), version=1, by=liaison, at=AT)
    assert as_liaison.get(url(obj))["ETag"].startswith('"2-')


def test_what_the_reader_has_is_not_sent_again(as_liaison, obj, liaison):
    etag = as_liaison.get(url(obj))["ETag"]
    same = as_liaison.get(url(obj), headers={"If-None-Match": etag})
    assert (same.status_code, same.content) == (304, b"")
    save_draft(request=obj, content=content(title="anew"), version=1, by=liaison, at=AT)
    assert as_liaison.get(url(obj), headers={"If-None-Match": etag}).status_code == 200


def test_lists_have_etags_too(as_liaison, obj):
    etag = as_liaison.get("/api/v1/requests/")["ETag"]
    assert as_liaison.get("/api/v1/requests/", headers={"If-None-Match": etag}).status_code == 304


def test_another_rank_is_another_etag_but_the_same_version(client, nova, liaison, approver):
    first, second = (
        request_in("queued", by=liaison, experiment=nova, approver=approver) for _ in range(2)
    )
    client.force_login(approver)
    etag = client.get(url(second))["ETag"]
    set_priority(
        request=Request.objects.get(pk=first.pk), priority=9, by=approver, at=AT, reason="first"
    )
    set_priority(
        request=Request.objects.get(pk=first.pk), priority=1, by=approver, at=AT, reason="last"
    )
    now = client.get(url(second), headers={"If-None-Match": etag})
    assert (
        send(
            client, url(second, "start/"), {}, now["ETag"] if now.status_code == 200 else etag
        ).status_code
        == 200
    )


@pytest.mark.parametrize("method", ["put", "patch"])
def test_a_change_under_the_etag_that_was_read_is_made(as_liaison, obj, method):
    etag = as_liaison.get(url(obj))["ETag"]
    changed = send(as_liaison, url(obj), {"title": "anew"}, etag, method)
    assert (changed.status_code, changed.json()["version"]) == (200, 2)
    assert (
        send(as_liaison, url(obj), {"title": "newer"}, changed["ETag"], method).json()["version"]
        == 3
    )


def test_a_change_under_an_old_etag_is_refused_and_nothing_is_lost(as_liaison, obj, liaison):
    etag = as_liaison.get(url(obj))["ETag"]
    save_draft(request=obj, content=content(title="of another"), version=1, by=liaison, at=AT)
    for address, data, method in (
        (url(obj), {"title": "mine"}, "patch"),
        (url(obj), {"title": "mine"}, "put"),
        (url(obj, "submit/"), {}, "post"),
        (url(obj, "cancel/"), {"reason": "x"}, "post"),
        (url(obj, "clone/"), {}, "post"),  # its service knows no versions
        (url(obj, "split/"), {"by": "events", "size": 5_000_000}, "post"),
    ):
        refused = send(as_liaison, address, data, etag, method)
        assert refused.status_code == 412
        assert refused.json()["detail"].endswith("Nothing was overwritten.")
    stored = Request.objects.get()
    assert (stored.title, stored.state, stored.version) == ("of another", "draft", 2)


def test_the_version_in_the_body_is_the_same_thing(as_liaison, obj):
    assert (
        as_liaison.patch(
            url(obj), {"title": "a", "version": 7}, content_type="application/json"
        ).status_code
        == 409
    )
    two = send(as_liaison, url(obj), {"title": "a", "version": 2}, '"1-x"', "patch")
    assert (two.status_code, list(two.json())) == (400, ["version"])
    assert (
        as_liaison.patch(url(obj), {"title": "a"}, content_type="application/json").status_code
        == 400
    )


@pytest.mark.parametrize("etag", ['W/"1-x"', "1", '"x"', "", '"999999999999999999999-x"'])
def test_a_tag_that_says_nothing_matches_nothing(as_liaison, obj, etag):
    assert send(as_liaison, url(obj), {"title": "a"}, etag, "patch").status_code == 412


def test_a_star_is_for_whatever_is_there(as_liaison, obj):
    Request.objects.filter(pk=obj.pk).update(deadline=timezone.now() + timedelta(days=30))
    assert send(as_liaison, url(obj, "submit/"), {}, "*").status_code == 200
    assert send(as_liaison, "/api/v1/requests/NOVA-0999/submit/", {}, "*").status_code == 404


def test_what_has_no_version_is_compared_as_a_whole(client, shifter, db):
    client.force_login(shifter)
    hold = place_hold(by=shifter, at=AT, reason="full")
    address = f"/api/v1/holds/{hold.pk}/"
    etag = client.get(address)["ETag"]
    Hold.objects.update(reason="full, and hot")
    refused = send(client, f"{address}lift/", {}, etag)
    assert (refused.status_code, Hold.objects.get().lifted_at) == (412, None)
    assert send(client, f"{address}lift/", {}, client.get(address)["ETag"]).status_code == 200
    assert Hold.objects.get().lifted_at


def test_no_condition_passes_unheeded(as_liaison, obj, shifter):
    """Where a route cannot compare, it changes nothing."""
    for address in (
        "/api/v1/requests/",
        "/api/v1/holds/",
        url(obj, "stages/1/located/"),
        "/api/v1/requests/import/",
    ):
        assert send(as_liaison, address, {}, '"1-x"').status_code == 412, address
    assert (Request.objects.count(), Hold.objects.count()) == (1, 0)
