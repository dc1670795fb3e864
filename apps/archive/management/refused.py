"""`manage.py capture --refused`, `--retry-refused`, `--drop-refused`, `--forget-sink`: what sinks have not taken."""

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError

from apps.archive.capture.delivery.drain import Drain
from apps.archive.capture.delivery.keeper import RETRY_SIGNAL
from apps.archive.capture.journal.dead_letters import DeadLetters, running_capture
from apps.archive.capture.journal.journal import Journal
from apps.archive.handover.report import printable
from apps.archive.management.times import time_text
from apps.archive.sinks.base import Sink, SinkUnavailable


def list_refused(command: BaseCommand, directory: Path) -> None:
    """Print a line for each. Raises `JournalError`."""
    count = 0
    with closing(DeadLetters(directory)) as letters:
        for letter in letters:
            facts = (letter.sink, letter.job_id, time_text(letter.submitted_at), letter.size_bytes, letter.reason)
            command.stdout.write("\t".join(map(printable, facts)))
            count += 1
    command.stderr.write(f"{count} refused")


def retry_refused(command: BaseCommand, directory: Path, sinks: Sequence[Sink]) -> None:
    """Let the capture that runs try them again, or try them here. Raises `JournalError` and `CommandError`."""
    if (process := running_capture(directory)) is not None:
        os.kill(process, RETRY_SIGNAL)
        command.stdout.write(f"capture, process {process}, tries them again")
        return
    away = []
    with closing(Journal(directory, sinks=[sink.name for sink in sinks])) as journal:
        for sink in sinks:
            with closing(sink):
                drain = Drain(journal=journal, sink=sink)
                try:
                    drain.write_refused()
                except SinkUnavailable as error:
                    away.append(f"{sink.name}: {error}")
            refused, _ = journal.refusals(sink.name, newest=0)
            command.stdout.write(f"{sink.name}: {drain.written} taken, {refused} refused")
    if away:
        raise CommandError("\n".join(away))


def drop_refused(command: BaseCommand, directory: Path, sinks: Sequence[Sink], job_id: str) -> None:
    """Give up those of `sinks`, or of one job. Raises `JournalError`."""
    with closing(DeadLetters(directory)) as letters:
        for sink in sinks:
            command.stdout.write(f"{sink.name}: {letters.drop(sink=sink.name, job_id=job_id)} dropped")


def forget_sink(command: BaseCommand, directory: Path, sinks: Sequence[Sink], name: str) -> None:
    """Give up what a sink lacks that is none of `sinks`. Raises `JournalError`, also where capture runs."""
    with closing(Journal(directory, sinks=[sink.name for sink in sinks])) as journal:
        behind, refused = journal.forget_sink(name)
    command.stdout.write(f"{name} is forgotten, with {behind} jobs that it lacked and {refused} that it had refused")
