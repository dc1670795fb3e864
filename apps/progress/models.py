"""The production report of a closed request."""

from django.db import models

from apps.production.models import Request


class ProductionReport(models.Model):
    """How a request ran, as it was known when it was closed. Never changed: its address is the hash of its content."""

    request = models.OneToOneField(Request, on_delete=models.PROTECT, related_name="report")
    sha256 = models.CharField(max_length=64, unique=True)
    content = models.TextField(help_text="JSON, as it was hashed.")
    frozen_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"report of {self.request}"
