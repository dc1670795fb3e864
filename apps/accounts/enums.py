"""Roles of users and scopes of tokens."""

from django.db import models


class Role(models.TextChoices):
    """The role of a user for one experiment or for all."""

    LIAISON = "liaison", "Liaison"
    APPROVER = "approver", "Approver"
    SHIFTER = "shifter", "Shifter"
    ADMIN = "admin", "Admin"


class TokenScope(models.TextChoices):
    """What a token allows, within the permissions of its user."""

    READ = "read", "Read only"
    WRITE = "write", "Read and change"


#: Roles of the Offline Production Group, which also see objects without an experiment.
OPG_ROLES = frozenset({Role.APPROVER, Role.SHIFTER, Role.ADMIN})
