"""`manage.py first_admin`: the first person who may give roles to others. `setup` calls it."""

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.hashers import make_password
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction
from django.utils import timezone

from apps.accounts.domain.roles import grant_role
from apps.accounts.domain.users import ensure_user
from apps.accounts.enums import Role
from apps.accounts.models import User


class Command(BaseCommand):
    help = (
        "Create the first admin, with the role Admin for all experiments, unless there is one. "
        'Standard input is JSON: {"username": …, "email": …, "password": …}.'
    )
    requires_system_checks = []  # `check --deploy` runs before, and they take seconds

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--validate",
            action="store_true",
            help="only check the input, without the database; prints the problems as JSON",
        )

        parser.add_argument(
            "--exists", action="store_true", help="only print whether there is an admin: yes or no"
        )

    def handle(self, *args: Any, validate: bool, exists: bool, **options: Any) -> None:
        if exists:
            self.stdout.write("yes" if has_admin() else "no")
            return
        person = json.load(sys.stdin)
        username = person["username"]
        password = person["password"]
        problems = find_problems(username, person["email"], password)
        if validate:
            self.stdout.write(json.dumps(problems))
            return
        if problems:
            raise CommandError(json.dumps(problems))

        with transaction.atomic():
            if has_admin():
                self.stdout.write("There is an admin already: nothing was changed.")
                return
            if User.objects.filter(username=username).exists():
                raise CommandError(f"The user {username} exists already and is no admin.")
            at = timezone.now()
            user = ensure_user(
                username=username,
                password_hash=make_password(password),
                by="setup",
                at=at,
                email=person["email"],
            )
            grant_role(user=user, role=Role.ADMIN, experiment=None, by="setup", at=at)
        self.stdout.write(f"Created the admin {username}.")


def has_admin() -> bool:
    """Return whether there is an active admin; a database without tables has none."""
    if User._meta.db_table not in connection.introspection.table_names():
        return False
    return User.objects.filter(is_superuser=True, is_active=True).exists()


def find_problems(username: str, email: str, password: str) -> dict[str, str]:
    """Return what is wrong with each of `username`, `email` and `password`; empty if nothing is."""
    problems: dict[str, str] = {}
    user = User(username=username, email=email)
    try:
        user.clean_fields(exclude=["password"])
    except ValidationError as error:
        for field, messages in error.message_dict.items():
            problems[field] = " ".join(messages)
    if not email:
        problems["email"] = "This field cannot be blank."
    try:
        validate_password(password, user)
    except ValidationError as error:
        problems["password"] = " ".join(error.messages)
    return problems
