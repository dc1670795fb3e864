"""The roles of the portal."""

from django.db import models


class Role(models.TextChoices):
    """Role of a user for one experiment or for all."""

    LIAISON = "liaison", "Liaison"
    APPROVER = "approver", "Approver"
    SHIFTER = "shifter", "Shifter"
    ADMIN = "admin", "Admin"


#: Roles of the Offline Production Group, which also see objects of no experiment.
OPG_ROLES = frozenset({Role.APPROVER, Role.SHIFTER, Role.ADMIN})
