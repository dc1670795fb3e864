"""Who is refused at the login: accounts of the demo, and addresses that guess."""

import pytest
from django.test import Client

from apps.accounts.models import ApiToken, User
from apps.accounts.web import login_guard
from tests.factories import people

LOGIN = "/accounts/login/"


def log_in(name: str, password: str, address: str = "192.0.2.1", client: Client | None = None):
    return (client or Client()).post(
        LOGIN, {"username": name, "password": password}, REMOTE_ADDR=address
    )


@pytest.fixture
def demo_user(liaison):
    User.objects.filter(pk=liaison.pk).update(is_demo=True)
    return liaison


def test_demo_account_works_in_the_demo(demo_user, settings):
    settings.DEMO = True
    assert log_in(demo_user.username, people.PASSWORD).status_code == 302


def test_demo_account_cannot_log_in_elsewhere(demo_user, settings):
    settings.DEMO = False
    assert log_in(demo_user.username, people.PASSWORD).status_code == 200


def test_session_and_token_of_a_demo_account_end_with_the_demo(demo_user, settings, client):
    settings.DEMO = True
    client.force_login(demo_user)
    headers = {"Authorization": f"Token {ApiToken.objects.create(demo_user)[1]}"}
    assert (
        client.get("/").status_code,
        Client().get("/api/v1/inbox/", headers=headers).status_code,
    ) == (200, 200)
    settings.DEMO = False
    assert (
        client.get("/").status_code,
        Client().get("/api/v1/inbox/", headers=headers).status_code,
    ) == (302, 401)


def test_address_that_tries_many_names_is_locked(db, monkeypatch):
    monkeypatch.setattr(login_guard, "MAX_FAILURES_OF_ADDRESS", 6)
    people.person("victim")
    answers = [log_in(f"name-{number}", "spring2026").status_code for number in range(8)]
    assert answers == [200] * 5 + [429] * 3
    assert log_in("victim", people.PASSWORD).status_code == 429


def test_addresses_of_one_ipv6_network_count_as_one(db, monkeypatch):
    monkeypatch.setattr(login_guard, "MAX_FAILURES_OF_ADDRESS", 6)
    people.person("victim")
    answers = [
        log_in(f"n{i}", "spring2026", address=f"2001:db8:0:1::{i:x}").status_code
        for i in range(1, 8)
    ]
    assert answers == [200] * 5 + [429] * 2
    assert log_in("victim", people.PASSWORD, address="2001:db8:0:2::1").status_code == 302


def test_others_are_not_locked_out_from_one_address(db, monkeypatch):
    monkeypatch.setattr(login_guard, "MAX_FAILURES_OF_ADDRESS", 6)
    people.person("victim")
    for _ in range(20):
        log_in("victim", "wrong", address="192.0.2.66")
    assert log_in("victim", people.PASSWORD, address="192.0.2.66").status_code == 429
    assert log_in("victim", people.PASSWORD, address="192.0.2.1").status_code == 302
