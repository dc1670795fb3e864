"""Roles give what they should and nothing else."""

from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.domain.roles import grant_role, revoke_role
from apps.accounts.domain.users import ensure_user
from apps.accounts.enums import Role
from apps.accounts.models import Membership, User
from apps.accounts.permissions import is_approver, is_liaison, is_opg, scope_of
from apps.core.models import Event
from tests.factories import people


def test_liaison_sees_only_the_own_experiment(liaison, nova, dune):
    scope = scope_of(liaison)
    assert scope.sees(nova.pk)
    assert not scope.sees(dune.pk)
    assert not scope.sees(None)
    assert (is_liaison(liaison, nova.pk), is_liaison(liaison, dune.pk), is_opg(liaison)) == (
        True,
        False,
        False,
    )


def test_opg_sees_what_belongs_to_nobody(shifter, nova):
    scope = scope_of(shifter)
    assert scope.sees(nova.pk)
    assert scope.sees(None)
    assert not is_approver(shifter, nova.pk)


def test_approver_of_one_experiment_is_none_of_another(db, nova, dune):
    physics = people.person("nova-physics", ("approver", nova))
    assert is_approver(physics, nova.pk)
    assert not is_approver(physics, dune.pk)
    assert not is_opg(physics)


def test_inactive_user_and_stranger_have_no_role(admin):
    from django.contrib.auth.models import AnonymousUser

    assert scope_of(admin).has(Role.ADMIN)
    stopped = User.objects.get(pk=admin.pk)
    stopped.is_active = False
    assert not scope_of(stopped).has(Role.ADMIN)
    assert not is_opg(AnonymousUser())


def test_roles_are_read_once(liaison):
    user = User.objects.get(pk=liaison.pk)
    with CaptureQueriesContext(connection) as queries:
        is_opg(user), is_liaison(user, 1), is_approver(user)
    assert len(queries) == 1


def test_admin_role_opens_and_shuts_the_back_office(db, at):
    admin = ensure_user(username="admin-one", password_hash="", by="test", at=at)
    grant_role(user=admin, role=Role.ADMIN, experiment=None, by="test", at=at)
    assert User.objects.get(pk=admin.pk).is_superuser
    revoke_role(membership=Membership.objects.get(user=admin, role=Role.ADMIN), by="test", at=at)
    assert not User.objects.get(pk=admin.pk).is_superuser
    assert not User.objects.get(pk=admin.pk).is_staff
    events = Event.objects.filter(target_label="admin-one").order_by("pk")
    assert [event.kind for event in events] == [
        "user.created",
        "membership.granted",
        "membership.revoked",
    ]


def test_role_granted_twice_is_one(db, at, liaison, nova):
    grant_role(user=liaison, role=Role.LIAISON, experiment=nova, by="test", at=at)
    grant_role(user=liaison, role=Role.APPROVER, experiment=None, by="test", at=at)
    grant_role(user=liaison, role=Role.APPROVER, experiment=None, by="test", at=at)
    assert Membership.objects.filter(user=liaison).count() == 2
