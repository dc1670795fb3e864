"""Test clients are logged in by the session that a login leaves."""

from django.test import Client
from django.urls import reverse

from tests import sessions


def test_session_holds_what_a_login_leaves(liaison):
    opened, logged_in = Client(), Client()
    sessions.open_session(opened, liaison)
    sessions._force_login(logged_in, liaison)
    assert dict(opened.session.items()) == dict(logged_in.session.items())
    assert opened.session.session_key != logged_in.session.session_key


def test_all_tests_log_in_by_it(liaison, client):
    client.force_login(liaison)
    liaison.refresh_from_db()
    assert liaison.last_login is None
    assert client.get(reverse("accounts:settings")).status_code == 200


def test_client_that_changes_its_user_has_a_session_of_the_new_one(liaison, approver, client):
    client.force_login(liaison)
    first = client.session.session_key
    client.force_login(approver)
    assert client.session["_auth_user_id"] == str(approver.pk)
    assert not client.session.exists(first)
