"""Admin of the archive: jobs and dictionaries read-only; masking rules and capture hosts.

Contents have own pages.
"""

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import display_for_value
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from apps.accounts.admin import user_of
from apps.archive.domain.capture_hosts import (
    add_host_token,
    change_capture_host,
    create_capture_host,
    revoke_host_tokens,
)
from apps.archive.domain.masking_trials import start_trial
from apps.archive.domain.retention import delete_retention_rule, save_retention_rule
from apps.archive.domain.sinks import drop_refused, forget_sink, retry_refused
from apps.archive.models import (
    ArchivedJob,
    CaptureHost,
    Dictionary,
    MaskingTrial,
    Pin,
    RefusedJob,
    RetentionRule,
    SinkState,
)
from apps.clusters.models import Cluster
from apps.core.admin import PortalAdmin, ReadOnlyAdmin, confirmed, register_read_only
from apps.core.errors import DomainError
from apps.jobs.domain.collection.masking_rules import delete_masking_rule, save_masking_rule
from apps.jobs.models import MaskingRule


@admin.register(ArchivedJob)
class ArchivedJobAdmin(ReadOnlyAdmin):
    list_display = [
        "job_id",
        "cluster",
        "submitted_at",
        "captured_at",
        "script_bytes",
        "request_key",
        "stage",
    ]
    list_filter = ["cluster"]
    search_fields = ["=job_id", "=request_key"]
    ordering = ["-submitted_at", "-id"]
    exclude = ["script", "environment"]


@admin.register(Dictionary)
class DictionaryAdmin(ReadOnlyAdmin):
    list_display = ["kind", "trained_at"]
    exclude = ["data"]


@admin.register(MaskingRule)
class MaskingRuleAdmin(PortalAdmin):
    about = "What is masked in captured scripts and environments before they are stored."
    document = "archive"
    fields = ("pattern", "applies_to", "note", "enabled")
    help_texts = {"enabled": "Otherwise the rule is kept, and masks nothing."}
    list_display = ["pattern", "applies_to", "enabled", "note"]
    list_filter = ["enabled", "applies_to"]
    search_fields = ["pattern", "note"]
    actions = ["try_on_the_archive"]

    def save_model(self, request: HttpRequest, obj: MaskingRule, form: Any, change: bool) -> None:
        save_masking_rule(rule=obj, by=user_of(request), at=timezone.now())

    def delete_model(self, request: HttpRequest, obj: MaskingRule) -> None:
        delete_masking_rule(rule=obj, by=user_of(request), at=timezone.now())

    @admin.action(description="Dry run on the archive", permissions=["change"])
    def try_on_the_archive(self, request: HttpRequest, queryset: QuerySet[MaskingRule]) -> None:
        for rule in queryset:
            start_trial(rule=rule, by=user_of(request), at=timezone.now())
        messages.success(request, "Dry run started. See “Dry runs of masking rules” for results.")


@admin.register(MaskingTrial)
class MaskingTrialAdmin(ReadOnlyAdmin):
    list_display = [
        "pattern",
        "applies_to",
        "started_at",
        "started_by",
        "done",
        "found_jobs",
        "most_found",
    ]
    readonly_fields = ["done", "most_found"]
    exclude = ["names", "last_blob", "until_blob"]

    @admin.display(description="progress")
    def done(self, trial: MaskingTrial) -> str:
        return f"{trial.progress:.0%}"

    @admin.display(description="variables")
    def most_found(self, trial: MaskingTrial) -> str:
        most = sorted(trial.names.items(), key=lambda item: (-item[1], item[0]))[:20]
        return ", ".join(f"{name} ({count})" for name, count in most) or "–"


@admin.register(CaptureHost)
class CaptureHostAdmin(PortalAdmin):
    """Hosts that send captured jobs. A token shows once, when it is made."""

    about = (
        "A scheduler's host that sends captured jobs, with its own token. The token is shown once, "
        "when it is made; the documentation says where it goes on the host."
    )
    document = "archive"
    labels = {"clusters": "Clusters"}
    help_texts = {
        "name": "The name of the host, without its domain.",
        "clusters": "Names of the clusters whose jobs it may send, separated by commas.",
        "trusted": (
            "Tick it only for a host on which users cannot change files: failed jobs are rerun as "
            "their owners from scripts that it captured, and logs of running jobs are read."
        ),
    }
    list_display = ["name", "of_clusters", "trusted", "heard_at", "tokens"]
    column_titles = {"heard_at": "last heard"}
    record_actions = ("new_token", "revoke_older", "revoke_tokens")
    list_filter = ["trusted"]
    search_fields = ["name", "clusters"]
    actions = ["new_token", "revoke_older", "revoke_tokens"]

    def save_model(self, request: HttpRequest, obj: CaptureHost, form: Any, change: bool) -> None:
        if change:
            change_capture_host(host=obj, by=user_of(request), at=timezone.now())
            _warn_of_unknown_clusters(request, obj)
            return
        host, token = create_capture_host(
            name=obj.name,
            clusters=obj.clusters,
            trusted=obj.trusted,
            by=user_of(request),
            at=timezone.now(),
        )
        obj.pk = host.pk
        self._show(request, host, token)
        _warn_of_unknown_clusters(request, host)

    def get_readonly_fields(
        self, request: HttpRequest, obj: CaptureHost | None = None
    ) -> list[str]:
        return ["last_heard", "name", "tokens"] if obj else []

    def get_fields(self, request: HttpRequest, obj: CaptureHost | None = None) -> list[Any]:
        fields = ["name", "clusters", "trusted"]
        return [*fields, "last_heard", "tokens"] if obj else fields

    @admin.display(description="clusters")
    def of_clusters(self, host: CaptureHost) -> str:
        return ", ".join(host.clusters)

    @admin.display(description="last heard")
    def last_heard(self, host: CaptureHost) -> Any:
        return display_for_value(host.heard_at, "never")

    @admin.display(description="valid tokens")
    def tokens(self, host: CaptureHost) -> int:
        return len(host.token_hashes)

    @admin.action(description="Add a token", permissions=["change"])
    def new_token(self, request: HttpRequest, hosts: QuerySet[CaptureHost]) -> None:
        for host in hosts:
            token = add_host_token(host=host, by=user_of(request), at=timezone.now())
            self.log_change(request, host, "Added a token.")
            self._show(request, host, token)

    @admin.action(description="Revoke older tokens…", permissions=["change"])
    @confirmed(
        button="Revoke older tokens",
        effect=(
            "Only the newest token of each of these hosts stays valid. Put it on the host first: "
            "until then the host can send no jobs, and captured jobs wait there."
        ),
    )
    def revoke_older(self, request: HttpRequest, hosts: QuerySet[CaptureHost]) -> None:
        for host in hosts:
            by = user_of(request)
            revoke_host_tokens(host=host, by=by, at=timezone.now(), keep_newest=True)
            self.log_change(request, host, "Revoked older tokens.")
            messages.success(request, f"Only the newest token of {host} is valid now.")

    @admin.action(description="Revoke all tokens…", permissions=["change"])
    @confirmed(
        button="Revoke tokens",
        effect=(
            "These hosts can send no jobs until they have a new token. Captured jobs wait on the "
            "hosts meanwhile."
        ),
    )
    def revoke_tokens(self, request: HttpRequest, hosts: QuerySet[CaptureHost]) -> None:
        for host in hosts:
            revoke_host_tokens(host=host, by=user_of(request), at=timezone.now())
            self.log_change(request, host, "Revoked all tokens.")
            messages.success(request, f"All tokens of {host} are revoked.")

    def _show(self, request: HttpRequest, host: CaptureHost, token: str) -> None:
        text = (
            "Token of {host}. Copy it now, it is shown only once: <code>{token}</code>. On the "
            'host, it goes into the file ARCHIVE_PORTAL_TOKEN_FILE (<a href="{help}">how</a>).'
        )
        place = reverse("core:help", args=["archive"]) + "#capture-and-the-portal"
        messages.success(request, format_html(text, host=host, token=token, help=place))


def _warn_of_unknown_clusters(request: HttpRequest, host: CaptureHost) -> None:
    """Warn of misspelled names. A cluster may be new: its first job adds it."""
    known = Cluster.objects.filter(name__in=host.clusters).values_list("name", flat=True)
    unknown = sorted(set(host.clusters) - set(known))
    if unknown:
        text = f"No cluster with this name yet: {', '.join(unknown)}. Check the spelling."
        messages.warning(request, text)


@admin.register(SinkState)
class SinkStateAdmin(ReadOnlyAdmin):
    """Sinks of the archive.

    What they rejected can be retried or dropped, what is no longer configured removed.
    """

    list_display = ["name", "written", "written_at", "failures", "retry_at", "last_error"]
    ordering = ["name"]
    actions = ["retry", "drop", "forget"]

    def has_handle_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("archive.change_sinkstate")

    @admin.action(description="Retry rejected jobs", permissions=["handle"])
    def retry(self, request: HttpRequest, sinks: QuerySet[SinkState]) -> None:
        self._act(request, sinks, retry_refused, "{sink}: {result} rejected jobs will be retried.")

    @admin.action(description="Drop rejected jobs…", permissions=["handle"])
    @confirmed(
        button="Drop rejected jobs",
        effect="The jobs that these sinks rejected are deleted, and cannot be restored.",
    )
    def drop(self, request: HttpRequest, sinks: QuerySet[SinkState]) -> None:
        self._act(request, sinks, drop_refused, "{sink}: {result} rejected jobs dropped.")

    @admin.action(description="Remove…", permissions=["handle"])
    @confirmed(
        button="Remove sinks",
        effect=(
            "Those of these sinks that are no longer in the settings are removed, with the jobs "
            "that wait for them."
        ),
    )
    def forget(self, request: HttpRequest, sinks: QuerySet[SinkState]) -> None:
        self._act(request, sinks, forget_sink, "{sink} removed.")

    def _act(
        self,
        request: HttpRequest,
        sinks: QuerySet[SinkState],
        act: Callable[..., Any],
        message: str,
    ) -> None:
        for sink in sinks:
            try:
                result = act(sink=sink, by=user_of(request), at=timezone.now())
            except DomainError as error:
                messages.error(request, str(error))
            else:
                messages.success(request, message.format(sink=sink, result=result))


register_read_only(
    RefusedJob,
    "job_id cluster sink submitted_at size_bytes tried_at reason",
    search="=job_id",
    filters=["sink"],
    exclude=["data"],
    list_select_related=["sink"],
)


class RetentionRuleForm(forms.ModelForm):
    """A rule with at least one limit; its error names both fields."""

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        limits = ("max_age_days", "max_bytes")
        if all(name not in self.errors and cleaned.get(name) is None for name in limits):
            text = "Enter “Days that jobs are kept”, “Size that is kept”, or both."
            self.add_error("max_age_days", text)
        return cleaned


@admin.register(RetentionRule)
class RetentionRuleAdmin(PortalAdmin):
    form = RetentionRuleForm
    about = "How long, and up to which size, scripts and environments of jobs are kept."
    document = "archive"
    labels = {"max_age_days": "Days that jobs are kept", "max_bytes": "Size that is kept"}
    column_titles = {"max_age_days": "days that jobs are kept", "max_bytes": "size that is kept"}
    list_display = ["__str__", "max_age_days", "max_bytes"]
    ordering = ["cluster__name"]
    list_select_related = ["cluster"]

    def save_model(self, request: HttpRequest, obj: RetentionRule, form: Any, change: bool) -> None:
        save_retention_rule(rule=obj, by=user_of(request), at=timezone.now())

    def delete_model(self, request: HttpRequest, obj: RetentionRule) -> None:
        delete_retention_rule(rule=obj, by=user_of(request), at=timezone.now())


@admin.register(Pin)
class PinAdmin(ReadOnlyAdmin):
    list_display = ["job", "by", "at", "reason"]
    list_select_related = ["job__cluster"]
    ordering = ["-at"]
