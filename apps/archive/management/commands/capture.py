"""`manage.py capture`: copy every job out of a scheduler's spool before the scheduler
deletes it.
"""

import os
from argparse import ArgumentParser

from django.core.management.base import BaseCommand

from apps.archive.local_capture import start_capture
from capture.configuration import add_options


class Command(BaseCommand):
    """Lists the program `capture` among the commands. `manage.py` starts it without Django."""

    help = "Capture job scripts and environments from a scheduler's spool into the archive."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_options(parser, os.environ)

    def run_from_argv(self, argv: list[str]) -> None:
        start_capture(argv[2:])
