"""Retries that a higher app plans automatically; PLANNED_RETRIES names that app."""

from collections.abc import Collection, Iterable
from typing import Protocol

from django.conf import settings

from apps.core.domain.plugins import Registry
from apps.submission.domain.retries.eligibility import DryRun, RetryCandidate
from apps.submission.enums import LeftOut


class PlansRetries(Protocol):
    """A plugin that returns which failed jobs it will retry without a person."""

    def __call__(self, job_pks: Collection[int]) -> Collection[int]: ...


PLANNERS: Registry[PlansRetries] = Registry("opsportal.planned_retries", settings.PLANNED_RETRIES)


def planned_among(job_pks: Iterable[int]) -> set[int]:
    """Return the primary keys of the jobs that are retried without a person."""
    job_pks = list(job_pks)
    planned: set[int] = set()
    if job_pks:
        for planner in PLANNERS.working().values():
            planned.update(planner(job_pks))
    return planned


def leave_out_planned(dry_run: DryRun) -> None:
    """Move the jobs that are retried without a person from those to retry to those left out."""
    planned = planned_among(candidate.verdict.job_id for candidate in dry_run.eligible)
    eligible: list[RetryCandidate] = []
    for candidate in dry_run.eligible:
        if candidate.verdict.job_id in planned:
            dry_run.left_out[LeftOut.BY_RULE].append(candidate.verdict)
        else:
            eligible.append(candidate)
    dry_run.eligible = eligible
