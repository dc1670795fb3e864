"""Kinds of archived content."""

from django.db import models


class BlobKind(models.TextChoices):
    SCRIPT = "script", "Script"
    ENVIRONMENT = "environment", "Environment"
    DESCRIPTION = "description", "Description"


class MaskedPart(models.TextChoices):
    """What a masking rule looks at; the values are those of `core.masking.Rule`."""

    NAME = "name", "Name"
    VALUE = "value", "Value"
