"""Event handlers of the search."""

from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event
from apps.jobs.enums import Proof
from apps.jobs.models import Job
from apps.production.models import Request
from apps.search.domain.templates import follow_experiments


@subscribe("search.follow_experiments", "jobs.claimed")
def on_jobs_claimed(event: Event) -> None:
    follow_experiments(Job.objects.filter(experiment=int(event.target_id)), at=event.at)


@subscribe("search.follow_claims", "claims.accepted", "claims.withdrawn")
def on_claims_decided(event: Event) -> None:
    request = Request.objects.filter(pk=event.target_id).first()
    if request is not None:
        claimed = Job.objects.filter(
            claimed_key=request.key, proof__in=[Proof.CLAIMED, Proof.ACCEPTED]
        )
        follow_experiments(claimed, at=event.at)
