"""Migrations that the code of an earlier release does not survive, or that were reviewed for it.

Code of release n runs on the schema of n and of n + 1, so that an upgrade can migrate while the
release before still works. What the schema of this version changes for an earlier release, beyond
additions that its code need not know, is listed here with the reason.
"""

import re
from dataclasses import dataclass

from django.db import connections
from django.db.migrations.recorder import MigrationRecorder


@dataclass(frozen=True)
class ReviewedMigration:
    """A migration that takes something away from the code of an earlier release, or demands more.

    `breaks` is the newest release whose code fails beside it; empty if none does. `changes` are
    worded as `tests/upgrade/schema_changes.py` words them; without any, the schema does not show
    what breaks.
    """

    app_label: str
    name: str
    breaks: str
    reason: str
    changes: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.app_label}.{self.name}: {self.reason}"


#: In the order in which they landed. Append; a release that is no longer supported may go.
REVIEWED_MIGRATIONS = (
    ReviewedMigration(
        "archive",
        "0004_sink_delivery_work",
        breaks="0.2.0",
        reason="workers of 0.2.0 claim deliveries by claimed_at, which is now due_at",
        changes=frozenset(
            {
                "archive_sinkdelivery.claimed_at is gone",
                "archive_sinkdelivery has archive_sinkdelivery_attempts_8520df37_check",
            }
        ),
    ),
    ReviewedMigration(
        "archive",
        "0007_intake_batch_without_sinks",
        breaks="0.2.0",
        reason="the web server of 0.2.0 stores the sinks of each batch of captured jobs",
        changes=frozenset({"archive_intakebatch.sinks is gone"}),
    ),
    ReviewedMigration(
        "jobs",
        "0002_phases_in_logs",
        breaks="0.2.0",
        reason="0.2.0 recounts an hour of phases without those read from logs, and deletes these",
        changes=frozenset({"jobs_phasetotals has phase_totals_once"}),
    ),
    ReviewedMigration(
        "production",
        "0004_hold_of_portal",
        breaks="0.2.0",
        reason="pages of 0.2.0 name the person of each hold, and the portal's own have none",
        changes=frozenset({"production_hold.by_id may be NULL"}),
    ),
    ReviewedMigration(
        "production",
        "0007_recoveries",
        breaks="0.2.0",
        reason="0.2.0 does not know requests that recover the missing files of another one",
        changes=frozenset({"production_requestlink has link_kind"}),
    ),
    ReviewedMigration(
        "quality",
        "0002_evaluated_runs",
        breaks="0.2.0",
        reason="0.2.0 reads and writes asked_at, asked_by, judged_at and the state judged",
        changes=frozenset(
            {
                "quality_qualityrun.asked_at is gone",
                "quality_qualityrun.asked_by is gone",
                "quality_qualityrun.judged_at is gone",
                "quality_qualityrun.requested_at is required",
                "quality_qualityrun.requested_by is required",
                "quality_qualityrun.state is character varying(16), was character varying(8)",
                "quality_qualityrun has quality_run_evaluated",
            }
        ),
    ),
    ReviewedMigration(
        "quality",
        "0003_files_move",
        breaks="0.2.0",
        reason="output files are in datasets_outputfile, which 0.2.0 does not know",
        changes=frozenset({"quality_outputfile is gone"}),
    ),
    ReviewedMigration(
        "submission",
        "0002_cancel_requested_at",
        breaks="0.2.0",
        reason="0.2.0 reads cancel_asked_at of each array of jobs",
        changes=frozenset({"submission_submission.cancel_asked_at is gone"}),
    ),
    ReviewedMigration(
        "submission",
        "0009_files_move",
        breaks="0.2.0",
        reason="input files are in datasets_inputfile, which 0.2.0 does not know",
        changes=frozenset({"submission_takenfile is gone"}),
    ),
)


def list_breaking_migrations(
    *, database: str, version: str, are_applied: bool = False
) -> list[ReviewedMigration]:
    """Return the migrations beside which the code of this version fails.

    They are those that the database lacks or, if `are_applied`, those that it has.
    """
    applied = MigrationRecorder(connections[database]).applied_migrations()
    breaking = []
    for migration in REVIEWED_MIGRATIONS:
        is_applied = (migration.app_label, migration.name) in applied
        if is_applied == are_applied and _breaks(migration, version):
            breaking.append(migration)
    return breaking


def _breaks(migration: ReviewedMigration, version: str) -> bool:
    if not migration.breaks:
        return False
    return _version_key(version) <= _version_key(migration.breaks)


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
