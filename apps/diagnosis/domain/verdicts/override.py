"""Overrides of verdicts by users."""

from datetime import datetime

from django.db import transaction

from apps.accounts.models import Principal
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, NotAllowed
from apps.diagnosis.domain.causes.totals import mark_dirty
from apps.diagnosis.domain.groups.triage import group_for
from apps.diagnosis.domain.verdicts.experience import propose_from_corrections
from apps.diagnosis.enums import ADVICE_OF, JobAdvice, VerdictKind
from apps.diagnosis.models import Verdict
from apps.diagnosis.permissions import may_correct_verdict
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.models import Job


@transaction.atomic
def override_verdict(
    *, job: Job, verdict: VerdictKind, by: Principal, at: datetime, reason: str
) -> Verdict:
    """Override the verdict on a job; later analyses of its log keep the override.

    Raises `NotAllowed`, and `InvalidFields` without a reason.
    """
    if not may_correct_verdict(by, job.experiment_id):
        raise NotAllowed("Only the OPG and liaisons of the experiment can correct a verdict.")
    if not reason.strip():
        raise InvalidFields({"reason": ["Enter a reason. The next shift will read it."]})
    old = (
        Verdict.objects.select_for_update(of=("self",))
        .select_related("group", "job")
        .filter(job=job)
        .first()
    )
    if old is None:
        raise NotAllowed("This job has no verdict yet. Wait for the log analysis to finish.")
    event_old = old.verdict
    old.verdict = verdict
    old.advice = JobAdvice.NONE if old.later_state else ADVICE_OF[verdict]
    old.overridden_by = str(by)[:150]
    old.overridden_at = at
    old.override_reason = reason.strip()
    group = old.group
    old.group = group_for(
        old, title=group.title if group else old.summary, line=group.line if group else "", at=at
    )
    old.save(
        update_fields=[
            "verdict",
            "advice",
            "group",
            "overridden_by",
            "overridden_at",
            "override_reason",
        ],
    )
    mark_dirty({hour_of(old.ended_at)})
    publish(
        kind="verdict.overridden",
        target=job,
        by=by,
        at=at,
        old=event_old,
        new=verdict,
        reason=reason.strip(),
    )
    propose_from_corrections(verdict=old, at=at)
    return old
