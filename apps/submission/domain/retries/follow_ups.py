"""What follows failed jobs: who retries them, or why nobody does."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime

from apps.accounts.models import User
from apps.core.short_cache import cached_for
from apps.diagnosis.enums import FollowUp
from apps.diagnosis.models import Verdict
from apps.submission.domain.retries.batches import ATTEMPTS
from apps.submission.domain.retries.eligibility import RetryLimits, examine
from apps.submission.domain.retries.planned import planned_among
from apps.submission.enums import ONLY_BY_OWNER, LeftOut
from apps.submission.models import RetryBatch

#: How long the result is kept: to examine 5,000 jobs takes 0.4 s.
KEPT_SECONDS = 60
#: By why a job is not retried now. For the other reasons, a person can change that.
FOLLOW_UP_OF: Mapping[LeftOut, FollowUp] = {
    LeftOut.SUCCEEDED: FollowUp.SUCCEEDED,
    LeftOut.RETRIED: FollowUp.FAILED_AGAIN,
    LeftOut.IN_FLIGHT: FollowUp.RETRYING,
    LeftOut.IN_BATCH: FollowUp.IN_BATCH,
    LeftOut.BY_RULE: FollowUp.BY_RULE,
    **dict.fromkeys((*ONLY_BY_OWNER, LeftOut.NO_SCRIPT), FollowUp.BY_OWNER),
    LeftOut.UNSETTLED: FollowUp.IMPOSSIBLE,
    LeftOut.TEST: FollowUp.IMPOSSIBLE,
    LeftOut.DEBUG: FollowUp.IMPOSSIBLE,
    LeftOut.NOT_RUNNING: FollowUp.IMPOSSIBLE,
    LeftOut.ACCEPTED: FollowUp.IMPOSSIBLE,
    LeftOut.GIVEN_UP: FollowUp.IMPOSSIBLE,
    LeftOut.CLUSTER: FollowUp.IMPOSSIBLE,
}


def follow_ups_of(
    verdict_pks: Sequence[int], *, user: User, at: datetime
) -> Mapping[int, FollowUp]:
    """Return what follows each failed job, by primary key of its verdict: see `KnowsFollowUps`.

    Retries by rules are as of now, the others as of `KEPT_SECONDS` ago at most; a batch that is
    planned, cancelled or ends counts at once.
    """
    newest = RetryBatch.objects.order_by("-pk").values_list("pk", "state").first()
    parts = f"{user.pk} {newest} {sorted(verdict_pks)}"
    key = f"follow-ups:{hashlib.sha256(parts.encode()).hexdigest()}"

    follow_ups = cached_for(KEPT_SECONDS, key, lambda: _examine(verdict_pks, user, at))

    # A rule may also retry what this user may not.
    may_be_planned = [pk for pk, follow_up in follow_ups.items() if follow_up is FollowUp.OPEN]
    job_of_verdict = dict(Verdict.objects.filter(pk__in=may_be_planned).values_list("pk", "job_id"))
    planned = planned_among(job_of_verdict.values())
    for pk, job_pk in job_of_verdict.items():
        if job_pk in planned:
            follow_ups[pk] = FollowUp.BY_RULE
    return follow_ups


def _examine(verdict_pks: Sequence[int], user: User, at: datetime) -> dict[int, FollowUp]:
    # Only what `examine` reads: to make 5,000 objects with all columns takes most of the time.
    verdicts = (
        Verdict.objects.filter(pk__in=verdict_pks)
        .only("job", "experiment", "ended_at", "later_state")
        .select_related("job")
        .prefetch_related("job__cluster")
    )
    newest_first = list(verdicts.order_by("-ended_at", "-pk"))
    dry_run = examine(newest_first, limits=RetryLimits(ATTEMPTS), user=user, at=at)
    follow_ups = {}
    for candidate in dry_run.eligible:
        follow_ups[candidate.verdict.pk] = FollowUp.OPEN
    for reason, left_out in dry_run.left_out.items():
        for verdict in left_out:
            follow_ups[verdict.pk] = FOLLOW_UP_OF.get(reason, FollowUp.OPEN)
    return follow_ups
