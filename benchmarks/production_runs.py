"""Synthetic jobs, submissions, counts and holds for the requests of `production_rows`,
written in bulk.
"""

import itertools
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from apps.jobs.domain.totals.rollups import ends_of
from apps.jobs.models import HourlyEnds, HourlyTotals, Job, QueueCount
from apps.production.enums import CLOSED, RequestState
from apps.production.models import (
    Hold,
    OutputReport,
    Request,
    Stage,
    StageCounts,
    StageHistory,
    StageLocation,
)
from apps.submission.models import Assignment, Submission

if TYPE_CHECKING:
    from benchmarks.production_rows import Filler

S = RequestState
#: Jobs have run for it.
RAN = frozenset({S.RUNNING, S.ON_HOLD, S.COMPLETING, S.DATA_QUALITY, S.DONE, S.DONE_PARTIAL})
ENDS = ("completed", "failed")
ENDING = ("hour", "cluster", "experiment", "state", "jobs", "core_seconds")


class Runs:
    """Adds the jobs of requests; takes their stages by primary key."""

    def __init__(self, filler: "Filler", stages: dict[int, list[Stage]]) -> None:
        self.filler = filler
        self.stages = stages
        self.at, self.size, self.people = filler.at, filler.size, filler.people
        self.clusters, self.sites = filler.clusters, filler.sites

    def add(self, requests: list[Request]) -> None:
        self._jobs(requests)
        self._submissions(requests)
        self._outputs(requests)
        self._holds(requests)

    def _jobs(self, requests: list[Request]) -> None:
        ran = [
            (request, stage)
            for request in requests
            if request.end in RAN
            for stage in self.stages[request.pk]
        ]
        hour = self.at.replace(minute=0, second=0, microsecond=0)
        HourlyTotals.objects.bulk_create(
            (
                self._totals(*one, hour - timedelta(hours=n), state)
                for one in ran
                for n in range(4)
                for state in ENDS
            ),
            batch_size=2000,
        )
        HourlyEnds.objects.all().delete()
        HourlyEnds.objects.bulk_create(ends_of(HourlyTotals.objects.only(*ENDING)))
        QueueCount.objects.bulk_create(
            (
                QueueCount(
                    cluster=cluster,
                    request=request,
                    stage=stage.name,
                    queued=5,
                    running=7,
                    newest_submitted_at=self.at,
                )
                for request, stage in ran
                if request.end == S.RUNNING
                for cluster in self.clusters
            ),
            batch_size=2000,
        )
        numbers = itertools.count(1 + Job.objects.count())
        Job.objects.bulk_create(
            (
                self._job(*one, state, next(numbers))
                for one in ran
                for state in ENDS
                for _ in range(self.size)
            ),
            batch_size=1000,
        )
        StageHistory.objects.bulk_create(
            (self._history(*one) for one in ran if one[0].end not in {S.RUNNING, S.ON_HOLD}),
            batch_size=1000,
        )

    def _totals(self, request: Request, stage: Stage, hour: datetime, state: str) -> HourlyTotals:
        return HourlyTotals(
            hour=hour,
            cluster=self.clusters[request.pk % 3],
            experiment=request.experiment,
            request_key=request.key,
            stage=stage.name,
            state=state,
            jobs=20,
            wall_seconds=70_000,
            core_seconds=70_000,
            cpu_seconds=60_000,
            last_ended_at=hour + timedelta(minutes=50),
        )

    def _job(self, request: Request, stage: Stage, state: str, number: int) -> Job:
        end = self.at - timedelta(minutes=number % 10_000)
        return Job(
            cluster=self.clusters[request.pk % 3],
            job_id=f"{number}",
            raw_id=number,
            spool_id=f"{stage.pk}",
            state=state,
            submitted_at=end - timedelta(hours=3),
            started_at=end - timedelta(hours=2),
            ended_at=end,
            host=f"wn-{number % 400}",
            site=self.sites[number % 5],
            cpus=1,
            cpu_seconds=6000,
            wall_seconds=7200,
            user=f"pro{number % 9}",
            name="run",
            experiment=request.experiment,
            request_key=request.key,
            stage=stage.name,
            request=request,
            collected_at=self.at,
        )

    def _history(self, request: Request, stage: Stage) -> StageHistory:
        return StageHistory(
            request=request,
            experiment=request.experiment,
            name=stage.name.casefold(),
            release=stage.release,
            configuration=stage.configuration,
            output_dataset=stage.output_dataset,
            events_per_job=10_000,
            attempts=420,
            completed=400,
            core_seconds=420 * 7200,
            completed_wall_seconds=400 * 7000,
            wall_seconds=[5000, 6000, 7000, 8000, 9000],
            memory_bytes=[2e9, 2.2e9, 2.5e9, 2.8e9, 3e9],
            per_day=[80, 90, 100, 110, 120],
            last_ended_at=request.created_at,
            last_completed_at=request.created_at,
        )

    def _submissions(self, requests: list[Request]) -> None:
        sent = [request for request in requests if request.end in RAN | {S.TESTING}]
        Assignment.objects.bulk_create(
            (
                Assignment(
                    request=one,
                    cluster=self.clusters[one.pk % 3],
                    assigned_at=self.at,
                    assigned_by="shifter-0",
                )
                for one in sent
            ),
            batch_size=1000,
        )
        of_stages = [
            (request, stage, part)
            for request in sent
            for stage in self.stages[request.pk]
            for part in range(2)
        ]
        Submission.objects.bulk_create(
            (self._submission(*of_stage) for of_stage in of_stages), batch_size=500
        )

    def _submission(self, request: Request, stage: Stage, part: int) -> Submission:
        return Submission(
            request=request,
            cluster=self.clusters[request.pk % 3],
            number=2 * stage.position + part + 1,
            position=stage.position,
            stage_name=stage.name,
            first=200 * part,
            tasks=200,
            state="sent",
            script="#!/bin/bash\n" + "echo of the script of a stage\n" * 30,
            script_sha256="0" * 64,
            due_at=self.at,
            sent_at=self.at - timedelta(hours=5),
            spool_id=f"{stage.pk}" if part == 0 else f"{stage.pk}0",
            ended=150,
            completed=140,
            failed_indices=f"{200 * part + 3}-{200 * part + 12}",
            settled_at=self.at if request.end in CLOSED else None,
            created_at=self.at - timedelta(hours=6),
            created_by="shifter-0",
        )

    def _outputs(self, requests: list[Request]) -> None:
        counts = {
            "files_in": 400,
            "events_in": 4_000_000,
            "files_out": 390,
            "events_out": 3_900_000,
        }
        wrote = [
            stage for request in requests if request.end in RAN for stage in self.stages[request.pk]
        ]
        OutputReport.objects.bulk_create(
            (
                OutputReport(
                    stage=stage, key=f"job-{n}", by="x", at=self.at, counted=True, **counts
                )
                for stage in wrote
                for n in range(1 + self.size)
            ),
            batch_size=2000,
        )
        StageCounts.objects.bulk_create(
            (StageCounts(stage=stage, reports=2, counted_at=self.at, **counts) for stage in wrote),
            batch_size=2000,
        )
        StageLocation.objects.bulk_create(
            (
                StageLocation(stage=stage, note="in the catalogue", at=self.at, by="x")
                for stage in wrote
            ),
            batch_size=2000,
        )

    def _holds(self, requests: list[Request]) -> None:
        shifter, since = self.people["shifter-0"], self.at - timedelta(days=1)
        lifted = {"lifted_at": self.at, "lifted_by": shifter}
        rows = [
            Hold(reason="The farm is full.", at=since, by=shifter, **lifted)
            for _ in range(len(requests) // 20)
        ]
        rows += [
            Hold(stage=self.stages[request.pk][0], reason="Look at its log.", at=since, by=shifter)
            for request in requests
            if request.end == S.RUNNING and request.pk % 2
        ]
        if not self.filler.made:
            rows.append(
                Hold(
                    experiment=self.filler.of[0],
                    reason="Its quota is used up.",
                    at=since,
                    by=shifter,
                )
            )
        Hold.objects.bulk_create(rows, batch_size=1000)
