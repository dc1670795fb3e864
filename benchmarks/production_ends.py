"""Synthetic verdicts, archived jobs, data quality and service states for the jobs of
`production_runs`, in bulk.
"""

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING

from apps.archive.domain.store.compression import Compressor
from apps.archive.models import ArchivedJob, Blob
from apps.diagnosis.models import Evidence, LogHarvest, Verdict
from apps.jobs.models import Job
from apps.production.models import Request
from apps.quality.models import QualityResult, QualityRun
from apps.statusboard.models import Announcement, Incident, Service

if TYPE_CHECKING:
    from benchmarks.production_rows import Filler

SCRIPT = b"#!/bin/bash\n" + b"echo a line of the script of a stage of generation\n" * 60
ENVIRONMENT = b"\x02\0\0\0OPSPORTAL_STAGE=generation\0USER=pro1\0"
FAULTS = (
    ("service", "retry", "service"),
    ("code", "debug", "experiment-code"),
    ("resource", "retry", "resource"),
)


class Ends:
    """Adds the outcome of jobs, and the states of services in the meantime."""

    def __init__(self, filler: "Filler") -> None:
        self.at, self.people = filler.at, filler.people

    def add(self, requests: list[Request]) -> None:
        jobs = list(Job.objects.filter(request__in=requests).order_by("pk"))
        self._verdicts([job for job in jobs if job.state == "failed"])
        self._archive(jobs)
        self._quality(
            [
                request
                for request in requests
                if request.end in {"data_quality", "done", "done_partial"}
            ]
        )
        self._board(1 + len(requests) // 48)

    def _verdicts(self, jobs: list[Job]) -> None:
        harvests = LogHarvest.objects.bulk_create(
            (
                LogHarvest(job=job, state="done", attempts=1, due_at=self.at, harvested_at=self.at)
                for job in jobs
            ),
            batch_size=2000,
        )
        Evidence.objects.bulk_create(
            (
                Evidence(
                    harvest=harvest,
                    stream="output",
                    line=10 + n,
                    offset=900 + n,
                    pattern="SAMWEB-TIMEOUT",
                    role="cause",
                    category="service",
                    text="samweb: timed out",
                )
                for harvest in harvests
                for n in range(2)
            ),
            batch_size=2000,
        )
        Verdict.objects.bulk_create((self._verdict(job) for job in jobs), batch_size=2000)

    def _verdict(self, job: Job) -> Verdict:
        kind, advice, category = FAULTS[job.pk % 3]
        return Verdict(
            job=job,
            experiment_id=job.experiment_id,
            ended_at=job.ended_at,
            verdict=kind,
            machine_verdict=kind,
            advice=advice,
            category=category,
            confidence="high",
            cause="SAMWEB-TIMEOUT",
            service="service-0",
            summary="The service did not answer in time.",
            reasons=[{"kind": "catalogue", "text": "SAMWEB-TIMEOUT", "target": "output:900"}] * 3,
            catalogue_version="1",
            decided_at=self.at,
        )

    def _archive(self, jobs: list[Job]) -> None:
        script, environment = self._blob("script", SCRIPT), self._blob("environment", ENVIRONMENT)
        ArchivedJob.objects.bulk_create(
            (
                ArchivedJob(
                    cluster_id=job.cluster_id,
                    job_id=job.job_id,
                    submitted_at=job.submitted_at,
                    script=script,
                    environment=environment,
                    script_bytes=len(SCRIPT),
                    environment_bytes=len(ENVIRONMENT),
                    captured_at=job.submitted_at,
                    request_key=job.request_key,
                    stage=job.stage,
                    experiment_id=job.experiment_id,
                    user=job.user,
                    name=job.name,
                    state=job.state,
                )
                for job in jobs
            ),
            batch_size=2000,
        )

    def _blob(self, kind: str, content: bytes) -> Blob:
        data = {
            "kind": kind,
            "size_bytes": len(content),
            "data": Compressor(None).compress(content),
        }
        return Blob.objects.get_or_create(sha256=hashlib.sha256(content).digest(), defaults=data)[0]

    def _quality(self, requests: list[Request]) -> None:
        runs = QualityRun.objects.bulk_create(
            QualityRun(
                request=request,
                number=number,
                arrival=1,
                state="evaluated",
                requested_at=self.at,
                requested_by="portal",
                evaluated_at=self.at,
            )
            for request in requests
            for number in (1, 2)
        )
        QualityResult.objects.bulk_create(
            (
                QualityResult(
                    run=run,
                    place=place,
                    position=place,
                    stage_name="generation",
                    check_name="events-agree",
                    title="Events in and out",
                    outcome=("passed", "warned")[place % 2],
                    blocks=False,
                    why="3,900,000 of 4,000,000 events.",
                    digest=f"{place}",
                )
                for run in runs
                for place in range(4)
            ),
            batch_size=2000,
        )

    def _board(self, count: int) -> None:
        services, day = list(Service.objects.order_by("pk")), timedelta(days=1)
        Incident.objects.bulk_create(
            Incident(
                service=services[n % len(services)],
                state="down",
                title="No answer",
                episode_started_at=self.at - (n + 2) * day,
                started_at=self.at - (n + 2) * day,
                ended_at=self.at - (n + 1.9) * day,
                resolution="manual",
            )
            for n in range(count)
        )
        Announcement.objects.bulk_create(
            Announcement(
                title="Less disk",
                starts_at=self.at - (n + 2) * day,
                ends_at=self.at - day,
                posted_by="shifter-0",
            )
            for n in range(count)
        )
