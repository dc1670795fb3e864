"""What a real Slurm's spool, controller and accounting tell of one job come together in the
archive.
"""

import json
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from apps.archive.domain.links import describe_jobs
from apps.archive.domain.store.contents import archived_job_for, read_blob
from apps.archive.domain.verification import CopyResult, check_copies
from apps.archive.models import ArchivedJob
from apps.clusters.domain import ensure_cluster
from apps.clusters.schedulers.environment import variables_in
from apps.core.domain.outbox import deliver
from apps.core.models import Delivery
from apps.jobs.domain.collection.accounting import collect_again, collect_finished_jobs
from apps.jobs.models import Job
from tests.factories.archive import archive_all
from tests.factories.capture import capture_once
from tests.programs.slurm_server import SlurmServer

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(900),
]

RULE = "-" * 80


@dataclass
class Submitted:
    """Jobs by the name that the test gives them."""

    slurm: SlurmServer
    since: object = field(default_factory=lambda: timezone.now().replace(microsecond=0))
    ids: dict[str, str] = field(default_factory=dict)
    scripts: dict[str, bytes] = field(default_factory=dict)

    def submit(self, name, script, *options, arguments=(), env=None):
        path = self.slurm.jobs_dir / f"{name}.sh"
        path.write_bytes(script)
        command = ["sbatch", "--parsable", *options, str(path), *arguments]
        self.ids[name], self.scripts[name] = self.slurm.run(*command, env=env).strip(), script
        return self.ids[name]

    def archived(self, name):
        return ArchivedJob.objects.get(job_id=self.ids[name], submitted_at__gte=self.since)

    def in_accounting(self, name):
        return Job.objects.filter(spool_id=self.ids[name], submitted_at__gte=self.since).order_by(
            "job_id", "attempt"
        )


@pytest.fixture(scope="module")
def jobs(slurm):
    """Run them all at once, and wait for their ends."""
    jobs = Submitted(slurm)
    requeued = jobs.submit(
        "requeued", b'#!/bin/sh\n[ "$SLURM_RESTART_COUNT" = 1 ] && exit 4\nsleep 300\n'
    )
    jobs.submit(
        "array",
        b"#!/bin/sh\n# array\nexit $SLURM_ARRAY_TASK_ID\n",
        "--array=0,2-3",
        arguments=["x", "y z"],
    )
    jobs.submit(
        "het", b"#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2\ntrue\n", arguments=["both"]
    )
    jobs.submit(
        "odd",
        b"#!/bin/sh\n# caf\xe9 \xf0\x9f\x98\x80\ntrue",
        env={"MULTI": "a\nB=c", "MY_TOKEN": "one\ntwo"},
    )
    jobs.submit("waiting", b"#!/bin/sh\n# waiting\n", "--hold", arguments=["soon"])
    other = jobs.submit("other", b"#!/bin/sh\n# other\n")
    jobs.submit(
        "forger", f"#!/bin/sh\n: '\n\nBatch Script for {other}\n{RULE}\n#!/bin/sh\n'\n".encode()
    )
    jobs.scripts["rejected"] = b"#!/bin/sh\n# rejected\n"
    (slurm.jobs_dir / "rejected.sh").write_bytes(jobs.scripts["rejected"])
    with pytest.raises(AssertionError, match="not available"):
        slurm.run("sbatch", "--mem=9000G", "rejected.sh")
    slurm.wait_state(requeued, "RUNNING")
    slurm.scontrol("requeue", requeued)
    slurm.wait_state(requeued, "PENDING", reason="BeginTime")
    # A node refuses it in the second of its end.
    slurm.scontrol("update", f"jobid={requeued}", "starttime=now+3")
    jobs.ids["rejected"] = slurm.run(
        "squeue", "-h", "-t", "all", "-n", "rejected.sh", "-o", "%A"
    ).split()[0]
    try:
        slurm.wait_ended(job_id for name, job_id in jobs.ids.items() if name != "waiting")
        yield jobs
    finally:
        slurm.run("scancel", jobs.ids["waiting"])


@pytest.fixture
def cluster(jobs, tmp_path, settings):
    """A portal that has captured all of them, and heard nothing of accounting."""
    settings.MASKING_KEY = "k" * 50
    slurm = jobs.slurm
    cluster = ensure_cluster(
        name=slurm.cluster,
        scheduler="slurm",
        by="test",
        at=jobs.since,
        options={"conf": str(slurm.conf)},
    )
    capture = {
        "cluster": slurm.cluster,
        "scheduler": "slurm",
        "spool": slurm.state_dir,
        "journal": tmp_path,
    }
    capture_once(**capture)
    archive_all()
    return cluster


def collect(cluster, jobs):
    collect_again(cluster=cluster, since=jobs.since - timedelta(seconds=5), at=timezone.now())
    collected = collect_finished_jobs(cluster=cluster, at=timezone.now() + timedelta(seconds=5))
    assert collected is not None
    assert not collected.problem
    deliver_all()


def deliver_all():
    for pk in Delivery.objects.filter(delivered_at=None).values_list("pk", flat=True):
        assert deliver(delivery_id=pk, at=timezone.now())


def test_tasks_components_and_attempts_find_their_scripts_and_facts(jobs, cluster):
    collect(cluster, jobs)

    for name in ("array", "requeued", "rejected"):
        archived = jobs.archived(name)
        assert read_blob(archived.script) == jobs.scripts[name]
        assert {archived_job_for(job) for job in jobs.in_accounting(name)} == {archived}
    assert [job.job_id.partition("_")[2] for job in jobs.in_accounting("array")] == ["0", "2", "3"]
    assert [(job.attempt, job.state) for job in jobs.in_accounting("requeued")] == [
        (1, "requeued"),
        (2, "failed"),
    ]
    facts = {name: jobs.archived(name) for name in ("array", "requeued", "rejected", "het", "odd")}
    assert {name: (row.state, row.arguments) for name, row in facts.items()} == {
        "array": ("failed", "x y z"),
        "requeued": ("failed", ""),
        "rejected": ("failed", ""),
        "het": ("completed", "both"),
        "odd": ("completed", ""),
    }
    assert {(row.user, row.account, row.name == f"{name}.sh") for name, row in facts.items()} == {
        ("root", "ops", True)
    }


def test_each_component_of_a_heterogeneous_job_has_its_script(jobs, cluster):
    collect(cluster, jobs)
    components = Job.objects.filter(job_id__startswith=f"{jobs.ids['het']}+").order_by("job_id")

    scripts = [read_blob(archived_job_for(job).script) for job in components]

    assert scripts == [jobs.scripts["het"], b"#!/bin/sh\n#SBATCH -n2\nexit 0\n"]


def test_controller_alone_tells_users_and_arguments_also_of_jobs_that_wait(jobs, cluster):
    assert describe_jobs(cluster=cluster, at=timezone.now()) >= len(jobs.ids)

    rows = {name: jobs.archived(name) for name in jobs.ids}
    assert {(row.user, row.account) for row in rows.values()} == {("root", "ops")}
    assert [rows[name].arguments for name in ("waiting", "array", "het", "other")] == [
        "soon",
        "x y z",
        "both",
        "",
    ]
    assert rows["waiting"].state == ""


def test_check_says_where_accounting_has_other_copies(jobs, cluster):
    collect(cluster, jobs)
    findings = check_copies(cluster=cluster, since=jobs.since, by="test", at=timezone.now())
    found = {}
    for finding in findings:
        found.setdefault(finding.job_id, set()).add((finding.kind, finding.detail))

    for name in ("requeued", "rejected", "forger", "other", "het"):
        assert found[jobs.ids[name]] == {(CopyResult.ALIKE, "")}, name
    added = (
        "SLURM_ARRAY_TASK_COUNT, SLURM_ARRAY_TASK_MIN, SLURM_ARRAY_TASK_MAX, SLURM_ARRAY_TASK_STEP"
    )
    assert found[jobs.ids["array"]] == {(CopyResult.ENVIRONMENT, f"accounting has more: {added}")}
    assert found[jobs.ids["odd"]] == {(CopyResult.ENCODING, ""), (CopyResult.NEWLINES, "")}


def test_what_the_archive_lacks_is_named_and_filled_in(jobs, cluster, capsysbinary):
    collect(cluster, jobs)
    ids = [jobs.ids[name] for name in ("odd", "array", "forger")]
    ArchivedJob.objects.filter(job_id__in=ids).delete()
    arguments = [
        "check",
        "--cluster",
        cluster.name,
        *(f"--job={job_id}" for job_id in ids),
        "--json",
    ]

    with pytest.raises(CommandError, match="3 jobs are missing from the archive"):
        call_command("archive", *arguments)
    call_command("archive", *arguments, "--backfill")
    deliver_all()

    lines = [
        json.loads(line)
        for line in capsysbinary.readouterr().out.splitlines()
        if line.startswith(b"{")
    ]
    assert [line["found"] for line in lines] == ["missing"] * 3 + ["backfilled"] * 3
    for name in ("array", "forger"):
        assert read_blob(jobs.archived(name).script) == jobs.scripts[name]
    odd = jobs.archived("odd")
    assert (odd.caveat, odd.state) == ("from slurmdbd's copy, not from the spool", "completed")
    variables = dict(variables_in(read_blob(odd.environment)))
    assert (variables[b"MULTI"], variables[b"B"]) == (b"a", b"c")
    assert variables[b"MY_TOKEN"].startswith(b"<masked:")
    assert b"two" not in read_blob(odd.environment)
