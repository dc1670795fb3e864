"""Progress of each point of a parameter scan, from the arrays that the portal submitted.

It never counts jobs.
"""

from collections import Counter
from dataclasses import dataclass

from apps.production.domain.content.scan import Point, read_scan
from apps.production.models import Request
from apps.submission.domain.arrays.submissions import stage_submissions_of


@dataclass(frozen=True)
class PointStage:
    """The jobs of a stage at a point. `requested_jobs` is None if the stage does not state them."""

    stage: str
    output_dataset: str
    requested_jobs: int | None
    completed: int = 0
    failed: int = 0
    in_scheduler: int = 0


@dataclass(frozen=True)
class PointProgress:
    point: Point
    stages: list[PointStage]

    @property
    def requested_jobs(self) -> int:
        return sum(stage.requested_jobs or 0 for stage in self.stages)

    @property
    def completed(self) -> int:
        return sum(stage.completed for stage in self.stages)

    @property
    def failed(self) -> int:
        return sum(stage.failed for stage in self.stages)

    @property
    def is_done(self) -> bool:
        return all(
            stage.requested_jobs is not None and stage.completed >= stage.requested_jobs
            for stage in self.stages
        )

    @property
    def last_dataset(self) -> str:
        """The dataset that the last stage writes."""
        return self.stages[-1].output_dataset if self.stages else ""

    @property
    def in_scheduler(self) -> int:
        return sum(stage.in_scheduler for stage in self.stages)


def points_of(request: Request) -> list[PointProgress]:
    """Return the points of a request in order, in a fixed number of queries.

    Empty without a scan.
    """
    scan = read_scan(request.scan)
    if not scan.points:
        return []
    stages_by_point: dict[int, list[PointStage]] = {point.index: [] for point in scan.points}
    for stage_submissions in stage_submissions_of(request):
        stage = stage_submissions.stage
        completed = Counter[int]()
        failed = Counter[int]()
        current = Counter[int]()
        for array in stage_submissions.submissions:
            # No array has jobs of two points, and a retry has only jobs of its array.
            index = min(array.first // scan.jobs_each(stage.jobs), scan.count - 1)
            completed[index] += array.completed
            failed[index] += (
                array.ended - array.completed - (array.tasks if array.retry_of_id else 0)
            )
            current[index] += array.tasks - array.ended if array.sent_at else 0
        for point in scan.points:
            here = PointStage(
                stage.name,
                point.text(stage.output_dataset),
                scan.jobs_each(stage.jobs) if stage.jobs else None,
                completed[point.index],
                max(0, failed[point.index]),
                current[point.index],
            )
            stages_by_point[point.index].append(here)
    return [PointProgress(point, stages_by_point[point.index]) for point in scan.points]
