"""What a user can do now about failed jobs: one dry run, for every page that offers their retry."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.utils.functional import cached_property

from apps.accounts.models import User
from apps.statusboard.domain.board import Disruption, disruptions
from apps.statusboard.enums import State
from apps.submission.domain.retrying.batches import ATTEMPTS, dry_run
from apps.submission.domain.retrying.eligibility import DryRun, Limits, Source
from apps.submission.enums import ONLY_BY_OWNER, LeftOut


@dataclass(frozen=True)
class RetryOffer:
    """A dry run, and the services that are down now."""

    dry_run: DryRun
    down: Collection[Disruption]

    @property
    def jobs(self) -> int:
        """Return the number of jobs to retry."""
        return len(self.dry_run.eligible)

    @property
    def as_owner(self) -> int:
        """Return how many of them are submitted as their owners."""
        return sum(jobs for _, _, jobs in self.dry_run.owners)

    @property
    def bundle(self) -> int:
        """Return the number of jobs that only their owners can submit again."""
        return len(self.dry_run.only_by_owner)

    @property
    def bundle_list(self) -> LeftOut:
        """Return the reason under which the page of the dry run lists most of these jobs."""
        return max(ONLY_BY_OWNER, key=lambda reason: len(self.dry_run.left_out.get(reason, ())))

    @cached_property
    def waits(self) -> Counter[str]:
        """Return the number of jobs to retry by the slug of the service that is down for them."""
        slugs: dict[str, str] = {}
        for row in self.down:
            slugs.setdefault(row.service.slug, row.service.slug)
            slugs.setdefault(row.service.name.casefold(), row.service.slug)
        services = (candidate.verdict.service.casefold() for candidate in self.dry_run.eligible)
        return Counter(slugs[service] for service in services if service in slugs)

    @property
    def waits_for(self) -> Disruption | None:
        """Return the service that all jobs to retry wait for, or most of them; None if some can start now."""
        if not self.jobs or sum(self.waits.values()) < self.jobs:
            return None
        most = max(self.waits, key=self.waits.__getitem__)
        return next(row for row in self.down if row.service.slug == most)

    @property
    def label(self) -> str:
        """Return the words of the link to the dry run."""
        plural = "" if (self.jobs or self.bundle) == 1 else "s"
        if self.waits_for:
            return f"Start {self.jobs:,} job{plural} once {self.waits_for.service.name} is up…"
        if self.jobs:
            return f"Retry {self.jobs:,} job{plural}…"
        return f"Retry bundle of {self.bundle:,} job{plural}…" if self.bundle else "No job to retry…"


def retry_offer(*, source: Source, user: User, at: datetime) -> RetryOffer:
    """Return what a batch with the default limits would retry."""
    return offer_of(dry_run(source=source, user=user, limits=Limits(ATTEMPTS), at=at), at)


def offer_of(dry_run: DryRun, at: datetime) -> RetryOffer:
    """Return a dry run with the services that are down."""
    return RetryOffer(dry_run, disruptions(at, (State.DOWN,)) if dry_run.eligible else ())
