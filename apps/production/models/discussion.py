"""Comments on a request or one of its fields."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from apps.production.models.requests import Request


class Comment(models.Model):
    """A comment on a request or one of its fields. The first of a thread has no `thread`."""

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="comments")
    thread = models.ForeignKey(
        "self", on_delete=models.CASCADE, null=True, blank=True, related_name="answers"
    )
    field = models.CharField(
        max_length=120, blank=True, help_text="Path, such as stages.0.jobs; empty: the request."
    )
    place = models.CharField(max_length=200, help_text="Label of the field at that time.")
    text = models.TextField(blank=True)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField()
    edited_at = models.DateTimeField(null=True, blank=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    class Meta:
        indexes = [models.Index(fields=["request", "id"]), models.Index(fields=["by", "at"])]
        constraints = [
            models.CheckConstraint(
                condition=Q(resolved_at=None, resolved_by=None)
                | Q(thread=None, resolved_at__isnull=False),
                name="comment_resolved_pair",
            ),
            models.CheckConstraint(
                condition=Q(withdrawn_at=None) ^ Q(text=""), name="comment_withdrawn_is_empty"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.request_id}: {self.place}"

    def get_absolute_url(self) -> str:
        return f"{self.request.get_absolute_url()}#comment-{self.pk}"
