"""The admin site, with models grouped by task and internal records listed separately."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from django.apps import AppConfig
from django.contrib.admin import AdminSite, apps, autodiscover
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.contrib.admin.views.autocomplete import AutocompleteJsonView
from django.core import checks
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from apps.core.web.people import name_of
from apps.portal.web.record_links import links_of

#: Models by task, most used first. All others are internal records, which nobody adds or changes.
TASKS = {
    "Experiments and people": (
        "accounts.Experiment",
        "accounts.User",
        "accounts.Membership",
        "jobs.AccountMap",
        "production.ExperimentShare",
        "accounts.ApiToken",
    ),
    "Requests": (
        "production.Request",
        "production.WorkflowType",
        "production.ApprovalGroup",
        "production.ApprovalRule",
        "production.Hold",
        "submission.DebugProfile",
        "quality.Thresholds",
    ),
    "Clusters and capture": (
        "clusters.Cluster",
        "clusters.Site",
        "datasets.Catalogue",
        "archive.CaptureHost",
        "archive.RetentionRule",
        "jobs.MaskingRule",
        "archive.MaskingTrial",
    ),
    "Failures": ("diagnosis.KnownError", "diagnosis.ExperimentPack", "diagnosis.ExitCodeMeaning"),
    "Services and monitoring": (
        "statusboard.Service",
        "statusboard.MonitoringSource",
        "hosts.Probe",
        "statusboard.LabelRule",
        "statusboard.UnmappedAlert",
        "statusboard.RawPayload",
    ),
    "Audit and repair": (
        "admin.LogEntry",
        "core.Event",
        "core.Heartbeat",
        "archive.SinkState",
        "archive.RefusedJob",
        "jobs.Collection",
        "submission.Submission",
        "diagnosis.LogHarvest",
        "notifications.Message",
        "axes.AccessAttempt",
        "axes.AccessFailureLog",
        "axes.AccessLog",
    ),
}

#: Records below *Internal records* that pages of the portal show under this name.
KNOWN_FROM_PAGES = {
    "archive.ArchivedJob",
    "clusters.Host",
    "datasets.MadeDataset",
    "datasets.StagingRequest",
    "diagnosis.FailureGroup",
    "hosts.HostExclusion",
    "jobs.Job",
    "notifications.Webhook",
    "production.Delegation",
    "production.RequestTemplate",
    "production.Signature",
    "progress.WeeklyReport",
    "recovery.RecoveryRule",
    "statusboard.Announcement",
    "statusboard.DowntimeWindow",
    "statusboard.Incident",
    "submission.Submission",
}


@dataclass(frozen=True)
class Task:
    """A task on the start page: what to do, where, and the documentation about it.

    `model` is the label of the model that the task adds, whose permission it needs.
    """

    title: str
    hint: str
    document: str
    model: str = ""
    view: str = ""
    query: str = ""

    @property
    def url(self) -> str:
        name = self.view or f"admin:{self.model.replace('.', '_').lower()}_add"
        return reverse(name) + self.query


#: The tasks of the start page, by section. A task without a model opens a page of the portal.
FIRST_TASKS = {
    "The portal": (
        Task(
            "Is all well?",
            "Processes, queues, captures and accounting",
            "production",
            view="portal:health",
        ),
        Task(
            "Who changed what",
            "In the back office and on pages of the portal, with values before and after",
            "administration",
            view="admin:admin_logentry_all",
        ),
        Task(
            "What takes space",
            "Tables, what they grow with, and what keeps them",
            "production",
            view="portal:storage",
        ),
        Task(
            "Keep data for a time",
            "How long scripts and environments of jobs are kept",
            "archive",
            "archive.RetentionRule",
        ),
        Task(
            "Post an announcement",
            "On the home page of all users, or of an experiment",
            "administration",
            view="statusboard:post-announcement",
        ),
        Task(
            "Mail and webhooks",
            "Which notifications you get, and where the portal posts events",
            "notifications",
            view="notifications:settings",
        ),
    ),
    "People": (
        Task(
            "Set up an experiment",
            "Key, accounts, people, roles and shares on one page",
            "administration",
            "accounts.Experiment",
        ),
        Task(
            "Add a liaison",
            "A role of a user for an experiment",
            "administration",
            "accounts.Membership",
            query="?role=liaison",
        ),
        Task(
            "Give a role",
            "Approver, shifter or admin, of one experiment or all",
            "administration",
            "accounts.Membership",
        ),
        Task(
            "Add a user",
            "Name, role, experiments and sign-in on one page",
            "administration",
            "accounts.User",
        ),
        Task(
            "Map an account",
            "Whose jobs belong to which experiment",
            "jobs",
            "jobs.AccountMap",
        ),
    ),
    "Requests": (
        Task(
            "Add a workflow type",
            "The stages and fields of a kind of request",
            "workflows",
            "production.WorkflowType",
        ),
        Task(
            "Require a signature",
            "Which group signs which requests",
            "approvals",
            "production.ApprovalRule",
        ),
        Task(
            "Set a quality threshold",
            "When a check of the output fails",
            "data-quality",
            "quality.Thresholds",
        ),
    ),
    "Failures": (
        Task(
            "Add a known error",
            "A pattern in logs, its verdict and advice",
            "diagnosis",
            view="diagnosis:known-error-new",
        ),
        Task(
            "Explain an exit code",
            "Its meaning at a site or in an experiment",
            "diagnosis",
            "diagnosis.ExitCodeMeaning",
        ),
        Task(
            "Review experiment packs",
            "Known errors and rules that an experiment keeps in its repository",
            "experiment-packs",
            view="diagnosis:packs",
        ),
        Task(
            "Retry jobs by rules",
            "Which failures are retried automatically, and whether it helps",
            "recovery",
            view="recovery:rules",
        ),
    ),
    "Clusters and services": (
        Task("Connect a cluster", "Scheduler and accounting", "slurm", "clusters.Cluster"),
        Task(
            "Connect capture",
            "A host that sends captured jobs, and its token",
            "archive",
            "archive.CaptureHost",
        ),
        Task(
            "Connect a catalogue",
            "Where the datasets of requests are looked up",
            "catalogues",
            "datasets.Catalogue",
        ),
        Task("Mask a secret", "A rule for captured environments", "archive", "jobs.MaskingRule"),
        Task("Add a service", "Its name, kind and owner", "monitoring", "statusboard.Service"),
        Task(
            "Connect monitoring",
            "A source that posts alerts, and its token",
            "monitoring",
            view="statusboard:source-new",
        ),
    ),
}


class AdminConfig(apps.SimpleAdminConfig):
    """The configuration of the admin.

    The admin pages are loaded by `opsportal.urls` and by the checks, because they import many
    modules that other processes do not need.
    """

    default_site = "opsportal.admin_site.PortalSite"

    def ready(self) -> None:
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(check_admin, checks.Tags.admin)


def check_admin(
    app_configs: Sequence[AppConfig] | None, **options: Any
) -> Sequence[checks.CheckMessage]:
    """Check the admin pages of all apps."""
    autodiscover()
    return check_admin_app(app_configs, **options)


class RecordsByName(AutocompleteJsonView):
    """Offers people by their names: `Ada Novak (admin)`."""

    def serialize_result(self, obj: Model, to_field_name: str) -> dict[str, Any]:
        result: dict[str, Any] = super().serialize_result(obj, to_field_name)
        return result | {"text": name_of(obj)}


class PortalSite(AdminSite):
    """Django's admin site, with an index by task and internal records below it."""

    site_title = site_header = "opsportal"
    index_template = "admin/tasks.html"
    # A list of all models would take a quarter of the width from each table.
    enable_nav_sidebar = False
    empty_value_display = "–"

    def is_internal(self, model: type[Model]) -> bool:
        """Return whether people do not know the rows of a model by its name."""
        label = model._meta.label
        return label not in KNOWN_FROM_PAGES and label not in chain.from_iterable(TASKS.values())

    def see_also(self, record: Model) -> list[tuple[str, str]]:
        """Return links to what belongs to a record, and is done elsewhere."""
        return links_of(record)

    def autocomplete_view(self, request: HttpRequest) -> HttpResponse:
        return cast(HttpResponse, RecordsByName.as_view(admin_site=self)(request))

    def get_app_list(
        self, request: HttpRequest, app_label: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the tasks in place of apps; on the page of one app, return that app."""
        listed = super().get_app_list(request, app_label)
        return listed if app_label else self._by_task(listed)

    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        listed = set(chain.from_iterable(TASKS.values()))
        internal = []
        for app in super().get_app_list(request):
            models = [model for model in app["models"] if model["model"]._meta.label not in listed]
            if models:
                internal.append({**app, "models": models})
        # This module is loaded before the models that the steps read.
        from apps.portal.pages.setup_steps import setup_steps

        steps = setup_steps()
        context = {
            "internal": internal,
            "first_tasks": self._first_tasks(request),
            "setup_steps": steps,
            "steps_left": len([step for step in steps if not (step.is_done or step.is_optional)]),
        }
        return super().index(request, {**(extra_context or {}), **context})

    def _first_tasks(self, request: HttpRequest) -> list[tuple[str, list[Task]]]:
        """Return the sections of tasks for which the user has the permission."""
        admins = {model._meta.label: admin for model, admin in self._registry.items()}
        sections = []
        for label, tasks in FIRST_TASKS.items():
            allowed = []
            for task in tasks:
                if not task.model or admins[task.model].has_add_permission(request):
                    allowed.append(task)
            if allowed:
                sections.append((label, allowed))
        return sections

    def _by_task(self, app_list: list[dict[str, Any]]) -> list[dict[str, Any]]:
        by_label: dict[str, dict[str, Any]] = {}
        for app in app_list:
            for model in app["models"]:
                title = getattr(self._registry[model["model"]], "list_title", "")
                model["name"] = title or model["name"]
                by_label[model["model"]._meta.label] = model
        tasks = []
        for number, (name, labels) in enumerate(TASKS.items()):
            if models := [by_label[label] for label in labels if label in by_label]:
                task = {"name": name, "app_label": f"task-{number}", "app_url": f"#task-{number}"}
                tasks.append({**task, "has_module_perms": True, "models": models})
        return tasks
