"""What a user can do now about failed jobs: one dry run, for every page that offers their retry."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.utils.functional import cached_property
from django.utils.text import Truncator, capfirst

from apps.accounts.models import User
from apps.accounts.permissions import has_login, operates_any
from apps.core.domain.quantities import count_noun
from apps.core.short_cache import cached_for
from apps.diagnosis.enums import FollowUp, VerdictKind
from apps.diagnosis.models import Verdict
from apps.production.domain.outlook import Obstacle, Outlook, read_outlook
from apps.submission.domain.retries.batches import ATTEMPTS, dry_run
from apps.submission.domain.retries.eligibility import DryRun, RetryLimits, Source
from apps.submission.domain.retries.follow_ups import FOLLOW_UP_OF
from apps.submission.domain.retries.obstacles import Needs, needs_by_job
from apps.submission.enums import ALREADY_RETRIED, ONLY_BY_OWNER, LeftOut
from apps.submission.models import RetryBatch

#: How long the numbers of an offer are shown without another dry run: one of 5,000 jobs takes half
#: a second.
SHOWN_SECONDS = 60
#: Longest title of an announcement in the text of a link.
TITLE_LENGTH = 60
#: Jobs that only their owners can submit again, with a bundle or without.
_BY_OWNERS = (*ONLY_BY_OWNER, LeftOut.NO_SCRIPT)
#: Jobs that are left out because they succeeded, or are retried already.
_TAKEN_CARE_OF = (*ALREADY_RETRIED, LeftOut.BY_RULE)
#: What follows jobs that others than this user retry.
_RETRIED_BY_OTHERS = (FollowUp.IN_BATCH, FollowUp.RETRYING, FollowUp.BY_RULE)


@dataclass(frozen=True)
class RetryOffer:
    """The numbers of a dry run, and what keeps jobs from being submitted now.

    Of the `jobs` to retry, `as_owner` are submitted as their owners. `needs` counts them by what
    they depend on. Only their owners can submit again the jobs of the `bundle`; the page of the dry
    run lists most of them under `bundle_list`. `left_out` are the others by reason. For a
    `code_problem`, which all jobs to retry have, a retry is no remedy.

    A user who operates no production, such as a liaison, `may_retry` nothing: the bundle has only
    own jobs. Of the others, `planned` ones are retried by recovery rules.
    """

    jobs: int
    as_owner: int
    bundle: int
    bundle_list: LeftOut
    left_out: Sequence[tuple[LeftOut, int]]
    needs: Mapping[Needs, int]
    code_problem: bool = False
    outlook: Outlook | None = None
    may_retry: bool = True
    planned: int = 0

    @cached_property
    def waits_for(self) -> Obstacle | None:
        """Return what all jobs to retry wait for, or most of them; None if some can start now."""
        if self.outlook is None:
            return None
        waits: Counter[Obstacle] = Counter()
        for needs, jobs in self.needs.items():
            obstacle = needs.find_obstacle(self.outlook)
            if obstacle is None:
                return None
            waits[obstacle] += jobs
        return waits.most_common(1)[0][0] if waits else None

    @property
    def taken_care_of(self) -> list[tuple[LeftOut, int]]:
        """Return by reason how many of the failed jobs succeeded since or are retried."""
        return [(reason, jobs) for reason, jobs in self.left_out if reason in _TAKEN_CARE_OF]

    @property
    def left_open(self) -> list[tuple[LeftOut, int]]:
        """Return by reason how many of the open jobs cannot be retried."""
        return [(reason, jobs) for reason, jobs in self.left_out if reason not in _TAKEN_CARE_OF]

    @cached_property
    def open(self) -> int:
        """Return how many of the failed jobs did not succeed since and are not retried."""
        return self.jobs + sum(jobs for _, jobs in self.left_open)

    @property
    def failed(self) -> int:
        """Return the number of all failed jobs, those that succeeded since included."""
        return self.jobs + sum(jobs for _, jobs in self.left_out)

    @property
    def by_rules(self) -> int:
        """Return how many jobs that a person could retry are left to recovery rules."""
        return sum(jobs for reason, jobs in self.left_out if reason is LeftOut.BY_RULE)

    @property
    def is_left_to_rules(self) -> bool:
        """Return whether recovery rules will retry all jobs that a person could."""
        return self.by_rules > 0 and not self.jobs

    @property
    def query(self) -> str:
        """Return the query of the dry run that the label promises."""
        return "?with_planned=on" if self.is_left_to_rules else ""

    @property
    def is_left_to_owners(self) -> bool:
        """Return whether the portal has no script of any open job: only owners can resubmit."""
        reasons = {reason for reason, _ in self.left_open}
        return not self.jobs and not self.by_rules and reasons == {LeftOut.NO_SCRIPT}

    @property
    def who_retries(self) -> str:
        """Return a sentence that divides all failed jobs by who retries them.

        Empty if none of them is retried yet.
        """
        follow_ups = self.follow_ups
        by_opg = self._by_opg
        by_others = dict(self.left_out).get(LeftOut.FORBIDDEN, 0)
        follow_ups[FollowUp.BY_RULE] += by_others - by_opg
        follow_ups[FollowUp.OPEN] -= by_others
        if not any(follow_ups[follow_up] for follow_up in _RETRIED_BY_OTHERS):
            return ""
        parts = []
        for follow_up in FollowUp:
            if follow_up is FollowUp.OPEN and by_opg:
                parts.append(f"{by_opg:,} for approvers and shifters to decide")
            if jobs := follow_ups[follow_up]:
                parts.append(f"{jobs:,} {follow_up.label}")
        if len(parts) == 1 and self.failed > 1:
            return f"All {parts[0]}."
        return f"{', '.join(parts)}."

    @property
    def follow_ups(self) -> Counter[FollowUp]:
        """Return how many of the failed jobs have which follow-up; each has exactly one."""
        counts = Counter({FollowUp.OPEN: self.jobs})
        for reason, jobs in self.left_out:
            counts[FOLLOW_UP_OF.get(reason, FollowUp.OPEN)] += jobs
        return counts

    @property
    def label(self) -> str:
        """Return the text of the link to the dry run; empty if no job can be retried."""
        if self.is_left_to_rules:
            return f"Retry {count_noun(self.by_rules, 'job')} yourself…"
        if self.jobs and self.code_problem:
            return f"Retry {self._count_of_open(self.jobs)} anyway…"
        if self.waits_for:
            return f"Start {self._count_of_open(self.jobs)} once {_end_clause(self.waits_for)}…"
        if self.jobs:
            return f"Retry {self._count_of_open(self.jobs)}…"
        if self.bundle:
            return self.bundle_label
        return ""

    @property
    def bundle_label(self) -> str:
        """Return the text of the link to the bundle."""
        return f"Retry bundle of {self._count_of_open(self.bundle)}…"

    @property
    def short_label(self) -> str:
        """Return the text of a link beside the number of jobs; empty if none can be retried."""
        if self.jobs:
            return f"Retry {self._of_open(self.jobs)}…"
        return "Retry bundle…" if self.bundle else ""

    def _count_of_open(self, jobs: int) -> str:
        plural = "" if self.open == 1 else "s"
        return f"{self._of_open(jobs)} job{plural}"

    def _of_open(self, jobs: int) -> str:
        return f"{jobs:,}" if jobs == self.open else f"{jobs:,} of {self.open:,}"

    @property
    def why_none(self) -> str:
        """Return a sentence that says why no job can be retried; empty if one can."""
        if self.jobs or self.bundle or self.is_left_to_rules:
            return ""
        if not self.may_retry and (self._who_decides or self.planned):
            # What rules will retry is said beside.
            return self._who_decides
        reasons = [reason for reason, _ in self.left_out]
        is_one_job = [jobs for _, jobs in self.left_out] == [1]
        if reasons == [LeftOut.NO_SCRIPT]:
            jobs = "this job" if is_one_job else "these jobs"
            return f"No script of {jobs} was captured."
        if is_one_job:
            return f"{capfirst(reasons[0].label)}."
        counts = [f"{jobs:,} {reason.label}" for reason, jobs in self.left_out]
        return f"No job to retry: {', '.join(counts)}." if counts else ""

    @property
    def _by_opg(self) -> int:
        """Return how many jobs neither this user nor a rule will retry, but someone else may."""
        forbidden = dict(self.left_out).get(LeftOut.FORBIDDEN, 0)
        if not self.may_retry:
            forbidden -= self.planned
        return max(0, forbidden)

    @property
    def _who_decides(self) -> str:
        """Return a sentence for a user who may not retry the open jobs: who decides about them."""
        left_out = dict(self.left_out)
        by_opg = self._by_opg
        by_owners = sum(left_out.get(reason, 0) for reason in _BY_OWNERS)
        if self.failed == 1:
            if by_owners:
                return "Only its owner can submit it again."
            return "Approvers and shifters decide whether to retry it." if by_opg else ""
        parts = []
        if by_opg:
            jobs = count_noun(by_opg, "job")
            parts.append(f"approvers and shifters decide whether to retry {jobs}")
        if by_owners:
            parts.append(f"only their owners can submit {by_owners:,} again")
        return f"{capfirst('; '.join(parts))}." if parts else ""


def _end_clause(obstacle: Obstacle) -> str:
    """Return the clause that says when an obstacle is over."""
    if obstacle.disruption:
        return f"{obstacle.disruption.service.name} is up"
    title = obstacle.announcement.title if obstacle.announcement else ""
    return f"“{Truncator(title).chars(TITLE_LENGTH, truncate='...')}” ends"


def retry_offer(*, source: Source, user: User, at: datetime, planned: int = 0) -> RetryOffer:
    """Return what a batch with the default limits would retry, as of `SHOWN_SECONDS` ago at most.

    A batch that is planned, cancelled or ends counts at once. So does another number of `planned`
    retries, which the caller knows from the recovery rules.
    """
    newest = RetryBatch.objects.order_by("-pk").values_list("pk", "state").first()
    key = f"retry-offer:{source._meta.label_lower}:{source.pk}:{user.pk}:{planned}:{newest}"
    key = key.replace(" ", "")

    def make() -> RetryOffer:
        jobs = dry_run(source=source, user=user, limits=RetryLimits(ATTEMPTS), at=at)
        return replace(_offer_numbers(jobs, user, at), planned=planned)

    return _with_outlook(cached_for(SHOWN_SECONDS, key, make), at)


def offer_from(dry_run: DryRun, user: User, at: datetime) -> RetryOffer:
    """Return the numbers of a dry run with what keeps jobs from being submitted now."""
    return _with_outlook(_offer_numbers(dry_run, user, at), at)


def bundled_jobs(dry_run: DryRun, user: User) -> list[Verdict]:
    """Return the jobs of the bundle: all that only their owners can submit again, or own ones.

    Who operates production hands the bundle on to the owners.
    """
    if operates_any(user):
        return dry_run.only_by_owner
    own = []
    for verdict in dry_run.only_by_owner:
        if has_login(user, verdict.job.user, verdict.job.cluster.name):
            own.append(verdict)
    return own


def _offer_numbers(dry_run: DryRun, user: User, at: datetime) -> RetryOffer:
    verdicts = {candidate.verdict.verdict for candidate in dry_run.eligible}
    return RetryOffer(
        jobs=len(dry_run.eligible),
        as_owner=sum(jobs for _, _, jobs in dry_run.owners),
        bundle=len(bundled_jobs(dry_run, user)),
        bundle_list=max(ONLY_BY_OWNER, key=lambda reason: len(dry_run.left_out.get(reason, ()))),
        left_out=dry_run.reasons,
        needs=Counter(needs_by_job(dry_run.eligible, at).values()),
        code_problem=verdicts == {VerdictKind.CODE},
        may_retry=operates_any(user),
    )


def _with_outlook(numbers: RetryOffer, at: datetime) -> RetryOffer:
    return replace(numbers, outlook=read_outlook(at) if numbers.jobs else None)
