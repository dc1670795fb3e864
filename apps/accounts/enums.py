"""The roles of the portal."""

from django.db import models


class Role(models.TextChoices):
    """Role of a user for one experiment or for all."""

    LIAISON = "liaison", "Liaison"
    APPROVER = "approver", "Approver"
    SHIFTER = "shifter", "Shifter"
    ADMIN = "admin", "Admin"


class TokenScope(models.TextChoices):
    """What a token allows, at most what its user may do."""

    READ = "read", "Read only"
    WRITE = "write", "Read and change"


#: Roles of the Offline Production Group, which also see objects of no experiment.
OPG_ROLES = frozenset({Role.APPROVER, Role.SHIFTER, Role.ADMIN})
