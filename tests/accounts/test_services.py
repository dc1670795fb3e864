"""Roles, tokens and what expires."""

from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.domain import api_tokens
from apps.accounts.domain.api_tokens import create_token, forget_expired
from apps.accounts.domain.experiments import ensure_experiment
from apps.accounts.domain.roles import grant_role, revoke_role
from apps.accounts.enums import Role
from apps.accounts.models import ApiToken, Experiment, User
from apps.core.errors import InvalidFields
from apps.core.models import Event
from apps.production.domain.content.model import RequestContent
from apps.production.domain.requests.drafts import create_draft


def test_superuser_of_the_command_line_stays_one_with_any_other_role(db, at):
    first = User.objects.create_superuser("first", password="x")
    approver = grant_role(user=first, role=Role.APPROVER, experiment=None, by="test", at=at)
    revoke_role(membership=approver, by="test", at=at)
    first.refresh_from_db()
    assert (first.is_staff, first.is_superuser) == (True, True)


def test_admin_of_one_experiment_may_not_enter_the_back_office(db, at, nova, liaison):
    grant_role(user=liaison, role=Role.ADMIN, experiment=nova, by="test", at=at)
    liaison.refresh_from_db()
    assert not liaison.is_staff


def test_tokens_of_one_person_have_a_limit(client, liaison, settings):
    settings.REST_KNOX = {**settings.REST_KNOX, "TOKEN_LIMIT_PER_USER": 2}
    client.force_login(liaison)
    assert [
        client.post(
            "/accounts/settings/tokens/", {"name": "nightly", "scope": "read", "days": 5}
        ).status_code
        for _ in range(3)
    ] == [200, 200, 400]
    ApiToken.objects.update(expiry=timezone.now() - timedelta(days=1))
    assert (
        client.post(
            "/accounts/settings/tokens/", {"name": "nightly", "scope": "read", "days": 5}
        ).status_code
        == 200
    )
    assert Event.objects.filter(kind="token.created").count() == 3


def test_token_is_not_made_without_its_event(liaison, at, monkeypatch):
    def fail(**_):
        raise RuntimeError

    monkeypatch.setattr(api_tokens, "publish", fail)
    with pytest.raises(RuntimeError):
        create_token(user=liaison, name="nightly", days=1, by=liaison, at=at)
    assert not ApiToken.objects.exists()


def test_what_has_expired_is_forgotten(client, liaison):
    now = timezone.now()
    client.force_login(liaison)
    Session.objects.create(session_key="old", session_data="", expire_date=now - timedelta(hours=1))
    create_token(user=liaison, name="nightly", days=1, by=liaison, at=now)
    create_token(user=liaison, name="nightly", days=30, by=liaison, at=now)
    forget_expired(at=now + timedelta(days=2))
    assert ApiToken.objects.count() == 1
    assert list(Session.objects.values_list("session_key", flat=True)) == [
        client.session.session_key
    ]


def test_too_many_tokens_say_what_to_do(liaison, at, settings):
    settings.REST_KNOX = {**settings.REST_KNOX, "TOKEN_LIMIT_PER_USER": 0}
    with pytest.raises(InvalidFields, match="Revoke one"):
        create_token(user=liaison, name="nightly", days=1, by=liaison, at=at)


def test_unknown_zone_in_the_back_office_is_refused(admin, client):
    admin.time_zone = "Mars/Base"
    with pytest.raises(ValidationError, match="IANA"):
        admin.full_clean()


def test_zone_that_is_known_no_more_shows_the_portals_own(client, liaison):
    User.objects.filter(pk=liaison.pk).update(time_zone="Mars/Base")
    client.force_login(liaison)
    assert client.get("/accounts/settings/").status_code == 200


def test_experiment_in_use_keeps_its_key_and_is_not_deleted(client, admin, nova, liaison, at):
    client.force_login(admin)
    path = f"/admin/accounts/experiment/{nova.pk}"
    create_draft(experiment=nova, content=RequestContent(), by=liaison, at=at)
    client.post(f"{path}/change/", {"key": "OTHER", "name": "New name"})
    assert Experiment.objects.values_list("key", "name").get() == ("NOVA", "New name")
    page = client.post(f"{path}/delete/", {"post": "yes"}).content.decode()
    assert "New name cannot be deleted: it is used by" in page
    assert "1 request" in page
    assert Experiment.objects.filter(pk=nova.pk).exists()


def test_experiment_made_by_mistake_can_be_renamed_and_deleted(client, admin, nova):
    client.force_login(admin)
    path = f"/admin/accounts/experiment/{nova.pk}"
    client.post(f"{path}/change/", {"key": "OTHER", "name": "New name"})
    assert Experiment.objects.values_list("key", "name").get() == ("OTHER", "New name")
    client.post(f"{path}/delete/", {"post": "yes"})
    assert not Experiment.objects.exists()


@pytest.mark.parametrize("path", ["/accounts/login/", "/admin/login/"])
def test_name_without_end_is_only_wrong(client, db, path):
    assert client.post(path, {"username": "a" * 5000, "password": "x"}).status_code == 200


@pytest.mark.parametrize("key", ["nova", "NOVA", "NoVa"])
def test_key_of_an_experiment_is_taken_in_any_case(nova, at, key):
    with pytest.raises(ValidationError, match="upper and lower case are the same"):
        Experiment(key=key, name="another").full_clean()
    assert ensure_experiment(key=key, name="another", by="test", at=at) == nova
    with pytest.raises(IntegrityError), transaction.atomic():
        Experiment.objects.create(key=key, name="another")
