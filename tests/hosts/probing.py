"""Plan, submit and report probe jobs, as workers and hosts do."""

import os
import subprocess
from datetime import timedelta

from django.db import transaction

from apps.clusters.models import Cluster, Host
from apps.hosts.domain.exclusions import store_exclusion
from apps.hosts.domain.probes import probe_jobs
from apps.hosts.domain.probes.probe_jobs import plan_probe_jobs
from apps.hosts.domain.probes.results import store_results
from apps.hosts.models import ProbeJob
from apps.production.enums import PORTAL

MINUTE = timedelta(minutes=1)


def send_probe_jobs(*, at):
    """Submit the probe jobs of all clusters."""
    done = 0
    for cluster in Cluster.objects.all():
        done += probe_jobs.send_probe_jobs(cluster=cluster, now=lambda: at)
    return done


def give_up_on_probe_jobs(*, at):
    """Give up on the probe jobs of all clusters that did not report."""
    lost = 0
    for cluster in Cluster.objects.all():
        lost += probe_jobs.give_up_on_probe_jobs(cluster=cluster, at=at)
    return lost


def list_hosts(cluster, names, at):
    for name in names:
        Host.objects.create(
            cluster=cluster, name=f"{name}.example.org", listed_at=at + timedelta(days=2)
        )


def exclude_as_portal(cluster, host, at):
    with transaction.atomic():
        return store_exclusion(
            cluster=cluster,
            host=host,
            reason="9 of 9 jobs failed.",
            by=PORTAL,
            at=at,
            expires_at=at + timedelta(days=1),
            evidence=None,
            automatic=True,
        )


def report(job, at, *, exit_code=0, names=("disk", "mount"), note="fine"):
    phases = []
    for name in names:
        phases.append(
            {
                "name": name,
                "started_at": at.timestamp() - 3,
                "ended_at": at.timestamp(),
                "exit_code": exit_code,
                "note": note,
            }
        )
    return store_results(job_name=job.name, phases=phases, at=at)


def probe_once(at, *, exit_code=0):
    """Plan, submit and report the probe jobs that are due."""
    plan_probe_jobs(at=at)
    send_probe_jobs(at=at)
    for job in ProbeJob.objects.filter(state="sent"):
        report(job, at + MINUTE, exit_code=exit_code)


def run_script(fake, job, directory):
    variables = fake.environment(job.spool_id)
    return subprocess.run(
        ["sh", str(fake.directory / f"script.{job.spool_id}")],
        env={
            "PATH": os.environ["PATH"],
            "TMPDIR": str(directory),
            "OPS_PHASE_JOB": f"{job.spool_id}_0",
            "OPSPORTAL_URL": variables["OPSPORTAL_URL"],
            "OPSPORTAL_PHASE_TOKEN": variables["OPSPORTAL_PHASE_TOKEN"],
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
