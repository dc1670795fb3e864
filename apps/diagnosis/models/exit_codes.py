"""The meanings of exit codes: a table that the portal ships and the back office edits."""

from django.db import models

from apps.diagnosis.enums import Category, CodeKind, CodeScope


class ExitCodeMeaning(models.Model):
    """The meaning of a number that jobs end with."""

    kind = models.CharField(max_length=8, choices=CodeKind, default=CodeKind.EXIT)
    scope = models.CharField(max_length=16, choices=CodeScope)
    name = models.CharField(
        max_length=64,
        blank=True,
        help_text="Experiment, scheduler or program; empty for a convention.",
    )
    number = models.IntegerField()
    title = models.CharField(max_length=100, help_text="What happened, in a few words.")
    help = models.TextField(
        blank=True, max_length=2000, help_text="What to do, in whole sentences."
    )
    category = models.CharField(max_length=16, choices=Category, default=Category.UNKNOWN)
    certain = models.BooleanField(
        default=False,
        help_text=(
            "Counts as evidence for a verdict, after all other evidence. Set it only if "
            "nothing else exits with this number."
        ),
    )
    source = models.CharField(
        max_length=200, help_text="Manual, source file or person that documents it."
    )
    enabled = models.BooleanField(default=True)
    shipped = models.JSONField(
        null=True, blank=True, editable=False, help_text="Last shipped values; empty if added here."
    )

    pack = models.CharField(
        max_length=64,
        blank=True,
        editable=False,
        help_text="The experiment pack that it comes from.",
    )

    class Meta:
        verbose_name = "exit code"
        ordering = ["number", "kind", "scope", "name"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(kind__in=CodeKind.values), name="exit_code_kind"
            ),
            models.CheckConstraint(
                condition=models.Q(scope__in=CodeScope.values), name="exit_code_scope"
            ),
            models.CheckConstraint(
                condition=models.Q(category__in=Category.values), name="exit_code_category"
            ),
            models.CheckConstraint(
                condition=models.Q(scope=CodeScope.CONVENTION) | ~models.Q(name=""),
                name="exit_code_name",
            ),
            models.UniqueConstraint(
                fields=["number", "kind", "scope", "name"], name="exit_code_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.number}: {self.title}"
