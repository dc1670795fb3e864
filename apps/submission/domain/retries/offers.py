"""What a user can do now about failed jobs: one dry run, for every page that offers their retry."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from django.core.cache import cache
from django.utils.functional import cached_property
from django.utils.text import Truncator

from apps.accounts.models import User
from apps.production.domain.outlook import Obstacle, Outlook, outlook
from apps.submission.domain.retries.batches import ATTEMPTS, dry_run
from apps.submission.domain.retries.eligibility import DryRun, Limits, Source
from apps.submission.domain.retries.obstacles import Needs, needs_by_job
from apps.submission.enums import ONLY_BY_OWNER, LeftOut
from apps.submission.models import RetryBatch

#: How long the numbers of an offer are shown without another dry run: one of 5,000 jobs takes half
#: a second.
SHOWN_SECONDS = 60
#: Longest title of an announcement in the text of a link.
TITLE_LENGTH = 60


@dataclass(frozen=True)
class RetryOffer:
    """The numbers of a dry run, and what keeps jobs from being submitted now.

    Of the `jobs` to retry, `as_owner` are submitted as their owners. `needs` counts them by what
    they depend on. Only their owners can submit again the jobs of the `bundle`; the page of the dry
    run lists most of them under `bundle_list`. `left_out` are the others by reason.
    """

    jobs: int
    as_owner: int
    bundle: int
    bundle_list: LeftOut
    left_out: Sequence[tuple[LeftOut, int]]
    needs: Mapping[Needs, int]
    now: Outlook | None = None

    @cached_property
    def waits_for(self) -> Obstacle | None:
        """Return what all jobs to retry wait for, or most of them; None if some can start now."""
        if self.now is None:
            return None
        waits: Counter[Obstacle] = Counter()
        for needs, jobs in self.needs.items():
            obstacle = needs.find_obstacle(self.now)
            if obstacle is None:
                return None
            waits[obstacle] += jobs
        return waits.most_common(1)[0][0] if waits else None

    @property
    def label(self) -> str:
        """Return the text of the link to the dry run."""
        plural = "" if (self.jobs or self.bundle) == 1 else "s"
        if self.waits_for:
            return f"Start {self.jobs:,} job{plural} once {_end_of(self.waits_for)}…"
        if self.jobs:
            return f"Retry {self.jobs:,} job{plural}…"
        if self.bundle:
            return f"Retry bundle of {self.bundle:,} job{plural}…"
        return "No job to retry…"


def _end_of(obstacle: Obstacle) -> str:
    """Return the clause that says when an obstacle is over."""
    if obstacle.disruption:
        return f"{obstacle.disruption.service.name} is up"
    title = obstacle.announcement.title if obstacle.announcement else ""
    return f"“{Truncator(title).chars(TITLE_LENGTH, truncate='...')}” ends"


def retry_offer(*, source: Source, user: User, at: datetime) -> RetryOffer:
    """Return what a batch with the default limits would retry, as of `SHOWN_SECONDS` ago at most.

    A batch that is planned, cancelled or ends counts at once.
    """
    newest = RetryBatch.objects.order_by("-pk").values_list("pk", "state").first()
    key = f"retry-needs:{source._meta.label_lower}:{source.pk}:{user.pk}:{newest}".replace(" ", "")

    numbers = _kept(key)
    if numbers is None:
        numbers = _numbers_of(dry_run(source=source, user=user, limits=Limits(ATTEMPTS), at=at), at)
        with suppress(Exception):  # Redis may be down: each page makes its own dry run meanwhile
            cache.set(key, numbers, SHOWN_SECONDS)
    return _with_outlook(numbers, at)


def _kept(key: str) -> RetryOffer | None:
    try:
        numbers: RetryOffer | None = cache.get(key)
    except Exception:  # Redis may be down
        return None
    return numbers


def offer_of(dry_run: DryRun, at: datetime) -> RetryOffer:
    """Return the numbers of a dry run with what keeps jobs from being submitted now."""
    return _with_outlook(_numbers_of(dry_run, at), at)


def _numbers_of(dry_run: DryRun, at: datetime) -> RetryOffer:
    return RetryOffer(
        jobs=len(dry_run.eligible),
        as_owner=sum(jobs for _, _, jobs in dry_run.owners),
        bundle=len(dry_run.only_by_owner),
        bundle_list=max(ONLY_BY_OWNER, key=lambda reason: len(dry_run.left_out.get(reason, ()))),
        left_out=dry_run.reasons,
        needs=Counter(needs_by_job(dry_run.eligible, at).values()),
    )


def _with_outlook(numbers: RetryOffer, at: datetime) -> RetryOffer:
    return replace(numbers, now=outlook(at) if numbers.jobs else None)
