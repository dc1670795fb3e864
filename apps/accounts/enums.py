"""The roles of the portal."""

from django.db import models


class Role(models.TextChoices):
    """What somebody is for an experiment, or for all of them."""

    LIAISON = "liaison", "Liaison"
    APPROVER = "approver", "Approver"
    SHIFTER = "shifter", "Shifter"
    ADMIN = "admin", "Admin"


#: Roles of the Offline Production Group: they see what belongs to no experiment as well.
OPG_ROLES = frozenset({Role.APPROVER, Role.SHIFTER, Role.ADMIN})
