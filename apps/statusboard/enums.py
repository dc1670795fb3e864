"""States of services, incidents and payloads. `docs/glossary.md` lists the values and labels."""

from collections.abc import Iterable

from django.db import models


class State(models.TextChoices):
    """The state of a service, worst first."""

    DOWN = "down", "Down"
    DEGRADED = "degraded", "Degraded"
    MAINTENANCE = "maintenance", "Maintenance"
    UNKNOWN = "unknown", "Unknown"
    UP = "up", "Up"


#: States that a service can have in an incident.
INCIDENT_STATES = (State.DOWN, State.DEGRADED)

_SEVERITY = {state: place for place, state in enumerate(State)}


def severity_of(state: str) -> int:
    """Return the place of a state, the worst first, to sort by."""
    return _SEVERITY[State(state)]


def worst(states: Iterable[str]) -> State:
    """Return the worst of several states; `UNKNOWN` for none. Unknown is worse than up."""
    return State(min(states, key=severity_of, default=State.UNKNOWN))


class Monitoring(models.TextChoices):
    """How a service is monitored."""

    FEED = "feed", "Monitoring feed"
    MANUAL = "manual", "Manual updates"
    NONE = "none", "Not monitored"


class Cause(models.TextChoices):
    """The cause of a service's state."""

    INCIDENT = "incident", "Incident"
    WINDOW = "window", "Maintenance window"
    STALE = "stale", "Stale incident"
    NO_DATA = "no_data", "No data from monitoring"
    NOT_MONITORED = "not_monitored", "Not monitored"
    FEED = "feed", "No active alerts"
    MANUAL = "manual", "No incident reported"


class Resolution(models.TextChoices):
    """How an incident was closed."""

    RESOLVED = "resolved", "Resolved by monitoring"
    SUPERSEDED = "superseded", "Superseded by a new alert"
    MANUAL = "manual", "Closed manually"
    MISSING = "missing", "No longer reported"


class WindowEffect(models.TextChoices):
    """The effect of planned work on a service. Work at risk is announced, but is no maintenance."""

    DOWN = "down", "Down"
    DEGRADED = "degraded", "Degraded"
    AT_RISK = "at_risk", "At risk"


class Repeat(models.TextChoices):
    """How often planned work takes place."""

    DAILY = "daily", "Every day"
    WEEKLY = "weekly", "Every week"
    FORTNIGHTLY = "fortnightly", "Every two weeks"
    MONTHLY = "monthly", "Every month, on the same weekday"


class NoteKind(models.TextChoices):
    """The kind of a note on an incident."""

    UPDATE = "update", "Update"
    LOG = "log", "Service log"


class Meeting(models.TextChoices):
    """How a job overlaps an outage. A job that only touches an outage was not exposed to it."""

    CONTAINED = "contained", "Within the outage"
    CONTAINING = "containing", "Around the outage"
    PARTIAL = "partial", "Across its start or end"
    TOUCHING = "touching", "Touching only"


class PayloadState(models.TextChoices):
    """The processing state of a payload from a monitoring source."""

    RECEIVED = "received", "Received"
    PARSED = "parsed", "Parsed"
    FAILED = "failed", "Failed"
