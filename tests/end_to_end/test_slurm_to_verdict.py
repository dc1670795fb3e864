"""One real Slurm, from the spool to the verdict on a page: jobs that end in every way."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from apps.archive.domain.store.contents import archived_job_for, read_blob
from apps.archive.models import ArchivedJob
from apps.clusters.domain import ensure_cluster
from apps.core import tasks as core_tasks
from apps.diagnosis import tasks as diagnosis_tasks
from apps.diagnosis.enums import HarvestState
from apps.diagnosis.models import LogHarvest
from apps.jobs.domain.collection.accounting import LAG, collect_finished_jobs
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import AccountMap, Job
from tests.factories import people
from tests.factories.archive import archive_all
from tests.factories.capture import capture_once
from tests.programs.slurm_server import SlurmServer

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(900),
]

SLEEP = "#!/bin/sh\necho started\nsleep 300\n"
KNOWN_ERROR = """#!/bin/bash
#SBATCH --job-name=declare
echo "declaring the output"
echo "HTTP error: 503 Service Unavailable: samweb.declareFile" >&2
exit 65
"""


@dataclass
class Submitted:
    """Jobs by the name that the test gives them: id, script,
    and the environment file as Slurm wrote it.
    """

    slurm: SlurmServer
    started_at: datetime = field(default_factory=lambda: timezone.now() - timedelta(seconds=2))
    ids: dict[str, str] = field(default_factory=dict)
    scripts: dict[str, bytes] = field(default_factory=dict)
    environments: dict[str, bytes] = field(default_factory=dict)

    def submit(self, name: str, script: str, *options: str, **environment: str) -> str:
        job_id = self.slurm.submit(script, *options, env=environment)
        self.ids[name], self.scripts[name] = job_id, script.encode()
        self.environments[name] = (self.slurm.job_dir(job_id) / "environment").read_bytes()
        return job_id

    def job(self, name: str) -> Job:
        return Job.objects.get(spool_id=self.ids[name], submitted_at__gte=self.started_at)


def submit_all(slurm: SlurmServer) -> Submitted:
    jobs = Submitted(slurm)
    request = {"OPSPORTAL_REQUEST": "NOVA-0042", "OPSPORTAL_STAGE": "reco"}
    jobs.submit("ok", "#!/bin/sh\necho fine\n", MULTI="a\nb=c", **request)
    jobs.submit("known error", KNOWN_ERROR, "--account=ops", **request)
    jobs.submit("signal", "#!/bin/bash\nkill -SEGV $$\n")
    jobs.submit("array", "#!/bin/sh\nexit $SLURM_ARRAY_TASK_ID\n", "--array=0,3")
    limit = jobs.submit("limit", SLEEP, "--time=5")
    cancelled = jobs.submit("cancelled", SLEEP)
    pending = jobs.submit("pending", SLEEP, "--hold")
    requeued = jobs.submit(
        "requeued", '#!/bin/sh\n[ "$SLURM_RESTART_COUNT" = 1 ] && exit 4\nsleep 300\n'
    )
    if slurm.limits_memory:
        jobs.submit(
            "memory", "#!/bin/sh\nhead -c 300M /dev/zero | tail -c 250M | wc -c\n", "--mem=30"
        )
    for job_id in (limit, cancelled, requeued):
        slurm.wait_state(job_id, "RUNNING")
    slurm.scontrol("update", f"jobid={limit}", "endtime=now+3")
    slurm.run("scancel", cancelled)
    slurm.run("scancel", pending)
    slurm.scontrol("requeue", requeued)
    slurm.wait_state(requeued, "PENDING", reason="BeginTime")
    # A node refuses it in the second of its end.
    slurm.scontrol("update", f"jobid={requeued}", "starttime=now+3")
    slurm.wait_ended(jobs.ids.values())
    return jobs


def work_everything_off() -> None:
    """Do what worker and beat do, until nothing waits."""
    for _ in range(5):
        core_tasks.deliver_waiting()
        waiting = LogHarvest.objects.filter(state=HarvestState.QUEUED)
        for pk in list(waiting.values_list("pk", flat=True)):
            diagnosis_tasks.harvest_log(harvest_id=pk)
    recompute_dirty_hours(at=timezone.now())
    diagnosis_tasks.recount_causes()


@pytest.fixture
def portal(slurm, settings, tmp_path) -> Callable[[], None]:
    """A portal that knows this Slurm; calling it captures, collects and judges."""
    settings.LOG_ROOTS = [slurm.jobs_dir]
    AccountMap.objects.get_or_create(account="ops", experiment=people.experiment("NOVA", "NOvA"))
    cluster = ensure_cluster(
        name=slurm.cluster,
        scheduler="slurm",
        by="test",
        at=people.LONG_AGO,
        options={"conf": str(slurm.conf), "log_owners": "root"},
    )

    def run() -> None:
        options = {
            "cluster": slurm.cluster,
            "scheduler": "slurm",
            "spool": slurm.state_dir,
            "journal": tmp_path,
        }
        capture_once(**options)
        archive_all()
        time.sleep(LAG.total_seconds() + 1)
        collected = collect_finished_jobs(cluster=cluster, at=timezone.now())
        assert collected is not None
        assert not collected.problem
        work_everything_off()

    return run


def test_every_ending_comes_through_to_its_verdict(slurm, portal, client, capsys):
    jobs = submit_all(slurm)
    portal()

    capsys.readouterr()
    call_command("archive", "list", cluster=slurm.cluster)
    listed = {row["job_id"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    for name, job_id in jobs.ids.items():
        archived = ArchivedJob.objects.get(job_id=job_id, submitted_at__gte=jobs.started_at)
        assert read_blob(archived.script) == jobs.scripts[name], name
        assert read_blob(archived.environment) == jobs.environments[name], name
        assert listed[job_id]["script_sha256"] == hashlib.sha256(jobs.scripts[name]).hexdigest()
    call_command("archive", "verify")

    expected = {
        "ok": ("completed", 0, 0, None),
        "known error": ("failed", 65, 0, ("service", "retry")),
        "signal": ("failed", 0, 11, ("code", "debug")),
        "limit": ("timeout", 0, 0, ("resource", None)),
        "cancelled": ("cancelled", 0, 0, ("user", None)),
        "pending": ("cancelled", 0, 0, ("user", None)),
        "memory": ("out_of_memory", 0, 125, ("resource", None)),
    }
    for name, (state, exit_code, signal, judged) in expected.items():
        if name not in jobs.ids:
            continue
        job = jobs.job(name)
        assert (job.state, job.exit_code, job.signal) == (state, exit_code, signal), name
        verdict = getattr(job, "verdict", None)
        assert (verdict.verdict if verdict else None) == (judged[0] if judged else None), name
        if judged and judged[1]:
            assert verdict.advice == judged[1]

    tasks = Job.objects.filter(spool_id=jobs.ids["array"], submitted_at__gte=jobs.started_at)
    assert sorted(
        (task.job_id.partition("_")[2], task.state, task.exit_code) for task in tasks
    ) == [
        ("0", "completed", 0),
        ("3", "failed", 3),
    ]
    assert len({archived_job_for(task).pk for task in tasks}) == 1
    attempts = Job.objects.filter(
        job_id=jobs.ids["requeued"], ended_at__gte=jobs.started_at
    ).order_by("attempt")
    assert [(job.attempt, job.state, job.exit_code) for job in attempts] == [
        (1, "requeued", 0),
        (2, "failed", 4),
    ]

    failed = jobs.job("known error")
    assert (failed.request_key, failed.stage, failed.experiment.key) == (
        "NOVA-0042",
        "reco",
        "NOVA",
    )
    client.force_login(people.person("shifter-one", ("shifter", None)))
    page = client.get(f"/jobs/{failed.pk}/").content.decode()
    assert page.index("Service problem: retry") < page.index("HTTP error: 503")
    assert "declaring the output" in page
    assert "samweb" in page[page.index("HTTP error: 503") :]
