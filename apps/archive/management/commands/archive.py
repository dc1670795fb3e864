"""`manage.py archive ACTION`: what can be done with what is archived, the same for every scheduler and sink."""

import os
import sys
from argparse import ArgumentParser
from types import ModuleType
from typing import Any

from django.core.management.base import BaseCommand

from apps.archive.management.actions import check, fill, link, listing, retain, show, verify

ACTIONS: dict[str, ModuleType] = {
    "fill": fill,
    "list": listing,
    "link": link,
    "check": check,
    "retain": retain,
    "show": show,
    "verify": verify,
}


class Command(BaseCommand):
    """Finds the action and runs it."""

    help = "What can be done with archived jobs."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        for name, action in ACTIONS.items():
            action.add_arguments(actions.add_parser(name, help=action.HELP))

    def handle(self, *, action: str, **options: Any) -> None:
        try:
            ACTIONS[action].run(self, **options)
        except BrokenPipeError:  # the reader, such as `head`, has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
