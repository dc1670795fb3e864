"""Output files that jobs name in their logs, because they cannot send them to the portal.

A line `opsportal-output: {"name": "reco.root", "size_bytes": 123}` names one file; see
docs/files.md.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from django.conf import settings
from django.db import DatabaseError

from apps.core.domain.plugins import Registry
from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.formats.plain_lines import clean
from apps.jobs.models import Job

log = logging.getLogger(__name__)

#: Of the lines of a log, the first are taken.
MOST_FILES = 1_000
_LINE = re.compile(rb"^[ \t]*opsportal-output: (\{[^\n]{1,8000}\})[ \t]*$", re.MULTILINE)


class TakesOutputs(Protocol):
    """Stores the output files of jobs."""

    def take(self, job: Job, files: Sequence[Mapping[str, Any]], *, at: datetime) -> None:
        """Store the files that the log of a completed job names, unless it sent its files itself.

        The fields are the job's own, and not checked yet. Safe to repeat.
        """


TAKERS: Registry[TakesOutputs] = Registry("opsportal.logged_outputs", settings.LOGGED_OUTPUTS)


def outputs_in(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """Return the files that logs name; lines that are no JSON object are left out."""
    files: list[dict[str, Any]] = []
    for block in blocks:
        for match in _LINE.finditer(clean(block.data)):
            if len(files) == MOST_FILES:
                return files
            try:
                value = json.loads(match[1])
            except (ValueError, RecursionError):
                continue
            files.append(value)
    return files


def pass_outputs_on(job: Job, blocks: Iterable[Block], *, at: datetime) -> None:
    """Give the files that a completed job's logs name to those who store them."""
    files = outputs_in(blocks)
    if not files:
        return
    for name, taker in TAKERS.working().items():
        try:
            taker.take(job, files, at=at)
        except DatabaseError:
            raise
        except Exception:  # a third party's plugin may raise anything
            log.exception("%s did not take the files in the log of %s", name, job)
