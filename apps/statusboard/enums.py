"""States of services, what decides them, and the states of incidents and payloads."""

from collections.abc import Iterable

from django.db import models


class State(models.TextChoices):
    """How a service is, worst first."""

    DOWN = "down", "Down"
    DEGRADED = "degraded", "Degraded"
    MAINTENANCE = "maintenance", "Maintenance"
    UNKNOWN = "unknown", "Unknown"
    UP = "up", "Up"


#: The states of an incident.
TROUBLE = (State.DOWN, State.DEGRADED)

_SEVERITY = {state: place for place, state in enumerate(State)}


def worst(states: Iterable[str]) -> State:
    """Return the worst of several states; of none: unknown. What is unknown is worse than up, never up."""
    return State(min(states, key=lambda state: _SEVERITY[State(state)], default=State.UNKNOWN))


class Watch(models.TextChoices):
    """How it is known that a service is up."""

    FEED = "feed", "A monitoring source"
    PEOPLE = "people", "People look after it"
    NOBODY = "nobody", "Nobody watches it"


class Cause(models.TextChoices):
    """Why a service is held to be in a state."""

    INCIDENT = "incident", "incident"
    WINDOW = "window", "planned window"
    LAPSED = "lapsed", "incident not heard of any more"
    SILENCE = "silence", "monitoring is silent"
    NOBODY = "nobody", "nobody watches it"
    FEED = "feed", "monitoring reports nothing wrong"
    PEOPLE = "people", "nothing wrong reported"


class Closing(models.TextChoices):
    """How an incident came to its end."""

    RESOLVED = "resolved", "resolved by the monitoring source"
    SUPERSEDED = "superseded", "followed by a new episode of the same alert"
    HAND = "hand", "closed by hand"


class PayloadState(models.TextChoices):
    RECEIVED = "received", "Received"
    PARSED = "parsed", "Parsed"
    FAILED = "failed", "Failed"
