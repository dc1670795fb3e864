"""A request whose data quality is to be evaluated, for tests."""

from dataclasses import dataclass
from datetime import timedelta

from apps.core.domain.events import events_of
from apps.datasets.domain.output_files import NamedFile
from apps.jobs.domain.collection.origin import attach_origin
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.production.domain.outputs import counts
from apps.production.models import Request, Stage
from apps.quality.domain import runs
from apps.quality.domain.data_quality import data_quality_of
from apps.quality.domain.posts import name_files
from apps.quality.tasks import check_request
from tests.factories import clusters
from tests.factories.jobs import failed, record, store
from tests.factories.requests import AT

LATER = AT + timedelta(hours=2)
#: When `factories.requests` lets requests come into the queue, and into all states after it.
QUEUED_AT = AT + timedelta(hours=1)


@dataclass
class Produced:
    """A request of two stages of two jobs and ten events each, in data quality,
    and what may happen to it.
    """

    request: Request
    liaison: object

    def stage(self, position: int) -> Stage:
        return Stage.objects.select_related("request__experiment").get(
            request=self.request, position=position
        )

    def report(self, position: int, key: str = "all", **changes: int | None) -> None:
        values = {"files_in": 2, "events_in": 10, "files_out": 2, "events_out": 10, **changes}
        counts.report_output(
            stage=self.stage(position), key=key, counts=values, by=self.liaison, at=LATER
        )
        counts.count_reports(at=LATER)

    def name(self, position: int, *files: tuple[str, int], key: str = "all") -> None:
        named = [NamedFile(name, size) for name, size in files]
        name_files(stage=self.stage(position), key=key, files=named, by=self.liaison, at=LATER)

    def run_jobs(self, *, missing: int = 0, bad: int = 0) -> None:
        """Let the jobs of both stages end: all completed but for those missing of the
        second one.
        """
        ran = {
            "submitted_at": QUEUED_AT,
            "started_at": QUEUED_AT,
            "ended_at": QUEUED_AT + timedelta(minutes=40),
        }
        records = [record(number, **ran) for number in (1, 2)]
        records += [record(11 + number, **ran) for number in range(2 - missing)]
        records += [failed(100 + number, **ran) for number in range(bad)]
        jobs = store(clusters.cluster("jura"), *records)
        origins = {}
        for job in jobs:
            origins[job.pk] = (self.request.key, "generation" if job.raw_id < 10 else "simulation")
        attach_origin(origins=origins, at=AT)
        recompute_dirty_hours(at=LATER)

    def all_good(self) -> None:
        self.run_jobs()
        self.report(0, files_in=None, events_in=None)
        self.report(1)

    def judge(self):
        """Run the checks without closing the request, and return how it stands."""
        runs.ask_for_run(request=self.fresh(), by="opsportal", at=LATER)
        runs.run_checks(request=self.fresh(), at=LATER)
        return self.quality()

    def settle(self) -> str:
        check_request(request_id=self.request.pk)
        return self.fresh().state

    def quality(self):
        return data_quality_of(self.fresh())

    def fresh(self) -> Request:
        return Request.objects.select_related("experiment", "workflow__type").get(
            pk=self.request.pk
        )

    def said(self) -> dict[tuple[int | None, str, str], str]:
        return {
            (result.position, result.check_name, result.subject): result.outcome
            for result in self.quality().results
        }

    def kinds(self) -> list[str]:
        return [event.kind for event in events_of(self.request)]
