"""The production report of a closed request."""

from django.db import models

from apps.production.models import Request


class ProductionReport(models.Model):
    """The report as of the close of the request. Never changed: its address is the hash of its content."""

    request = models.OneToOneField(Request, on_delete=models.PROTECT, related_name="report")
    sha256 = models.CharField(max_length=64, unique=True)
    content = models.TextField(help_text="The hashed JSON.")
    frozen_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"report of {self.request}"
