"""The steps from an empty portal to a working one, and which of them are done."""

from dataclasses import dataclass

from django.conf import settings
from django.urls import reverse

from apps.accounts.enums import Role
from apps.accounts.models import Experiment, Membership
from apps.archive.models import CaptureHost
from apps.clusters.models import Cluster
from apps.core.domain.health import BEAT
from apps.core.models import Heartbeat
from apps.jobs.models import Job
from apps.statusboard.models import MonitoringSource, Service


@dataclass(frozen=True)
class SetupStep:
    """A step of setting up a portal: what to do, why, where, and the documentation about it."""

    title: str
    hint: str
    is_done: bool
    document: str
    view: str = "core:help"
    is_optional: bool = False

    @property
    def url(self) -> str:
        """Return the page of the step, or the documentation if no page does it."""
        arguments = [self.document] if self.view == "core:help" else []
        return reverse(self.view, args=arguments)


def is_empty() -> bool:
    """Return whether the portal has neither a cluster nor an experiment."""
    return not (Cluster.objects.exists() or Experiment.objects.exists())


def setup_steps() -> list[SetupStep]:
    """Return all steps, in the order in which they are taken. One small query each."""
    roles = set(Membership.objects.values_list("role", flat=True).distinct().order_by())
    return [
        SetupStep(
            "Start the processes",
            "Web, workers and beat; the health page says which are missing",
            Heartbeat.objects.filter(name=BEAT).exists(),
            "production",
            "portal:health",
        ),
        SetupStep(
            "Set up an experiment",
            "Its key, the accounts of its jobs, its people and its share",
            Experiment.objects.exists(),
            "administration",
            "admin:accounts_experiment_add",
        ),
        SetupStep(
            "Add people with roles",
            "At least a liaison, who writes requests, and an approver, who signs them",
            {Role.LIAISON, Role.APPROVER} <= roles,
            "administration",
            "admin:accounts_user_add",
        ),
        SetupStep(
            "Connect a cluster",
            "Its name and its scheduler: Slurm, Torque or HTCondor",
            Cluster.objects.exists(),
            "slurm",
            "admin:clusters_cluster_add",
        ),
        SetupStep(
            "Collect its jobs",
            "Workers read the accounting by themselves; this page says when, or why not",
            Job.objects.exists(),
            "slurm",
            "admin:jobs_collection_changelist",
        ),
        SetupStep(
            "Connect capture",
            "A token for the scheduler's host, which sends scripts and environments",
            CaptureHost.objects.exists(),
            "archive",
            "admin:archive_capturehost_add",
        ),
        SetupStep(
            "Add the services that jobs need",
            "Storage, databases, network: what can make jobs fail",
            Service.objects.exists(),
            "monitoring",
            "admin:statusboard_service_add",
        ),
        SetupStep(
            "Connect monitoring",
            "A token for the monitoring system that posts alerts of these services",
            MonitoringSource.objects.exists(),
            "monitoring",
            "statusboard:source-new",
        ),
        SetupStep(
            "Send mail",
            "The setting EMAIL_URL, for notifications and links to choose a password",
            bool(settings.EMAIL_HOST),
            "settings",
            is_optional=True,
        ),
    ]
