"""Outcomes of checks, states of runs, and effects of thresholds."""

from django.db import models


class Outcome(models.TextChoices):
    """Outcome of a check, best first."""

    PASSED = "passed", "passed"
    WARNED = "warned", "warned"
    UNKNOWN = "unknown", "unknown"
    FAILED = "failed", "failed"


class RunState(models.TextChoices):
    """State of a run of the checks."""

    WAITING = "waiting", "running"
    EVALUATED = "evaluated", "evaluated"


class Effect(models.TextChoices):
    """Effect of a failed check."""

    BLOCK = "block", "blocks the request until it passes or is waived"
    WARN = "warn", "is a warning"
    OFF = "off", "the check does not run"
    INHERIT = "inherit", "as in the next wider row"


class Unknown(models.TextChoices):
    """Effect of an unknown outcome of a check."""

    BLOCK = "block", "blocks the request until it is known or waived"
    PASS = "pass", "does not block the request"


class External(models.TextChoices):
    """Outcome reported by an external tool."""

    PASSED = "passed", "passed"
    WARNED = "warned", "warned"
    FAILED = "failed", "failed"
