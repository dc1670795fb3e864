"""What a check finds, how far a run is, and what a threshold does."""

from django.db import models


class Outcome(models.TextChoices):
    """What a check says of one thing, best first."""

    PASSED = "passed", "passed"
    WARNED = "warned", "warned"
    UNKNOWN = "unknown", "not known"
    FAILED = "failed", "failed"


class RunState(models.TextChoices):
    """How far a run of the checks is."""

    WAITING = "waiting", "running"
    JUDGED = "judged", "judged"


class Effect(models.TextChoices):
    """What comes of a check that has failed."""

    BLOCK = "block", "the request is not done until it passes or is waived"
    WARN = "warn", "it is a warning"
    OFF = "off", "it is not asked"
    INHERIT = "inherit", "as the next wider row says"


class Unknown(models.TextChoices):
    """What comes of a check that cannot tell."""

    BLOCK = "block", "the request is not done until it can, or is waived"
    PASS = "pass", "nothing: the page says that it is not known"


class External(models.TextChoices):
    """What a tool outside may say."""

    PASSED = "passed", "passed"
    WARNED = "warned", "warned"
    FAILED = "failed", "failed"
