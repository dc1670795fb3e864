"""The demo is made by services, once, and only where it is allowed."""

import stat
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import TestCase, override_settings

from apps.accounts.models import Experiment, User
from apps.clusters.models import Cluster
from apps.core.domain.events import events_of
from apps.core.models import Delivery, Event
from apps.datasets.domain.ledger import recount, totals_of
from apps.datasets.models import OutputFile
from apps.demo.data import history
from apps.demo.data.board import SOURCE
from apps.demo.data.history import planted_outages, store_history, store_outages
from apps.demo.data.people import LOGINS, PASSWORD
from apps.demo.management.commands.demo import Command, load
from apps.demo.simulation.workload import FIRST_ID
from apps.demo.simulation.world import read_campaigns
from apps.jobs.models import Job
from apps.portal.pages.health.queues import all_queues
from apps.production.domain.outputs.datasets import FileCatalogue
from apps.production.domain.priority.listing import starts_in_queue
from apps.production.domain.types.versions import newest_version, workflow_of
from apps.production.models import Request, Stage
from apps.progress.domain.stage_counts import progress_of
from apps.statusboard.domain.board.availability import read_daily_slots
from apps.statusboard.domain.monitoring.source_tokens import authenticate_source
from apps.statusboard.models import Incident, MonitoringSource, Service, StateInterval
from apps.submission.domain.arrays.assignment import assign_request
from apps.submission.domain.arrays.files import Listing
from apps.submission.domain.arrays.keepup import take_new_files
from apps.submission.models import Assignment
from tests.factories import requests

AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HISTORY = timedelta(hours=4)


def counts() -> list[int]:
    return [
        model.objects.count()
        for model in (User, Service, MonitoringSource, Request, Event, Cluster)
    ]


@pytest.mark.django_db
def test_demo_is_refused_without_the_setting(settings: object, tmp_path: Path) -> None:
    settings.DEMO = False
    with pytest.raises(CommandError, match="DEMO=true"):
        call_command(Command(), dir=tmp_path)
    assert counts() == [0] * 6


def test_demo_prints_its_logins(
    settings: object,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.DEMO = True
    monkeypatch.setattr("apps.demo.management.commands.demo.load", lambda *_: None)
    call_command(Command(), dir=tmp_path)

    lines = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert lines == [[person.username, PASSWORD] for person in LOGINS]


@pytest.mark.xdist_group("demo")
class TestLoadedDemo(TestCase):
    """The demo is loaded once for all these tests: that is the slow part."""

    directory: Path

    @classmethod
    def setUpTestData(cls) -> None:
        cls.directory = Path(cls.enterClassContext(TemporaryDirectory()))
        catalogue = f"file:{cls.directory / 'datasets.json'}"
        with override_settings(DATASET_CATALOGUE=catalogue):
            load(cls.directory, AT, HISTORY)

    def test_a_request_has_missing_and_doubled_files(self) -> None:
        request = Request.objects.get(title="Near detector sample, new light model")
        totals = totals_of(request)[0]
        assert (totals.files, totals.done, totals.failed) == (120, 114, 6)
        assert totals.doubled == 2
        stage = request.stages.get(position=0)
        counted = recount(stage)
        assert counted == {column: getattr(totals, column) for column in counted}
        outputs = OutputFile.objects.filter(stage=stage)
        assert (outputs.filter(counts=True).count(), outputs.count()) == (57, 58)
        to_merge = totals_of(request)[1]
        assert (to_merge.files, to_merge.waiting, to_merge.source) == (57, 57, stage)

    def test_administrator_is_superuser(self) -> None:
        assert User.objects.get(username="admin").is_superuser

    def test_expected_starts_are_known_at_once(self) -> None:
        starts = starts_in_queue(at=AT)
        assert all(start.is_known or start.is_held for start in starts.values())
        queued = Request.objects.filter(state="queued")
        assert queued.exists()
        assert not queued.filter(expected_start=None).exists()

    def test_finished_requests_have_their_jobs(self) -> None:
        done = Request.objects.get(title="Near detector calibration muons")
        (stage,) = progress_of(done)
        assert (stage.completed, stage.requested_jobs, stage.sums.failed) == (800, 800, 0)

    def test_demo_run_again_changes_nothing(self) -> None:
        before, token = counts(), (self.directory / "feed-token").read_text()
        campaigns = (self.directory / "campaigns.json").read_bytes()

        catalogue = f"file:{self.directory / 'datasets.json'}"
        with override_settings(DATASET_CATALOGUE=catalogue):
            load(self.directory, AT + timedelta(hours=5))

        assert counts() == before
        assert (self.directory / "feed-token").read_text() == token
        assert (self.directory / "campaigns.json").read_bytes() == campaigns

    def test_demo_requests_are_in_every_state_with_their_history(self) -> None:
        states = Counter(Request.objects.values_list("state", flat=True))
        assert states == {
            "running": 6, "queued": 9, "testing": 1, "on_hold": 1, "done": 3, "done_partial": 1, "data_quality": 1,
            "rejected": 1, "cancelled": 2, "changes_requested": 1, "awaiting_approval": 5, "draft": 1,
        }  # fmt: skip
        for request in Request.objects.all():
            times = [event.at for event in events_of(request)]
            assert times == sorted(times)
            assert times[-1] < AT

    def test_catalogue_lists_what_requests_read(self) -> None:
        catalogue = FileCatalogue(str(self.directory / "datasets.json"))
        read = set(Stage.objects.exclude(input_dataset="").values_list("input_dataset", flat=True))
        written = set(Stage.objects.values_list("output_dataset", flat=True))
        assert catalogue.find(read).keys() == read - written
        assert len(catalogue.files_of("protodune_raw_2026")) > 50

    def test_keep_up_request_is_submitted_and_takes_the_files_there_are(self) -> None:
        catalogue = f"file:{self.directory / 'datasets.json'}"
        with override_settings(DEMO=True, DATASET_CATALOGUE=catalogue):
            request = self._submit_keep_up()
            listing = Listing()
            listing.ask(request.stages.all()[0])
            assignment = Assignment.objects.get(request=request)
            assert take_new_files(assignment, listing, first=0, most=500, at=AT) > 50

    def _submit_keep_up(self) -> Request:
        liaison, approver = (
            User.objects.get(username=name) for name in ("dune-liaison", "approver")
        )
        stage = requests.stage(
            "reco", kind="reconstruction", input_dataset="protodune_raw_2026", output_dataset="keepup_reco_2026",
            arguments={"input_type": "raw", "output_type": "reco"},
        )  # fmt: skip
        request = requests.request_moved_to(
            "queued",
            by=liaison,
            experiment=Experiment.objects.get(key="DUNE"),
            approver=approver,
            later=AT,
            workflow=workflow_of(newest_version("keep_up")),
            stages=(stage,),
            arguments={
                "cadence": 3600,
                "split": "per file",
                "most_in_flight": 100,
                "stop_on": "2026-12-10",
            },
        )
        return assign_request(
            request=request, cluster=Cluster.objects.get(), by=approver, at=AT
        ).request

    def test_demo_campaigns_are_stages_of_approved_requests(self) -> None:
        campaigns = read_campaigns(self.directory / "campaigns.json")
        for campaign in campaigns:
            if campaign.request:
                request = Request.objects.get(
                    key=campaign.request, state="running", experiment__key=campaign.experiment
                )
                stage = request.stages.get(name=campaign.stage)
                assert (stage.release, stage.configuration) == (campaign.release, campaign.config)
        assert {campaign.experiment for campaign in campaigns} == {"NOVA", "DUNE", "MU2E"}

    def test_demo_token_is_private_and_valid(self) -> None:
        path = self.directory / "feed-token"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert authenticate_source(slug=SOURCE, token=path.read_text()) is not None

        path.unlink()
        load(self.directory, AT)
        assert authenticate_source(slug=SOURCE, token=path.read_text()) is not None

    def test_demo_services_were_watched_through_the_history(self) -> None:
        moment = AT - timedelta(hours=3)
        states = {
            interval.service.slug: interval.state
            for interval in StateInterval.objects.current(moment).select_related("service")
        }
        watched = ("samweb", "dcache", "cvmfs", "conditions-db", "farm")
        assert {states[slug] for slug in watched} == {"up"}
        assert states["beam-db"] == "unknown"

    def test_outages_of_the_history_are_on_the_board_once_and_no_others(self) -> None:
        until = AT - HISTORY
        planted = planted_outages(until=until, days=10)
        assert len(planted) > 20
        assert store_outages(until=until, at=AT, days=10) == len(planted)
        assert store_outages(until=until, at=AT, days=10) == 0
        known = Incident.objects.values_list("service__slug", "state", "started_at", "ended_at")
        times = [
            [datetime.fromtimestamp(moment, UTC) for moment in (cause.started, cause.ended)]
            for cause in planted
        ]
        kinds = [
            "degraded" if cause.minor or cause.rack is not None else "down" for cause in planted
        ]
        assert sorted(known) == sorted(
            (one.service, kind, *when)
            for one, kind, when in zip(planted, kinds, times, strict=True)
        )
        samweb = Service.objects.get(slug="samweb")
        days = read_daily_slots([samweb], AT, days=10)[samweb.pk]
        assert {day.state for day in days} == {"up", "degraded", "down"}

    def test_no_work_of_a_new_demo_is_overdue(self) -> None:
        store_outages(until=AT - HISTORY, at=AT, days=10)
        assert Delivery.objects.filter(delivered_at=None).exists()
        late = [figures for figures in all_queues(at=AT) if figures.oldest_seconds]
        assert late == []

    def test_history_is_stored_once_with_logs_of_failures(self) -> None:
        past, cluster = self.directory / "past", Cluster.objects.get()

        def store() -> int:
            return sum(
                store_history(cluster=cluster, directory=past, until=AT - HISTORY, at=AT, days=2)
            )

        with patch.object(history, "_LAST_RATE", 60):
            stored = store()
            assert stored > 50
            assert store() == 0
        jobs = Job.objects.filter(raw_id__range=(FIRST_ID - 10_000, FIRST_ID - 1))
        failed = [job for job in jobs if job.is_failed and job.started_at]
        assert len(jobs) == stored
        assert 0 < len(failed) <= len(list(past.rglob("*.out")))
        assert max(job.ended_at for job in jobs) < AT - HISTORY
