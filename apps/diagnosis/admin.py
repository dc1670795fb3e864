"""Read-only admin of harvests, evidence, verdicts and totals, with an action to re-analyse logs."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from apps.accounts.admin import user_of
from apps.core.admin import EMPTY, PortalAdmin, ReadOnlyAdmin, register_read_only
from apps.core.errors import DomainError
from apps.diagnosis.domain.verdicts.harvest import reanalyse_log
from apps.diagnosis.enums import CodeScope
from apps.diagnosis.models import (
    CauseAnalysis,
    CauseTotals,
    CompletedLog,
    DailyCauseTotals,
    Evidence,
    ExitCodeMeaning,
    ExperimentPack,
    FailureGroup,
    GroupNote,
    KnownError,
    KnownErrorChange,
    LogExcerpt,
    LogHarvest,
    Reclassification,
    SuccessSample,
    Verdict,
)


@admin.register(LogHarvest)
class LogHarvestAdmin(ReadOnlyAdmin):
    list_title = "Analyses of logs"
    list_display = ["job", "state", "attempts", "due_at", "harvested_at", "last_error"]
    list_filter = ["state"]
    list_select_related = ["job__cluster"]
    actions = ["reanalyse"]

    @admin.action(description="Re-analyse logs")
    def reanalyse(self, request: HttpRequest, queryset: QuerySet[LogHarvest]) -> None:
        for harvest in queryset.select_related("job"):
            try:
                reanalyse_log(job=harvest.job, by=user_of(request), at=timezone.now())
            except DomainError as error:
                messages.error(request, str(error))
            else:
                messages.success(request, f"The log of {harvest.job} will be analysed again.")


class ExitCodeForm(forms.ModelForm):
    """A meaning; unless it is a convention, it names whose it is."""

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        scope = cleaned.get("scope")
        if scope and scope != CodeScope.CONVENTION and "name" not in self.errors:
            if not cleaned.get("name"):
                owner = CodeScope(scope).label.lower()
                self.add_error("name", f"Enter the name of the {owner}, or choose “Convention”.")
        return cleaned


@admin.register(ExitCodeMeaning)
class ExitCodeMeaningAdmin(PortalAdmin):
    """The meanings of exit codes; edited rows keep their values when a release ships new ones."""

    form = ExitCodeForm
    about = "What an exit code or signal means, everywhere, at a site or in an experiment."
    document = "diagnosis"
    fieldsets = (
        (None, {"fields": ("kind", "number", "scope", "name", "enabled")}),
        ("Meaning", {"fields": ("title", "help", "category", "certain", "source")}),
    )
    labels = {"enabled": "In use", "certain": "Evidence for a verdict"}
    column_titles = {"enabled": "in use", "certain": "evidence"}
    filter_titles = {"enabled": "in use", "certain": "evidence for a verdict"}
    help_texts = {
        "kind": "An exit code of the program, or the signal that ended it.",
        "scope": "Where it has this meaning; a narrower scope wins.",
        "name": "The experiment, scheduler or program of the scope; empty for a convention.",
        "enabled": "Otherwise the row is kept, and explains nothing.",
    }
    list_display = ["number", "kind", "scope", "name", "title", "category", "certain", "enabled"]
    list_display_links = ["number", "title"]
    list_filter = ["kind", "scope", "category", "certain", "enabled"]
    search_fields = ["=number", "name", "title", "help"]


register_read_only(
    LogExcerpt,
    "harvest stream path size_bytes first_line_number",
    list_select_related=["harvest__job__cluster"],
    exclude=["compressed"],
)
register_read_only(
    Evidence,
    "harvest pattern role category service stream line text",
    search="pattern",
    filters=["role", "category"],
    list_select_related=["harvest__job__cluster"],
)
register_read_only(
    Verdict,
    "job verdict advice category confidence cause service overridden_by",
    search="cause service",
    filters=["verdict", "category", "confidence", ("overridden_at", EMPTY)],
    list_select_related=["job__cluster"],
)
for model, time in ((CauseTotals, "hour"), (DailyCauseTotals, "day")):
    register_read_only(
        model,
        f"{time} cluster experiment verdict cause service jobs wall_seconds",
        filters=["verdict"],
        ordering=[f"-{time}"],
    )
register_read_only(
    CauseAnalysis,
    "since until scope requested_at analysed_at jobs failed",
    ordering=["-until"],
    about="Causes of the failures of jobs that ended in a period.",
)
register_read_only(
    FailureGroup,
    "title verdict cause service status owner first_seen_at last_seen_at",
    search="title line cause",
    filters=["status", "verdict", "kind"],
)
register_read_only(GroupNote, "group by at text", list_select_related=["group"])
register_read_only(
    KnownError,
    "id title category service role advice experiment passive enabled version",
    search="id title regex",
    filters=["category", "role", "enabled", "passive"],
    about="Patterns in logs, their verdicts and advice. They are added and changed on the page:",
    document="diagnosis",
    changed_on=("Known errors", "diagnosis:known-errors"),
    instead_of_deleting=(
        "Known errors are kept, because verdicts name them. To retire one, untick “Enabled” on its "
        "page: its pattern then matches nothing."
    ),
)
register_read_only(
    KnownErrorChange,
    "known_error version state by at reason",
    search="known_error by reason",
    filters=["state"],
)
register_read_only(
    ExperimentPack,
    "experiment version state by at reason",
    search="by reason",
    filters=["state", "experiment"],
    about="Known errors and rules that an experiment declares in a file, with their approval.",
    document="experiment-packs",
    changed_on=("Experiment packs", "diagnosis:packs"),
)
register_read_only(
    Reclassification, "since by started_at state total judged changed worked_at", filters=["state"]
)
register_read_only(
    SuccessSample,
    "job experiment stage release sampled_at",
    search="stage release",
    list_select_related=["job__cluster", "experiment"],
    exclude=["templates"],
)
register_read_only(
    CompletedLog, "job due_at attempts last_error", list_select_related=["job__cluster"]
)
