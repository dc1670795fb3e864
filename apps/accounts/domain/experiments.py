"""Experiments, and which of them a user may see."""

from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from apps.accounts.models import Experiment, Principal
from apps.accounts.permissions import scope_of
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields


@transaction.atomic
def ensure_experiment(*, key: str, name: str, by: Principal, at: datetime) -> Experiment:
    """Return the experiment with this case-insensitive key, creating it if missing."""
    experiment, created = Experiment.objects.get_or_create(
        key__iexact=key, defaults={"key": key, "name": name}
    )
    if created:
        publish(kind="experiment.created", target=experiment, by=by, at=at)
    return experiment


@transaction.atomic
def save_experiment(*, experiment: Experiment, by: Principal, at: datetime) -> None:
    """Store a new or changed experiment.

    Raises `InvalidFields` if its key is taken.
    """
    created = experiment.pk is None
    try:
        with transaction.atomic():
            experiment.save()
    except IntegrityError as error:
        raise InvalidFields({"key": ["An experiment has this key already."]}) from error
    publish(
        kind="experiment.created" if created else "experiment.changed",
        target=experiment,
        by=by,
        at=at,
    )


def visible_experiments(user: Principal | None) -> QuerySet[Experiment]:
    """Return the experiments whose names this user may see.

    These are the experiments in which the user has a role; all for the OPG.
    """
    scope = scope_of(user)
    if scope.sees_all:
        return Experiment.objects.all()
    return Experiment.objects.filter(pk__in=scope.experiment_keys)
