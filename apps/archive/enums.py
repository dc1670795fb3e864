"""Kinds of archived content."""

from django.db import models


class BlobKind(models.TextChoices):
    SCRIPT = "script", "Script"
    ENVIRONMENT = "environment", "Environment"
    DESCRIPTION = "description", "Description"
