"""Atom feeds open with their token alone, show what the person may see now,
and spare the reader what it has.
"""

from datetime import timedelta

import pytest
from defusedxml import ElementTree
from django.test import Client

from apps.core.domain import event_kinds
from apps.core.domain.event_kinds import EventKind, to
from apps.core.domain.events import publish
from apps.core.enums import Audience, Group
from apps.notifications.domain.atom_feeds import make_feed_address, revoke_feed_address
from apps.notifications.models import Preferences
from tests.factories.people import person
from tests.factories.requests import draft
from tests.notifications.told import FRIDAY as AT
from tests.notifications.told import deliver

pytestmark = pytest.mark.django_db
ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture
def token(asked, liaison):
    make_feed_address(user=liaison, by=liaison, at=AT)
    return Preferences.objects.get(user=liaison).feed_token


@pytest.fixture
def read():
    """A feed reader: no session."""
    return lambda path, **headers: Client().get(path, headers=headers)


def titles(response):
    root = ElementTree.fromstring(response.content)
    assert root.tag == f"{ATOM}feed"
    return [entry.findtext(f"{ATOM}title") for entry in root.findall(f"{ATOM}entry")]


def test_inbox_has_what_concerns_the_person(read, token, asked):
    response = read(f"/feeds/{token}/inbox.atom")
    assert response.status_code == 200
    assert response["Content-Type"].startswith("application/atom+xml")
    assert titles(response) == [f"{asked} is awaiting approval"]


def test_request_and_experiment_have_every_event_newest_first(read, token, asked):
    expected = [
        f"{asked} {words}"
        for words in ("is awaiting approval", "is being checked", "was submitted", "was created")
    ]
    assert titles(read(f"/feeds/{token}/requests/{asked}.atom")) == expected
    assert titles(read(f"/feeds/{token}/experiments/NOVA.atom")) == expected


def test_other_experiments_are_hidden(read, token, dune, other_liaison):
    other = draft(other_liaison, dune)
    assert read(f"/feeds/{token}/requests/{other}.atom").status_code == 404
    assert read(f"/feeds/{token}/experiments/DUNE.atom").status_code == 404
    assert read(f"/feeds/{token}/experiments/NONE.atom").status_code == 404


def test_permission_counts_at_each_fetch(read, token, asked, liaison):
    liaison.memberships.all().delete()
    assert titles(read(f"/feeds/{token}/inbox.atom")) == []
    assert read(f"/feeds/{token}/requests/{asked}.atom").status_code == 404
    assert read(f"/feeds/{token}/experiments/NOVA.atom").status_code == 404
    liaison.is_active = False
    liaison.save()
    assert read(f"/feeds/{token}/inbox.atom").status_code == 404


def other_digit(digit: str) -> str:
    return "x" if digit != "x" else "y"


@pytest.mark.parametrize(
    "change",
    [lambda t: t[:-1], lambda t: t + "0", lambda t: other_digit(t[0]) + t[1:], lambda _: "é" * 56],
)
def test_token_is_not_to_be_guessed(read, token, change):
    assert read(f"/feeds/{change(token)}/inbox.atom").status_code == 404


def test_new_address_and_revoking_shut_the_old_one(read, token, liaison):
    make_feed_address(user=liaison, by=liaison, at=AT)
    assert read(f"/feeds/{token}/inbox.atom").status_code == 404
    new = Preferences.objects.get(user=liaison).feed_token
    assert read(f"/feeds/{new}/inbox.atom").status_code == 200
    revoke_feed_address(user=liaison, by=liaison, at=AT)
    assert read(f"/feeds/{new}/inbox.atom").status_code == 404


def test_address_of_a_former_key_opens_the_feeds_while_that_key_counts(read, token, replace_key):
    replace_key(keep=True)
    assert read(f"/feeds/{token}/inbox.atom").status_code == 200
    replace_key(keep=False)
    assert read(f"/feeds/{token}/inbox.atom").status_code == 404


def test_token_opens_nothing_but_feeds(token, asked):
    assert (
        Client()
        .get(f"/requests/{asked}/", headers={"Authorization": f"Bearer {token}"})
        .status_code
        == 302
    )
    assert (
        Client().get("/api/v1/requests/", headers={"Authorization": f"Token {token}"}).status_code
        == 401
    )


def test_reader_that_has_it_is_told_so(read, token, asked):
    path = f"/feeds/{token}/requests/{asked}.atom"
    first = read(path)
    assert read(path, **{"If-None-Match": first["ETag"]}).status_code == 304
    assert read(path, **{"If-Modified-Since": first["Last-Modified"]}).status_code == 304
    publish(kind="request.done", target=asked, by="x", at=AT + timedelta(hours=1))
    second = read(path, **{"If-None-Match": first["ETag"]})
    assert second.status_code == 200
    assert second["ETag"] != first["ETag"]


def test_what_people_write_is_escaped(read, token, asked, monkeypatch):
    kind = EventKind("request.<b>&", "<b>&", "– <b>&", to(Group.OTHER, Audience.REQUESTER))
    monkeypatch.setitem(event_kinds._kinds, kind.name, kind)
    publish(kind="request.<b>&", target=asked, by="<i>", at=AT, reason="<script>\x0b ]]> &amp;")
    deliver()
    response = read(f"/feeds/{token}/inbox.atom")
    assert b"<script>" not in response.content
    assert titles(response)[0] == f"{asked} – <b>&"


def test_empty_feed_is_a_feed(read, db):
    nobody = person("nobody")
    make_feed_address(user=nobody, by=nobody, at=AT)
    token = Preferences.objects.get(user=nobody).feed_token
    assert titles(read(f"/feeds/{token}/inbox.atom")) == []


def test_queries_do_not_grow_with_requests(read, token, nova, liaison, django_assert_num_queries):
    with django_assert_num_queries(6):
        read(f"/feeds/{token}/experiments/NOVA.atom")
    for _ in range(5):
        draft(liaison, nova)
    with django_assert_num_queries(6):
        assert len(titles(read(f"/feeds/{token}/experiments/NOVA.atom"))) == 9
