"""The service tree and what is known of each service's state."""

from django.db import models


class Service(models.Model):
    """A system that jobs depend on."""

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=64, blank=True, help_text="What it is, in two words: data catalogue, storage, …")
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="children")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
