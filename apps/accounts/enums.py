"""Roles of users and scopes of tokens."""

from django.db import models


class Role(models.TextChoices):
    """The role of a user for one experiment or for all."""

    LIAISON = "liaison", "Liaison"
    APPROVER = "approver", "Approver"
    SHIFTER = "shifter", "Shifter"
    ADMIN = "admin", "Admin"


class SignIn(models.TextChoices):
    """How a new user signs in for the first time."""

    LINK = "link", "With a link to choose a password, sent by e-mail"
    SINGLE_SIGN_ON = "single-sign-on", "By single sign-on"
    PASSWORD = "password", "With a password that I set now and pass on"


class TokenScope(models.TextChoices):
    """What a token allows, within the permissions of its user."""

    READ = "read", "Read only"
    WRITE = "write", "Read and change"


#: Roles of the Offline Production Group, which also see objects without an experiment.
OPG_ROLES = frozenset({Role.APPROVER, Role.SHIFTER, Role.ADMIN})
