"""`manage.py person`: export and remove what the portal holds about a person."""

from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.personal_data import export_person, remove_person
from apps.core.errors import DomainError
from apps.core.management.files import open_new_file


class Command(BaseCommand):
    help = "Export or remove what the portal holds about a person."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        export = verbs.add_parser("export", help="write all rows about a person to a file")
        export.add_argument("username")
        export.add_argument("--file", type=Path, required=True, help="a new file, in JSON Lines")
        remove = verbs.add_parser("remove", help="remove a person from the portal")
        remove.add_argument("username")
        remove.add_argument("--yes", action="store_true", help="do it; else say what would be done")

    def handle(self, *args: Any, verb: str, username: str, **options: Any) -> None:
        user = User.objects.filter(username=username).first()
        if user is None:
            raise CommandError(f"There is no user {username}.")
        if verb == "export":
            self._export(user, options["file"])
        else:
            self._remove(user, is_final=options["yes"])

    def _export(self, user: User, path: Path) -> None:
        with open_new_file(path) as file:
            rows = export_person(user, file, by="person", at=timezone.now())
        self.stdout.write(f"{rows} rows about {user} are in {path}.")

    def _remove(self, user: User, *, is_final: bool) -> None:
        name = str(user)
        try:
            with transaction.atomic():
                removal = remove_person(user, by="person", at=timezone.now())
                if not is_final:
                    transaction.set_rollback(True)
        except DomainError as error:
            raise CommandError(str(error)) from error
        self._list("Deleted rows", removal.deleted)
        self._list(f"Rows that name {removal.new_name} instead", removal.renamed)
        if is_final:
            self.stdout.write(f"{name} was removed, and is {removal.new_name} now.")
        else:
            self.stdout.write("Nothing was changed. To remove the person, add --yes.")

    def _list(self, title: str, rows: Counter[str]) -> None:
        self.stdout.write(f"{title}:")
        for table, count in sorted(rows.items()):
            if count:
                self.stdout.write(f"  {count:>8}  {table}")
