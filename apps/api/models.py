"""Calls of the API that were made with a key, so that one sent twice is done once."""

from django.conf import settings
from django.db import models


class KeyedCall(models.Model):
    """A call that changed something, and what was answered; written in the transaction of the change."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    route = models.CharField(max_length=300, help_text="Method and path.")
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64, help_text="Of what was sent, which is not kept.")
    at = models.DateTimeField(db_index=True)
    status = models.PositiveSmallIntegerField()
    headers = models.JSONField(default=dict)
    body = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "route", "key"], name="keyed_call_once")]

    def __str__(self) -> str:
        return f"{self.route} of {self.user_id} with “{self.key}”"
