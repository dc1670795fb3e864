"""What a user can do now about failed jobs: one dry run, for every page that offers their retry."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from django.core.cache import cache
from django.utils.functional import cached_property

from apps.accounts.models import User
from apps.diagnosis.domain.facts import services_needed_by
from apps.statusboard.domain.board import Disruption, disruptions
from apps.statusboard.enums import State
from apps.statusboard.models import Service
from apps.submission.domain.retrying.batches import ATTEMPTS, dry_run
from apps.submission.domain.retrying.eligibility import DryRun, Limits, Source
from apps.submission.domain.retrying.owned import jobs_ignoring_advice
from apps.submission.enums import ONLY_BY_OWNER, LeftOut
from apps.submission.models import RetryBatch

#: How long the numbers of an offer are shown without another dry run: one of 5,000 jobs takes half
#: a second.
SHOWN_SECONDS = 60


@dataclass(frozen=True)
class RetryOffer:
    """The numbers of a dry run, and the services that are down now.

    Of the `jobs` to retry, `as_owner` are submitted as their owners. `services` counts them by the
    services that they wait for while one is down: the one that made them fail, and those that the
    stage of an owner's job needs. Only their owners can submit again the jobs of the `bundle`; the
    page of the dry run lists most of them under `bundle_list`. `left_out` are the others by reason.
    """

    jobs: int
    as_owner: int
    bundle: int
    bundle_list: LeftOut
    left_out: Sequence[tuple[LeftOut, int]]
    services: Mapping[frozenset[str], int]
    down: Collection[Disruption] = ()

    @cached_property
    def waits(self) -> Counter[str]:
        """Return the number of jobs to retry by the slug of the service that is down for them."""
        slugs: dict[str, str] = {}
        for row in self.down:
            slugs.setdefault(row.service.slug, row.service.slug)
            slugs.setdefault(row.service.name.casefold(), row.service.slug)
        waits: Counter[str] = Counter()
        for services, jobs in self.services.items():
            down = sorted(slugs[service] for service in services if service in slugs)
            if down:
                waits[down[0]] += jobs
        return waits

    @property
    def waits_for(self) -> Disruption | None:
        """Return the service that all jobs to retry wait for, or most of them;
        None if some can start now.
        """
        if not self.jobs or sum(self.waits.values()) < self.jobs:
            return None
        most = max(self.waits, key=self.waits.__getitem__)
        return next(row for row in self.down if row.service.slug == most)

    @property
    def label(self) -> str:
        """Return the text of the link to the dry run."""
        plural = "" if (self.jobs or self.bundle) == 1 else "s"
        if self.waits_for:
            return f"Start {self.jobs:,} job{plural} once {self.waits_for.service.name} is up…"
        if self.jobs:
            return f"Retry {self.jobs:,} job{plural}…"
        if self.bundle:
            return f"Retry bundle of {self.bundle:,} job{plural}…"
        return "No job to retry…"


def retry_offer(*, source: Source, user: User, at: datetime) -> RetryOffer:
    """Return what a batch with the default limits would retry, as of `SHOWN_SECONDS` ago at most.

    A batch that is planned, cancelled or ends counts at once.
    """
    newest = RetryBatch.objects.order_by("-pk").values_list("pk", "state").first()
    key = f"retry-offer:{source._meta.label_lower}:{source.pk}:{user.pk}:{newest}".replace(" ", "")

    numbers = _kept(key)
    if numbers is None:
        numbers = _numbers_of(dry_run(source=source, user=user, limits=Limits(ATTEMPTS), at=at), at)
        with suppress(Exception):  # Redis may be away: each page makes its own dry run meanwhile
            cache.set(key, numbers, SHOWN_SECONDS)
    return _with_services(numbers, at)


def _kept(key: str) -> RetryOffer | None:
    try:
        numbers: RetryOffer | None = cache.get(key)
    except Exception:  # Redis may be away
        return None
    return numbers


def offer_of(dry_run: DryRun, at: datetime) -> RetryOffer:
    """Return the numbers of a dry run with the services that are down."""
    return _with_services(_numbers_of(dry_run, at), at)


def _numbers_of(dry_run: DryRun, at: datetime) -> RetryOffer:
    return RetryOffer(
        jobs=len(dry_run.eligible),
        as_owner=sum(jobs for _, _, jobs in dry_run.owners),
        bundle=len(dry_run.only_by_owner),
        bundle_list=max(ONLY_BY_OWNER, key=lambda reason: len(dry_run.left_out.get(reason, ()))),
        left_out=dry_run.reasons,
        services=_count_services(dry_run, at),
    )


def _count_services(dry_run: DryRun, at: datetime) -> Counter[frozenset[str]]:
    """Count the jobs to retry by the slugs, or names without case,
    of the services that they wait for.
    """
    owned = [
        candidate.verdict.job for candidate in dry_run.eligible if candidate.submission is None
    ]
    ignoring = jobs_ignoring_advice(owned, at)
    needed = services_needed_by([job for job in owned if job.pk not in ignoring])
    slugs = dict(
        Service.objects.filter(pk__in=set().union(*needed.values())).values_list("pk", "slug")
    )

    services: Counter[frozenset[str]] = Counter()
    for candidate in dry_run.eligible:
        names = {candidate.verdict.service.casefold()}
        names |= {slugs[pk] for pk in needed.get(candidate.verdict.job_id, ())}
        services[frozenset(names)] += 1
    return services


def _with_services(numbers: RetryOffer, at: datetime) -> RetryOffer:
    return replace(numbers, down=disruptions(at, (State.DOWN,)) if numbers.jobs else ())
