"""Templates for new requests, and links between requests that were made from each other."""

from django.db import models
from django.db.models import F, Q

from apps.accounts.models import ExperimentQuerySet, M
from apps.production.enums import LinkKind
from apps.production.models.requests import Request


class TemplateQuerySet(ExperimentQuerySet[M]):
    """A queryset whose `visible_to(user)` keeps the user's experiments. The OPG sees all."""


class RequestTemplate(models.Model):
    """Initial content of new requests. It names its workflow version, which may no longer exist."""

    name = models.CharField(max_length=80)
    experiment = models.ForeignKey(
        "accounts.Experiment", on_delete=models.CASCADE, related_name="request_templates"
    )
    workflow_key = models.CharField(max_length=40)
    workflow_number = models.PositiveIntegerField()
    content = models.JSONField(help_text="The content of a request as JSON.")
    saved_at = models.DateTimeField()
    saved_by = models.CharField(max_length=150)

    objects = TemplateQuerySet["RequestTemplate"].as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["experiment", "name"], name="template_name_once")
        ]

    def __str__(self) -> str:
        return self.name


class RequestLink(models.Model):
    """How a request was made from an earlier one of its experiment.

    Clones and successors are stored as fields of the request instead.
    """

    kind = models.CharField(max_length=16, choices=LinkKind)
    earlier = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="links_on")
    later = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="links_back")
    note = models.CharField(max_length=200, blank=True, help_text="For example, which part it is.")
    at = models.DateTimeField()
    by = models.CharField(max_length=150)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=LinkKind.values), name="link_kind"),
            models.CheckConstraint(condition=~Q(earlier=F("later")), name="link_to_another"),
            models.UniqueConstraint(fields=["earlier", "later"], name="link_once"),
        ]

    def __str__(self) -> str:
        return f"{self.earlier} → {self.later}"
