"""`manage.py first_admin`: one admin with a good password, and never a second one."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from apps.accounts.models import User

ANN = {"username": "ann", "email": "ann@example.org", "password": "a long sentence of Ann"}


@pytest.fixture
def run(monkeypatch):
    """Run the command with this input; return what it prints."""

    def run(*options, **changes):
        output = io.StringIO()
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(ANN | changes)))
        call_command("first_admin", *options, stdout=output)
        return output.getvalue().strip()

    return run


def test_admin_has_role_and_password(db, run):
    assert run("--exists") == "no"
    assert run() == "Created the admin ann."
    user = User.objects.get()
    assert (user.is_superuser, user.is_staff) == (True, True)
    assert user.check_password(ANN["password"])
    assert str(user.memberships.get()) == "ann is admin of all experiments"
    assert run("--exists") == "yes"


def test_there_is_no_second_first_admin(db, run):
    run()
    assert "nothing was changed" in run(username="bob", password="another long sentence")
    assert (
        run(password="another long sentence") == "There is an admin already: nothing was changed."
    )
    assert User.objects.get().check_password(ANN["password"])


def test_user_without_rights_does_not_become_admin(db, run):
    User.objects.create_user("ann")
    with pytest.raises(CommandError, match="exists already and is no admin"):
        run()
    assert not User.objects.get().is_superuser


@pytest.mark.parametrize(
    ("field", "value"),
    [("username", "a b"), ("email", "ann"), ("email", ""), ("password", "ann"), ("password", "1")],
)
def test_problems_are_named_without_a_database(run, field, value):
    assert list(json.loads(run("--validate", **{field: value}))) == [field]
    assert json.loads(run("--validate")) == {}


def test_bad_input_creates_nobody(db, run):
    with pytest.raises(CommandError, match="password"):
        run(password="password")
    assert not User.objects.exists()
