"""Stored analyses of the common causes of failures in a period."""

from django.db import models

from apps.core.models import Work


class CauseAnalysis(Work):
    """Causes of the failures of jobs that ended in [since, until).

    The row serves all users who see the same experiments. A page requests it and a worker fills it;
    it keeps its last result while a newer one is computed.
    """

    scope = models.TextField(help_text="“all”, or the IDs of the experiments, separated by commas.")
    since = models.DateTimeField()
    until = models.DateTimeField()
    requested_at = models.DateTimeField(
        null=True, blank=True, db_index=True, help_text="Empty: nothing to compute."
    )
    analysed_at = models.DateTimeField(null=True, blank=True, help_text="Empty: no result yet.")
    jobs = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    causes = models.JSONField(default=list, help_text="Strongest first.")

    class Meta:
        verbose_name_plural = "cause analyses"
        constraints = [
            models.UniqueConstraint(fields=["scope", "since", "until"], name="cause_analysis_once")
        ]

    def __str__(self) -> str:
        return f"causes of {self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M}"
