"""`manage.py experiment_pack FILE`: check the pack of an experiment, or propose it."""

from argparse import ArgumentParser
from itertools import chain
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import DomainError, InvalidFields
from apps.diagnosis.domain.known_errors.changes import PORTAL
from apps.diagnosis.domain.packs.changes import decide_pack, effect_of, propose_pack
from apps.diagnosis.domain.packs.reading import check_expressions, read_pack


class Command(BaseCommand):
    help = (
        "Check the pack of an experiment; with --user propose it, with --approve put it into force."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path)
        parser.add_argument("--user", help="who proposes it; without, the pack is only checked")
        parser.add_argument("--reason", default="", help="why; the approver reads it")
        parser.add_argument(
            "--approve", action="store_true", help="approve it too, if the user may"
        )

    def handle(self, *, file: Path, user: str | None, reason: str, approve: bool, **_: Any) -> None:
        try:
            text = file.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{file}: {error}") from error
        try:
            self._check(text) if user is None else self._propose(text, user, reason, approve)
        except InvalidFields as error:
            faults = chain.from_iterable(error.problems.values())
            raise CommandError("\n".join(f"{file}: {fault}" for fault in faults)) from error
        except DomainError as error:
            raise CommandError(str(error)) from error

    def _check(self, text: str) -> None:
        pack = read_pack(text)
        check_expressions(pack, by=PORTAL)
        if pack.faults:
            raise InvalidFields({"text": [str(fault) for fault in pack.faults]})
        effect = effect_of(pack)
        for word in ("added", "changed", "removed"):
            self.stdout.write(f"{word}: {', '.join(getattr(effect, word)) or 'none'}")

    def _propose(self, text: str, user: str, reason: str, approve: bool) -> None:
        by = User.objects.filter(username=user, is_active=True).first()
        at = timezone.now()
        if by is None:
            raise CommandError(f"User {user} not found.")
        with transaction.atomic():
            pack = propose_pack(text=text, by=by, at=at, reason=reason)
            if approve:
                decide_pack(proposed=pack, approve=True, by=by, at=at)
        self.stdout.write(f"{pack}: {pack.get_state_display().lower()}")
