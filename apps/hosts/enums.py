"""How exclusions of hosts end."""

from django.db import models


class EndKind(models.TextChoices):
    """How an exclusion ended."""

    RETURNED = "returned", "Returned by a person"
    EXPIRED = "expired", "Expired"
    CENTRAL = "central", "Central cause: too many hosts failed at once"
