"""First logins of one user at the same moment, in real transactions of their own."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.contrib.auth.hashers import make_password
from django.db import connection
from django.db.models.signals import pre_save
from django.utils import timezone

from apps.accounts.domain import single_sign_on
from apps.accounts.domain.single_sign_on import Identity, _user_named, sign_on
from apps.accounts.models import User
from apps.core.domain.events import events_of

pytestmark = pytest.mark.django_db(transaction=True)

LOGINS = 2


@pytest.fixture(autouse=True)
def roles(settings):
    settings.SSO_ROLES = {"opg": ["shifter"]}


def sign_on_at_once(identity: Identity) -> list[User]:
    def run(_):
        try:
            return sign_on(identity=identity, at=timezone.now())
        finally:
            connection.close()

    with ThreadPoolExecutor(LOGINS) as pool:
        return list(pool.map(run, range(LOGINS)))


@pytest.mark.parametrize("subject", ["https://login.example.org s-1", ""])
def test_first_logins_at_once_create_one_account(subject):
    barrier = Barrier(LOGINS)

    def wait_for_the_other(instance, **_):
        if instance._state.adding:
            barrier.wait(timeout=60)

    identity = Identity(
        username="ann", subject=subject, email="ann@example.org", groups=frozenset({"opg"})
    )
    pre_save.connect(wait_for_the_other, sender=User)
    try:
        users = sign_on_at_once(identity)
    finally:
        pre_save.disconnect(wait_for_the_other, sender=User)

    ann = User.objects.get()
    assert users == [ann, ann]
    assert (ann.sign_on_subject or "", ann.email, ann.has_usable_password()) == (
        subject,
        "ann@example.org",
        False,
    )
    assert ann.memberships.get().role == "shifter"
    linked = ["account.linked"] if subject else []
    assert [event.kind for event in events_of(ann)] == [
        "user.created",
        *linked,
        "membership.granted",
    ]


def test_first_logins_at_once_link_an_account_once(monkeypatch):
    barrier, take_by_name = Barrier(LOGINS), _user_named

    def take_when_both_look(*arguments):
        barrier.wait(timeout=60)
        return take_by_name(*arguments)

    monkeypatch.setattr(single_sign_on, "_user_named", take_when_both_look)
    ann = User.objects.create(username="ann", password=make_password(None))
    assert sign_on_at_once(Identity(username="ann", subject="https://login.example.org s-1")) == [
        ann,
        ann,
    ]
    assert [event.kind for event in events_of(ann)] == ["account.linked"]
