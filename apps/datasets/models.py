"""Catalogues of datasets, and their answers."""

from django.db import models
from django.db.models import Q

from apps.core.models import Work


class Catalogue(models.Model):
    """A catalogue that the portal asks for datasets.

    `answered_at` is the time of its last answer, `error` why it did not answer since then.
    """

    name = models.SlugField(max_length=64, unique=True)
    kind = models.CharField(max_length=32, help_text="json, sam, metacat, rucio or a plugin.")
    base_url = models.CharField(
        "address",
        max_length=500,
        help_text="URL of its interface, such as https://sam.example.org:8483/sam/nova/api, or the "
        "path of a JSON file.",
    )
    credential_file = models.CharField(
        max_length=500,
        blank=True,
        help_text="Path of a file with a token, or of a JSON object, on the hosts of the workers. "
        "Empty: without signing in.",
    )
    options = models.JSONField(default=dict, blank=True, help_text="Options of this kind.")
    active = models.BooleanField(default=True)
    answered_at = models.DateTimeField(null=True, blank=True, editable=False)
    error = models.TextField(blank=True, editable=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class KnownDataset(Work):
    """What a catalogue answered about a dataset of this name.

    `exists` is None without an answer. The answer is that of `answered_at`; the row waits in the
    queue while the catalogue is to be asked (again). Numbers that it does not know are None.
    """

    catalogue = models.ForeignKey(Catalogue, on_delete=models.CASCADE, related_name="datasets")
    name = models.CharField(max_length=500)
    is_waiting = models.BooleanField(default=True)
    exists = models.BooleanField(null=True, blank=True)
    files = models.BigIntegerField(null=True, blank=True)
    events = models.BigIntegerField(null=True, blank=True)
    size_bytes = models.BigIntegerField(null=True, blank=True)
    requested_at = models.DateTimeField(help_text="When the portal last needed it, to the day.")
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(fields=["catalogue", "name"], name="known_dataset_once"),
            models.CheckConstraint(
                condition=Q(exists=None, answered_at=None)
                | Q(exists__isnull=False, answered_at__isnull=False),
                name="known_dataset_answer",
            ),
        ]
        indexes = [
            models.Index(
                fields=["due_at"], condition=Q(is_waiting=True), name="known_dataset_waiting"
            ),
            models.Index(fields=["requested_at"], name="known_dataset_requested"),
        ]

    def __str__(self) -> str:
        return self.name
