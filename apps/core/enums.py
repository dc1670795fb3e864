"""Words that every app uses of events: groups of kinds, and audiences."""

from enum import StrEnum

from django.db import models


class Group(models.TextChoices):
    """What an event is to a person. Who is notified of one for two reasons gets the first group in this order."""

    TURN = "turn", "Your turn: a request waits for you, or somebody names you"
    OUTCOME = "outcome", "Outcome: approved, rejected, cancelled, done"
    TROUBLE = "trouble", "Trouble: held, a test failed, a webhook of yours does not answer"
    PROGRESS = "progress", "Progress: submitted, testing, running, looked at"
    CHANGE = "change", "Changes: edited, priority"
    OTHER = "other", "Everything else"


class Audience(StrEnum):
    """Whom an event concerns; `notifications` finds the people.

    Most are of a request: signers can give a signature that is missing, mentioned are those whom the event names. The
    owner is that of a webhook.
    """

    REQUESTER = "requester"
    LIAISONS = "liaisons"
    APPROVERS = "approvers"
    SIGNERS = "signers"
    WATCHERS = "watchers"
    MENTIONED = "mentioned"
    OWNER = "owner"
