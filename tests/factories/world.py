"""One of everything, of NOvA, for tests that walk through the whole portal."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property
from pathlib import Path

from apps.accounts.models import Experiment, User
from apps.archive.domain.store.jobs import store_jobs
from apps.archive.models import ArchivedJob
from apps.core import tasks
from apps.datasets.models import FileTotals, InputFile, OutputFile
from apps.diagnosis.domain.causes.totals import recount_dirty_hours
from apps.diagnosis.domain.packs.changes import propose_pack
from apps.diagnosis.domain.verdicts.harvest import harvest_log
from apps.diagnosis.models import ExperimentPack, FailureGroup, KnownErrorChange, LogHarvest
from apps.hosts.domain.exclusions import exclude_host
from apps.hosts.models import HostExclusion, HostSpan, MeasuredState, Probe
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Job
from apps.notifications.domain.webhooks import add_webhook
from apps.notifications.models import Webhook
from apps.production.domain.holds import place_hold
from apps.production.models import Hold, Request, Stage
from apps.progress.domain.weekly_report import freeze_weekly_reports
from apps.progress.models import WeeklyReport
from apps.recovery.domain.decisions.decide import decide_due, enrol_failures
from apps.recovery.enums import Arm
from apps.recovery.models import Decision, RecoveryRule
from apps.search.models import LineTemplate
from apps.statusboard.domain.incidents.incidents import open_incident
from apps.statusboard.domain.maintenance.announcements import post_announcement
from apps.statusboard.domain.maintenance.windows import schedule_window
from apps.statusboard.enums import State
from apps.statusboard.models import Announcement, DowntimeWindow, Incident, Service, UnmappedAlert
from capture.wire.entry import CapturedJob
from tests.archive.spool_writer import environment_bytes
from tests.factories import clusters, requests, statusboard
from tests.factories.jobs import failed, store

SCRIPT = b"#!/bin/bash\n#SBATCH --job-name=<b>reco</b>\nreco -c prod.fcl\n"
PACK = "experiment: NOVA\nlevels:\n  - {level: error, regex: '^E/'}\n"
LOG = """Begin processing the 1st record. run: 1 subRun: 0 event: 1
<script>alert("log")</script>
HTTP error: 503 Service Unavailable: samweb.declareFile r91_s77.root
job script exit status 65
"""


@dataclass
class World:
    """A request, a failed job of it that needs a service which was out,
    and all that hangs on them.
    """

    nova: Experiment
    request: Request
    service: Service
    incident: Incident
    window: DowntimeWindow
    announcement: Announcement
    alert: UnmappedAlert
    job: Job
    archived: ArchivedJob
    webhook: Webhook

    @cached_property
    def parameters(self) -> dict[str, dict[str, object]]:
        """What stands for each parameter of a route, by the part of the portal (`*` for all
        others).
        """
        archived = ArchivedJob.objects.get(pk=self.archived.pk)
        job = Job.objects.get(pk=self.job.pk)
        change = KnownErrorChange.objects.get(known_error__startswith="DNS")
        return {
            "key": {
                "workflow": "monte_carlo",
                "weekly-report": self.nova.key,
                "week-of-campaign": self.nova.key,
                "recovery:export": self.nova.key,
                "*": self.request.key,
            },
            "week": {"*": "2026-W47"},
            "monday": {"*": date(2026, 11, 16)},
            "verb": {"portal:incident": "acknowledge", "desk": "approve", "*": "submit"},
            "kind": {"slice-groups": "host", "*": "job"},
            "document": {"*": "requests"},
            "digest": {"*": "0" * 64},
            "number": {
                "api:request-revision": 0,
                "production:comment": 0,
                "production:template": 0,
                "*": 1,
            },
            "slug": {
                "api:feed": "farm",
                "statusboard:source": "farm",
                "source-token": "farm",
                "*": self.service.slug,
            },
            "token_key": {"*": "nothing1"},
            "cluster": {"*": archived.cluster},
            "job_id": {"*": archived.job_id},
            "name": {
                "jobs:host": job.host,
                "hosts:of-host": "wn-0233",
                "hosts:history": "wn-0233",
                "slice-groups": job.host,
                "jobs:user": job.user,
                "*": "FNAL",
            },
            "job": {"*": self.job.pk},
            "pk": {
                "api:recovery-decision": Decision.objects.get().pk,
                "recovery:answer": Decision.objects.get().pk,
                "recovery:owner": Decision.objects.get().pk,
                "recovery:job": self.job.pk,
                "recovery": RecoveryRule.objects.earliest("position").pk,
                "api:known-error": "DNS",
                "change-of-known-error": change.pk,
                "known-error-change": change.pk,
                "decide-known-error": change.pk,
                "known-error": "DNS",
                "pack": ExperimentPack.objects.get().pk,
                "archive": self.archived.pk,
                "api:archived-job": self.archived.pk,
                "statusboard:map-alert": self.alert.pk,
                "webhook": self.webhook.pk,
                "window": self.window.pk,
                "announcement": self.announcement.pk,
                "incident": self.incident.pk,
                "hosts:": HostExclusion.objects.get().pk,
                "host-exclusion": HostExclusion.objects.get().pk,
                "group": FailureGroup.objects.get().pk,
                "hold": Hold.objects.get().pk,
                "weekly-report": WeeklyReport.objects.get().pk,
                "comment": 0,
                "diagnosis:template": LineTemplate.objects.earliest("pk").pk,
                "template": 0,
                "*": self.job.pk,
            },
        }

    def arguments(self, name: str, parameters: tuple[str, ...]) -> dict[str, object]:
        return {
            parameter: next(
                value
                for part, value in self.parameters[parameter].items()
                if part in name or part == "*"
            )
            for parameter in parameters
        }


def build(
    *, nova: Experiment, liaison: User, approver: User, shifter: User, roots: Path, at: datetime
) -> World:
    """Make it all by the services that make real ones; `roots` must be among LOG_ROOTS."""
    service = statusboard.service("samweb", at - timedelta(days=3))
    incident = open_incident(
        service=service,
        state=State.DOWN,
        title="503",
        by=shifter,
        at=at,
        started_at=at - timedelta(hours=1),
    )
    window = schedule_window(
        services=[service],
        title="Move",
        starts_at=at + timedelta(days=1),
        ends_at=at + timedelta(days=2),
        by=shifter,
        at=at,
    )
    announcement = post_announcement(title="New default", by=shifter, at=at)
    farm = statusboard.source(at, slug="farm")
    statusboard.post(farm, at, statusboard.alert(at, service="nobody-knows"))
    stages = (requests.stage("reco", services=("samweb",)),)
    request = requests.draft(liaison, nova, stages=stages)
    _ledger_of(request.stages.all()[0], at)
    place_hold(by=shifter, at=at, reason="The farm is full.", experiment=nova)
    job = _failed_job(request, roots, at)
    enrol_failures(at=at)
    decide_due(at=at)
    Decision.objects.update(
        arm=Arm.QUESTION,
        decided_at=at,
        rule=RecoveryRule.objects.earliest("position"),
        version=1,
        why="It had <b>4 GB</b>; the bound is 4 GB.",
    )
    exclude_host(
        cluster=job.cluster,
        host="wn-0233",
        reason="The disk is <b>full</b>.",
        by=shifter,
        at=at,
        expires_at=at + timedelta(days=30),
    )
    MeasuredState.objects.create(
        cluster=job.cluster,
        host="wn-0233",
        probe=Probe.objects.get(name="scratch"),
        good=False,
        message="<b>read-only</b> file system",
        measured_at=at,
        since=at,
    )
    HostSpan.objects.create(
        cluster=job.cluster,
        host="wn-0233",
        state="drained",
        words="IDLE+DRAIN",
        reason="<b>disk</b> is full",
        since=at,
        seen_at=at,
    )
    propose_pack(text=PACK, by=liaison, at=at, reason="Our own levels.")
    freeze_weekly_reports(at=at + timedelta(days=7))
    return World(
        nova=nova,
        request=request,
        service=service,
        incident=incident,
        window=window,
        announcement=announcement,
        alert=UnmappedAlert.objects.get(),
        job=job,
        archived=ArchivedJob.objects.get(),
        webhook=add_webhook(url="https://chat.example.org/", experiment=nova, by=shifter, at=at),
    )


def _ledger_of(stage: Stage, at: datetime) -> None:
    """Files of a stage in all states, one done twice, with hostile names."""
    states = ["waiting", "taken", "done", "done", "failed", "given_up"]
    for number, state in enumerate(states):
        InputFile.objects.create(
            stage=stage,
            name=f"raw_{number}_<b>.root",
            number=number,
            state=state,
            is_doubled=number == 2,
            reason="It is <b>gone</b>." if state == "given_up" else "",
            changed_at=at,
        )
    FileTotals.objects.create(
        stage=stage, files=6, waiting=1, taken=1, done=2, failed=1, given_up=1, doubled=1
    )
    OutputFile.objects.create(
        stage=stage, key="86_2", name="reco_<b>.root", size_bytes=9, number=2, at=at
    )


def _failed_job(request: Request, roots: Path, at: datetime) -> Job:
    cluster = clusters.cluster()
    log = roots / "4711.out"
    log.write_text(LOG)
    variables = (
        ("OPSPORTAL_REQUEST", request.key),
        ("OPSPORTAL_STAGE", "reco"),
        ("EVIL", "<img src=x>"),
    )
    captured = CapturedJob(
        cluster="alps",
        scheduler="simulated",
        job_id="4711",
        submitted_at=at - timedelta(hours=2),
        captured_at=at - timedelta(hours=2),
        script=SCRIPT,
        environment=environment_bytes(variables),
        request_key=request.key,
        stage="reco",
    )
    store_jobs(jobs=[captured], by="test", at=at)
    record = failed(
        4711,
        exit_code=65,
        name="<script>alert(1)</script>",
        host="wn-0233",
        submitted_at=at - timedelta(hours=2),
        started_at=at - timedelta(minutes=90),
        ended_at=at - timedelta(minutes=30),
    )
    (job,) = store(cluster, record, at=at)
    Job.objects.filter(pk=job.pk).update(log_path=str(log))
    for _ in range(3):
        tasks.deliver_waiting()
    harvest_log(
        harvest=LogHarvest.objects.select_related("job__cluster", "job__experiment").get(job=job),
        at=at,
    )
    recompute_dirty_hours(at=at)
    recount_dirty_hours()
    job.refresh_from_db()
    return job
