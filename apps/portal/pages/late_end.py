"""What sets the end of a late request in production, and what is left to do."""

from collections.abc import Sequence
from dataclasses import replace

from apps.portal.pages.request_ends import EndingChange
from apps.production.domain.forecast import last_stage
from apps.production.domain.requests.status import Status
from apps.production.enums import RequestState
from apps.production.models import Request
from apps.progress.domain.expected_end import is_done
from apps.progress.domain.progress import RequestNow, StageNow


def stage_that_ends_last(progress: RequestNow) -> StageNow | None:
    """Return the stage that sets the end of a request; None if all its stages are done.

    A stage without a known end comes first, because it leaves the end of the request unknown.
    """
    stages = {}
    for stage in progress.stages:
        if not stage.row.requested_stage or is_done(stage.row, stage.acceptance):
            continue
        if stage.expected.at is None:
            return stage
        stages[stage.row.stage] = stage
    last = last_stage({name: stage.expected for name, stage in stages.items()})
    return stages.get(last)


def status_of_late(
    status: Status,
    request: Request,
    progress: RequestNow | None,
    changes: Sequence[EndingChange],
) -> Status:
    """Return the status of a late request that runs: what sets its end, and what would help.

    Others keep theirs.
    """
    if not status.is_late or request.state != RequestState.RUNNING or progress is None:
        return status
    stage = stage_that_ends_last(progress)
    if stage is None:
        return status
    if stage.expected.at is None:
        sentences = [f"{stage.row.stage} sets its end, which is unknown: {stage.expected.basis}."]
    else:
        sentences = [f"{stage.row.stage} ends last: {stage.expected.basis}."]
    failed = stage.failed_now
    if failed:
        jobs = f"{failed:,} failed job{'s are' if failed != 1 else ' is'}"
        sentences.append(f"Its {jobs} not queued again: retry or continue without them.")
    if changes:
        sentences.append(
            "Below is what else would help." if failed else "Below is what would help."
        )
    elif not failed:
        liaisons = f"liaisons of {request.experiment}"
        sentences.append(f"Nothing holds its jobs, but {liaisons} can postpone its deadline.")
    return replace(status, next_step=" ".join(sentences))
