"""What the portal holds about a person can be handed over and removed."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from apps.accounts import personal_data
from apps.accounts.enums import TokenScope
from apps.accounts.models import ApiToken, SavedView, User
from apps.accounts.personal_data import NAME_LENGTH, remove_person, rows_about
from apps.core.errors import NotAllowed
from apps.core.models import Event
from apps.production.domain.discussion import write_comment
from apps.production.models import Comment, Request, Signature
from tests.factories import people

pytestmark = pytest.mark.django_db


@pytest.fixture
def person(world, liaison, at) -> User:
    """A liaison who did one of everything, and has secrets."""
    liaison.first_name, liaison.email = "Ada", "ada@example.org"
    liaison.save()
    ApiToken.objects.create(user=liaison, name="laptop", scope=TokenScope.READ)
    SavedView.objects.create(owner=liaison, path="/jobs/", name="mine", query="?user=ada")
    write_comment(request=world.request, by=liaison, text="Please hurry.", at=at)
    return liaison


def columns_with(text: str) -> set[str]:
    """Return the columns of all tables that have a text in some row."""
    columns = set()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = 'public' AND data_type IN ('character varying', 'text', 'jsonb')"
        )
        for table, column in cursor.fetchall():
            cursor.execute(
                f'SELECT 1 FROM "{table}" WHERE "{column}"::text LIKE %s LIMIT 1', [f"%{text}%"]
            )
            if cursor.fetchone():
                columns.add(f"{table}.{column}")
    return columns


def test_export_has_every_row_of_the_person_and_no_secret(person, approver):
    rows = list(rows_about(person))
    tables = {table for table, _ in rows}
    assert {
        "accounts.User",
        "accounts.Membership",
        "accounts.ApiToken",
        "accounts.SavedView",
        "core.Event",
        "production.Request",
        "production.Comment",
    } <= tables
    comments = [columns["text"] for table, columns in rows if table == "production.Comment"]
    assert "Please hurry." in comments
    text = json.dumps(rows, default=str)
    assert person.password not in text
    assert ApiToken.objects.get(user=person).digest not in text
    assert approver.username not in {columns.get("username") for _, columns in rows}
    keys = [(table, columns["id"]) for table, columns in rows if "id" in columns]
    assert len(keys) == len(set(keys))


def test_removal_leaves_the_name_nowhere_and_the_work_in_place(person, admin, at):
    requests, comments = Request.objects.count(), Comment.objects.filter(by=person).count()
    name = person.username
    assert "core_event.actor" in columns_with(name)

    removal = remove_person(person, by=admin, at=at)

    assert columns_with(name) == set()
    assert columns_with("ada@example.org") == set()
    assert Request.objects.count() == requests
    assert Comment.objects.filter(by=person).count() == comments
    person.refresh_from_db()
    assert (person.username, person.first_name, person.is_active) == (
        removal.new_name,
        "",
        False,
    )
    assert not person.has_usable_password()
    assert removal.deleted["accounts.ApiToken"] == 1
    assert removal.deleted["accounts.SavedView"] == 1
    assert removal.renamed["core.Event"] > 0
    event = Event.objects.get(kind="user.removed")
    assert (event.actor, event.target_label) == (admin.username, removal.new_name)


def test_signatures_of_a_removed_approver_still_count(world, approver, admin, at):
    signed = Signature.objects.filter(by=approver).count()
    remove_person(approver, by=admin, at=at)
    assert Signature.objects.filter(by=approver).count() == signed


def test_the_last_superuser_stays(db, at):
    user = people.person("root", ("admin", None))
    user.is_superuser = True
    user.save()
    with pytest.raises(NotAllowed, match="last active superuser"):
        remove_person(user, by="person", at=at)
    user.refresh_from_db()
    assert user.username == "root"


def test_names_of_users_stand_in_columns_of_one_length():
    assert User._meta.get_field("username").max_length == NAME_LENGTH


@pytest.mark.parametrize(
    ("text", "renamed"),
    [
        ("ada is liaison of NOvA", "former-user-1 is liaison of NOvA"),
        ("By ada. And by “ada”.", "By former-user-1. And by “former-user-1”."),
        ("ada.l, x-ada and ada@example.org", "ada.l, x-ada and ada@example.org"),
    ],
)
def test_name_is_replaced_where_it_stands_alone(text, renamed):
    assert personal_data._renamed(text, "ada", "former-user-1") == renamed


def test_commands(person, tmp_path):
    output = StringIO()
    name = person.username
    path = tmp_path / "person.jsonl"
    call_command("person", "export", name, file=path, stdout=output)
    assert path.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert f"{len(lines)} rows about {name}" in output.getvalue()
    with pytest.raises(CommandError, match="File exists"):
        call_command("person", "export", name, file=path)
    with pytest.raises(CommandError, match="There is no user nobody-here"):
        call_command("person", "remove", "nobody-here")

    call_command("person", "remove", name, stdout=output)
    assert "Nothing was changed" in output.getvalue()
    assert User.objects.filter(username=name).exists()
    call_command("person", "remove", name, yes=True, stdout=output)
    assert f"{name} was removed, and is former-user-{person.pk} now." in output.getvalue()
    assert not User.objects.filter(username=name).exists()
