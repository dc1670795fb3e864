"""Groups and audiences of events."""

from enum import StrEnum

from django.db import models


class Group(models.TextChoices):
    """What an event means to a user.

    If a notification has several reasons, the first group in this order counts.
    """

    TURN = "turn", "Your turn: a request waits for you, or you are mentioned"
    OUTCOME = "outcome", "Outcome: approved, rejected, cancelled, done"
    TROUBLE = "trouble", "Trouble: on hold, a test failed, a webhook of yours fails"
    PROGRESS = "progress", "Progress: submitted, testing, running, reviewed"
    CHANGE = "change", "Changes: edited, priority"
    FAILURES = (
        "failures",
        "Failures: a new kind, a jump, one that is back, jobs to retry after an outage",
    )
    REPORTS = "reports", "Weekly reports"
    OTHER = "other", "Everything else"


class Audience(StrEnum):
    """Users whom an event concerns; the app `notifications` resolves them.

    Signers can give a missing signature, mentioned users are named in the event, the owner is that
    of a webhook or failure group, and operators are shifters and approvers of all experiments.
    """

    REQUESTER = "requester"
    LIAISONS = "liaisons"
    APPROVERS = "approvers"
    SIGNERS = "signers"
    WATCHERS = "watchers"
    MENTIONED = "mentioned"
    OWNER = "owner"
    OPERATORS = "operators"
