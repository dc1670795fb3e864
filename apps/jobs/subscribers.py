"""Subscribers of the app to events."""

from apps.accounts.models import Experiment
from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event
from apps.jobs.domain.collection.origin import claim_jobs


@subscribe("jobs.claim_jobs", "account.mapped", "experiment.created", "experiment.changed")
def on_experiment_known_by_more(event: Event) -> None:
    """Assign existing jobs to the experiment, in the background because there may be many."""
    experiment = Experiment.objects.filter(pk=event.target_id).first()
    if experiment is not None:
        claim_jobs(experiment=experiment, at=event.at)
