"""`manage.py diagnose FILE`: print the verdict on a log file as JSON. Needs no database."""

import argparse
import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.engine.base import Hit, JobFacts
from apps.diagnosis.engine.diagnose import Diagnosis, diagnose, read_log
from apps.diagnosis.engine.evidence.scheduler_facts import parse_state
from apps.diagnosis.engine.evidence.survey import Survey, survey
from apps.diagnosis.engine.logs.compressed import opened_text
from apps.diagnosis.engine.logs.tail import LogError, open_log
from apps.diagnosis.engine.registry import classifiers


def _state(text: str) -> tuple[JobState, str]:
    try:
        return parse_state(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _exit_code(text: str) -> tuple[int, int | None]:
    """Parse `1`, or Slurm's `1:0`, into exit code and signal."""
    code, colon, signal = text.partition(":")
    return int(code), int(signal) if colon else None


class Command(BaseCommand):
    """Reads a log of up to 64 MB completely, and the last 4 MB of a larger log."""

    help = (
        "Diagnose a log file and print the verdict as JSON. Options add facts from the scheduler."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path)
        parser.add_argument(
            "--scheduler", default="", help="scheduler that ran the job, for example slurm"
        )
        parser.add_argument(
            "--state", type=_state, help="end state: FAILED, TIMEOUT, 'CANCELLED by 1000', …"
        )
        parser.add_argument(
            "--exit-code", type=_exit_code, metavar="N", help="exit code, or Slurm's CODE:SIGNAL"
        )
        parser.add_argument("--signal", type=int, metavar="N", help="signal that killed the job")
        parser.add_argument(
            "--experiment", default="", help="experiment of the job, for its log classifiers"
        )

    def handle(self, *, file: Path, **options: Any) -> None:
        state, cancelled_by = options["state"] or (None, "")
        exit_code, signal = options["exit_code"] or (None, None)
        facts = JobFacts(
            scheduler=options["scheduler"],
            state=state,
            exit_code=exit_code,
            signal=signal if options["signal"] is None else options["signal"],
            cancelled_by=cancelled_by,
            experiment=options["experiment"],
        )
        try:
            with open_log(file, access=None) as opened, opened_text(opened) as descriptor:
                block = read_log(descriptor)
                if block.is_whole:
                    before = Survey()
                else:
                    before = survey(descriptor, block, facts, classifiers()["catalogue"])
        except LogError as error:
            raise CommandError(str(error)) from None
        if not block.is_whole:
            block = before.numbered(block)
        diagnosis = diagnose(
            facts, [block], classifiers=classifiers(), surveys={block.stream: before}
        )
        self.stdout.write(
            json.dumps(_as_json(diagnosis), indent=2 if self.stdout.isatty() else None)
        )


def _as_json(diagnosis: Diagnosis) -> dict[str, object]:
    verdict = diagnosis.verdict
    return {
        "verdict": verdict.verdict,
        "advice": verdict.advice,
        "category": verdict.category,
        "confidence": verdict.confidence,
        "summary": verdict.summary,
        "service": verdict.service,
        "cause": verdict.cause.pattern.id if verdict.cause else None,
        "reasons": [{"kind": r.kind, "text": r.text, "target": r.target} for r in verdict.reasons],
        "evidence": [_evidence(hit) for hit in diagnosis.by_weight()],
    }


def _evidence(hit: Hit) -> dict[str, object]:
    pattern = hit.pattern
    return {
        "line": hit.line,
        "offset": hit.offset,
        "pattern": pattern.id,
        "role": pattern.role,
        "text": hit.text,
        "category": pattern.category,
        "service": pattern.service,
        "advice": pattern.advice,
        "fields": dict(hit.fields),
    }
