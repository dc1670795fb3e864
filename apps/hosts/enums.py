"""How exclusions of hosts end, and the states of probe jobs."""

from django.db import models


class EndKind(models.TextChoices):
    """How an exclusion ended."""

    RETURNED = "returned", "Returned by a person"
    EXPIRED = "expired", "Expired"
    PROBED = "probed", "Returned by the portal: its probe jobs were good"
    CENTRAL = "central", "Central cause: too many hosts failed at once"


class ProbeState(models.TextChoices):
    """The state of a probe job. Results came from all its probes if it `ENDED`."""

    PLANNED = "planned", "Planned"
    SENT = "sent", "Submitted"
    ENDED = "ended", "Ended"
    LOST = "lost", "Did not report in time"
    REFUSED = "refused", "Refused by the scheduler"

    @classmethod
    def unfinished(cls) -> list[str]:
        return [cls.PLANNED.value, cls.SENT.value]

    @classmethod
    def finished(cls) -> list[str]:
        return [cls.ENDED.value, cls.LOST.value, cls.REFUSED.value]
