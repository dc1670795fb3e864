"""Events of lines in logs."""

from apps.core.domain.event_kinds import EventKind, declare
from apps.core.enums import Audience, Group

declare(
    EventKind(
        "line.spread",
        "found {lines} new lines in logs of failed jobs at two sites",
        "is new in logs of failed jobs at two sites",
        dict.fromkeys((Audience.OPERATORS, Audience.LIAISONS), Group.FAILURES),
    ),
    EventKind(
        "line.seen",
        "found a watched line in the log of a job",
        "was written again by a job: you watch this line",
        {Audience.MENTIONED: Group.TROUBLE},
    ),
)
