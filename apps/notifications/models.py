"""Notifications, preferences, rules and webhooks of users, and mails and calls to deliver."""

from urllib.parse import urlsplit

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse
from django.utils.crypto import salted_hmac

from apps.core.domain.secrets.signing_keys import find_key, key_id, signing_keys
from apps.core.enums import Group
from apps.core.models import Event, Work
from apps.notifications.enums import Channel, Level, MessageState, When

_USER = settings.AUTH_USER_MODEL


class Preferences(models.Model):
    """Quiet hours, digest hour and feed URL of a user."""

    user = models.OneToOneField(
        _USER, on_delete=models.CASCADE, related_name="notification_preferences"
    )
    digest_hour = models.PositiveSmallIntegerField(default=8)
    quiet_from = models.TimeField(null=True, blank=True)
    quiet_until = models.TimeField(null=True, blank=True)
    feed_name = models.CharField(max_length=32, null=True, blank=True, unique=True)

    class Meta:
        verbose_name_plural = "preferences"
        constraints = [
            models.CheckConstraint(condition=Q(digest_hour__lt=24), name="preferences_digest_hour")
        ]

    def __str__(self) -> str:
        return f"preferences of {self.user_id}"

    @property
    def feed_token(self) -> str:
        """The token in the URLs of the feeds; the database alone does not reveal it."""
        return self._feed_token(settings.SECRET_KEY)

    def all_feed_tokens(self) -> list[str]:
        """Return all tokens that open the feeds, also for former keys that still count."""
        return [self._feed_token(key) for key in signing_keys()]

    def _feed_token(self, key: str) -> str:
        name = self.feed_name or ""
        digest = salted_hmac("opsportal.feed", name, secret=key, algorithm="sha256").hexdigest()
        return name + digest[:40]


class Rule(models.Model):
    """When a channel notifies a user of a group of events, if not by default."""

    user = models.ForeignKey(_USER, on_delete=models.CASCADE, related_name="notification_rules")
    group = models.CharField(max_length=16, choices=Group)
    channel = models.CharField(max_length=16, choices=Channel)
    when = models.CharField(max_length=16, choices=When)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user", "group", "channel"], name="notification_rule_once"
            ),
            models.CheckConstraint(
                condition=~Q(channel=Channel.WEBHOOK, when=When.DIGEST),
                name="notification_rule_webhook",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user_id}: {self.group} by {self.channel} {self.when}"


class Follow(models.Model):
    """A user watches, or has muted, one request."""

    user = models.ForeignKey(_USER, on_delete=models.CASCADE, related_name="+")
    request = models.ForeignKey(
        "production.Request", on_delete=models.CASCADE, related_name="followers"
    )
    level = models.CharField(max_length=16, choices=Level)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["request", "user"], name="follow_once")]

    def __str__(self) -> str:
        return f"{self.user_id} {self.level} {self.request_id}"


class Webhook(models.Model):
    """A URL that is called for a user's notifications, or for all events of an experiment."""

    user = models.ForeignKey(
        _USER, on_delete=models.CASCADE, null=True, blank=True, related_name="webhooks"
    )
    experiment = models.ForeignKey(
        "accounts.Experiment",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="webhooks",
    )
    url = models.CharField(max_length=500)
    nonce = models.CharField(
        max_length=64, help_text="The secret is derived from it and SECRET_KEY."
    )
    key_id = models.CharField(
        max_length=16,
        blank=True,
        default="",
        db_default="",
        help_text="Tells which SECRET_KEY the secret is derived from.",
    )
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField()
    created_by = models.ForeignKey(_USER, on_delete=models.CASCADE, related_name="+")
    failing_since = models.DateTimeField(null=True, blank=True)
    retry_at = models.DateTimeField(null=True, blank=True)
    failures = models.PositiveIntegerField(default=0)
    last_error = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(user=None) ^ Q(experiment=None), name="webhook_of_one"
            ),
        ]

    def __str__(self) -> str:
        return f"webhook {self.pk}"

    @property
    def host(self) -> str:
        """The host of the URL, to show: the rest may contain a secret."""
        try:
            return urlsplit(self.url).hostname or ""
        except ValueError:
            return ""

    @property
    def secret(self) -> str:
        """The secret that signs the calls; the database alone does not reveal it.

        It is the one that the receiver was given, as long as the `SECRET_KEY` of that time counts.
        """
        key = find_key(self.key_id)
        digest = salted_hmac("opsportal.webhook", self.nonce, secret=key, algorithm="sha256")
        return digest.hexdigest()

    @property
    def has_former_secret(self) -> bool:
        """Whether the secret is of a former `SECRET_KEY`, so that the webhook should be renewed."""
        return self.key_id != key_id(settings.SECRET_KEY)


class Message(Work):
    """One mail to a user, or one call of a webhook."""

    channel = models.CharField(max_length=16, choices=Channel)
    user = models.ForeignKey(
        _USER, on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    webhook = models.ForeignKey(
        Webhook, on_delete=models.CASCADE, null=True, blank=True, related_name="messages"
    )
    event = models.ForeignKey(
        Event, on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    digest = models.BooleanField(default=False)
    state = models.CharField(
        max_length=16, choices=MessageState, default=MessageState.WAITING.value
    )
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)
    refusals = models.PositiveIntegerField(
        default=0, help_text="Attempts that the receiver refused."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["webhook", "event"], name="webhook_message_once"),
            models.CheckConstraint(condition=Q(user=None) ^ Q(webhook=None), name="message_to_one"),
            models.CheckConstraint(
                condition=Q(state=MessageState.SENT, sent_at__isnull=False)
                | (~Q(state=MessageState.SENT) & Q(sent_at=None)),
                name="message_sent",
            ),
        ]
        indexes = [
            models.Index(
                fields=["channel", "due_at"],
                condition=Q(state=MessageState.WAITING),
                name="message_waiting",
            ),
            models.Index(fields=["created_at"]),
        ]

    def __str__(self) -> str:
        return f"message {self.pk}"


#: Pages of what a notification is about that has no column of its own.
_PAGES = {
    "diagnosis.knownerror": "diagnosis:known-error",
    "diagnosis.knownerrorchange": "diagnosis:known-error-change",
    "diagnosis.experimentpack": "diagnosis:pack",
    "diagnosis.failuregroup": "diagnosis:group",
    "jobs.job": "portal:job",
    "search.linetemplate": "diagnosis:template",
    "statusboard.incident": "portal:incident",
}


class Notification(models.Model):
    """One event that concerns one user, as the portal lists it; `message` is its mail.

    It is about a request, a hold of all production or of an experiment, a failure group, jobs to
    retry after an incident, a weekly report, a proposed known error or pack, or the user's own
    settings.
    """

    user = models.ForeignKey(_USER, on_delete=models.CASCADE, related_name="notifications")
    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="+")
    request = models.ForeignKey(
        "production.Request", on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    hold = models.ForeignKey(
        "production.Hold", on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    failures = models.ForeignKey(
        "diagnosis.FailureGroup", on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    incident = models.ForeignKey(
        "statusboard.Incident", on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    report = models.ForeignKey(
        "progress.WeeklyReport", on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    group = models.CharField(max_length=16, choices=Group)
    at = models.DateTimeField()
    read_at = models.DateTimeField(null=True, blank=True)
    digest_at = models.DateTimeField(
        null=True, blank=True, help_text="Sent with the digest at this time."
    )
    message = models.ForeignKey(
        Message, on_delete=models.SET_NULL, null=True, blank=True, related_name="notifications"
    )

    #: Set by `domain.notifications.with_texts`.
    text = ""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "event"], name="notification_once"),
            models.CheckConstraint(
                condition=Q(digest_at=None) | Q(message=None), name="notification_digest_or_mail"
            ),
            models.CheckConstraint(
                condition=Q(request=None, hold=None, failures=None, incident=None)
                | Q(request=None, hold=None, failures=None, report=None)
                | Q(request=None, hold=None, incident=None, report=None)
                | Q(request=None, failures=None, incident=None, report=None)
                | Q(hold=None, failures=None, incident=None, report=None),
                name="notification_of_one",
            ),
        ]
        indexes = [
            models.Index(fields=["user", "-at", "-id"]),
            models.Index(fields=["user"], condition=Q(read_at=None), name="notification_unread"),
            models.Index(
                fields=["digest_at", "user"],
                condition=Q(digest_at__isnull=False),
                name="notification_digest",
            ),
            models.Index(fields=["at"]),
        ]

    def __str__(self) -> str:
        return f"{self.user_id}: event {self.event_id}"

    def get_absolute_url(self) -> str:
        """Return the page that it is about."""
        if self.request is not None:
            comment = self.event.data.get("comment")
            return self.request.get_absolute_url() + (f"#comment-{comment}" if comment else "")
        if self.failures_id:
            return reverse("diagnosis:group", args=[self.failures_id])
        if self.incident_id:
            return reverse("submission:retry-jobs", args=["incident", self.incident_id])
        if self.report is not None:
            return self.report.get_absolute_url()
        if page := _PAGES.get(self.event.target_type):
            return reverse(page, args=[self.event.target_id])
        return reverse("production:holds" if self.hold_id else "notifications:settings")
