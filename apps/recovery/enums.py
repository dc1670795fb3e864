"""Modes and actions of recovery rules, and what was decided about failed jobs."""

from django.db import models


class Mode(models.TextChoices):
    """What a rule does with the jobs that it matches."""

    OFF = "off", "Off"
    PASSIVE = "passive", "Passive"
    ACTIVE = "active", "Active"


class ActionKind(models.TextChoices):
    """What a rule changes about the next attempt."""

    RETRY = "retry", "Retry unchanged"
    MORE_MEMORY = "more-memory", "Retry with more memory"
    MORE_TIME = "more-time", "Retry with more wall time"
    AVOID_HOST = "avoid-host", "Retry on another host"
    OTHER_CLUSTER = "other-cluster", "Retry on another cluster"
    AVOID_SITE = "avoid-site", "Retry at another site"
    HALF_EVENTS = "half-events", "Retry with half the events"
    HOLD = "hold", "Hold the stage and ask"
    NOTHING = "nothing", "Leave to a person"


class Arm(models.TextChoices):
    """What was decided about a failed job."""

    PENDING = "pending", "Not decided yet"
    ACTED = "acted", "Retry by the rule"
    CONTROL = "control", "Control group: unchanged retry"
    ACTED_AGAIN = "acted-again", "Another retry by the rule"
    AFTER_CONTROL = "after-control", "Retry by the rule after an unchanged retry"
    PASSIVE = "passive", "Would have acted"
    QUESTION = "question", "Needs a person: beyond a bound"
    BUDGET = "budget", "Needs a person: over budget"
    PERSON = "person", "Left to a person"
    OWNER = "owner", "The portal cannot retry it"
    NO_RULE = "no-rule", "No rule matches"
    HANDLED = "handled", "Already retried"


class RecoveryOutcome(models.TextChoices):
    """How the job ended after the decision."""

    WAITING = "waiting", "Not known yet"
    COMPLETED = "completed", "Completed"
    FAILED = "failed", "Failed again"
    NOT_RETRIED = "not-retried", "Not retried"


class Recovery(models.TextChoices):
    """How a job that failed at its first attempt was recovered, if it was."""

    WAITING = "waiting", "Not known yet"
    BY_RULE = "by-rule", "Completed without a person"
    BY_PERSON = "by-person", "Completed after a person retried it"
    NOT_RECOVERED = "not-recovered", "Did not complete"


#: Arms whose jobs the rule retries, with its action or without.
RETRIED_ARMS = (Arm.ACTED, Arm.ACTED_AGAIN, Arm.CONTROL, Arm.AFTER_CONTROL)
#: Arms whose retries get the action of the rule and are taken off its budget.
ACTED_ARMS = (Arm.ACTED, Arm.ACTED_AGAIN, Arm.AFTER_CONTROL)
