"""Calls made with an `Idempotency-Key`."""

from django.conf import settings
from django.db import models


class KeyedCall(models.Model):
    """A call that changed something and its response, written in the transaction of the change."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    route = models.CharField(max_length=300, help_text="Method and path.")
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(
        max_length=64, help_text="Digest of the call; its body is not stored."
    )
    at = models.DateTimeField(db_index=True)
    roles = models.JSONField(default=list, help_text="Roles of the user at that time.")
    status = models.PositiveSmallIntegerField()
    headers = models.JSONField(default=dict)
    body = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "route", "key"], name="keyed_call_once")
        ]

    def __str__(self) -> str:
        return f"{self.route} of {self.user_id} with “{self.key}”"
