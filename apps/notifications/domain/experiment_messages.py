"""Messages from the OPG to the liaisons of an experiment, about a failed job, group or incident."""

from collections.abc import Mapping
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from apps.accounts.enums import Role
from apps.accounts.models import Experiment, User
from apps.accounts.permissions import is_opg
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, NotAllowed
from apps.core.models import Event
from apps.diagnosis.models import FailureGroup
from apps.jobs.models import Job
from apps.statusboard.models import Incident

#: What a message is about; its activity records the message.
Subject = Job | FailureGroup | Incident


def liaisons_of(experiment: Experiment) -> QuerySet[User]:
    """Return the liaisons of an experiment, who receive its messages."""
    users = User.objects.filter(
        is_active=True, memberships__role=Role.LIAISON, memberships__experiment=experiment
    )
    return users.distinct().order_by("username")


@transaction.atomic
def notify_experiments(
    *, subject: Subject, texts: Mapping[Experiment, str], by: User, at: datetime
) -> None:
    """Send each of these experiments its own text: to all of them, or with a fault to none.

    Raises the errors of `notify_experiment`.
    """
    for experiment, text in texts.items():
        notify_experiment(subject=subject, experiment=experiment, text=text, by=by, at=at)


@transaction.atomic
def notify_experiment(
    *, subject: Subject, experiment: Experiment, text: str, by: User, at: datetime
) -> Event:
    """Send a message to the liaisons of an experiment, as their notification settings say.

    Raises `NotAllowed`, and `InvalidFields` for an empty message or without liaisons.
    """
    if not is_opg(by):
        raise NotAllowed("Only the OPG can notify an experiment.")
    if not text.strip():
        raise InvalidFields({"text": ["Enter a message."]})
    usernames = list(liaisons_of(experiment).values_list("username", flat=True))
    if not usernames:
        raise InvalidFields({"experiment": [f"{experiment.name} has no liaison to notify."]})
    return publish(
        kind="experiment.notified",
        target=subject,
        by=by,
        at=at,
        reason=text.strip(),
        data={"experiment": experiment.name, "mentioned": usernames},
    )
