"""What waits and runs, by request and stage: which jobs are believed,
and what is said where nobody knows.
"""

import json
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import EntryPoint

import pytest
from django.utils import timezone

from apps.archive.domain.links import captured_origins
from apps.archive.domain.store.jobs import store_jobs
from apps.clusters.schedulers.base import CurrentJobs, CurrentState, SchedulerError
from apps.clusters.schedulers.registry import SCHEDULERS
from apps.clusters.schedulers.slurm.scheduler import Slurm
from apps.jobs.domain.collection.origin import record_array
from apps.jobs.domain.live import queue
from apps.jobs.domain.live.live import ProvenStage, store_live
from apps.jobs.domain.live.reasons import reason_of
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import LiveArray, LiveJobs, QueueCount, QueueReading
from capture.wire.entry import CapturedJob
from tests.archive.spool_writer import environment_bytes
from tests.contracts.queue import write_program
from tests.factories import clusters
from tests.factories.jobs import AT, record
from tests.factories.jobs import store as store_finished
from tests.factories.requests import draft

QUEUED, RUNNING, HELD = CurrentState.QUEUED, CurrentState.RUNNING, CurrentState.HELD


@pytest.fixture
def alps(db):
    return clusters.cluster()


@pytest.fixture
def captured(alps, nova, liaison):
    """Three captured submissions: two of a request's stages, one of nothing."""
    request = draft(liaison, nova)
    origins = {"1": (request.key, "generation"), "2": (request.key, "simulation"), "3": ("", "")}
    jobs = [
        CapturedJob(
            cluster="alps",
            scheduler="simulated",
            job_id=job_id,
            submitted_at=AT,
            captured_at=AT,
            script=b"#!/bin/sh\n",
            environment=environment_bytes((("OPSPORTAL_REQUEST", key), ("OPSPORTAL_STAGE", stage))),
            request_key=key,
            stage=stage,
        )
        for job_id, (key, stage) in origins.items()
    ]
    store_jobs(jobs=jobs, by="test", at=AT)
    return request


def now(spool_id, state, jobs=1, **values):
    return replace(CurrentJobs(spool_id, AT, state, jobs, "nova"), **values)


def store(cluster, found):
    origins = captured_origins(cluster, [one.spool_id for one in found])
    queue.store_queue(cluster=cluster, jobs=found, origins=origins, at=AT)


def read(cluster, at=AT):
    return queue.read_queue(cluster=cluster, origins_of=captured_origins, at=at)


def stored():
    rows = QueueCount.objects.order_by("stage")
    return [(row.stage, row.queued, row.running, row.held) for row in rows]


def test_counts_are_by_request_and_stage(alps, captured):
    found = [
        now("1", RUNNING, 3),
        now("1", QUEUED, 90),
        now("2", HELD, 2),
        now("3", RUNNING),
        now("9", RUNNING),
    ]
    store(alps, found)
    assert stored() == [("generation", 90, 3, 0), ("simulation", 0, 0, 2)]
    store(alps, [now("2", RUNNING, 2)])
    assert stored() == [("simulation", 0, 2, 0)]


def test_foreign_account_and_older_submission_of_that_id_are_not_believed(alps, captured, dune):
    later = AT + timedelta(days=400)
    store(alps, [now("1", RUNNING, account="dune"), now("2", RUNNING, submitted_at=later)])
    assert stored() == []


def test_cluster_that_cannot_be_asked_keeps_what_was_known(alps, captured):
    store(alps, [now("1", RUNNING)])
    reason = read(alps, at=AT + timedelta(hours=1))
    reading = QueueReading.objects.get()
    assert "`dir` is not set" in reason == reading.last_error
    assert (reading.at, stored()) == (AT, [("generation", 0, 1, 0)])


def test_adapter_that_offers_no_queue_says_so(db, monkeypatch):
    point = EntryPoint("planned", "tests.jobs.planned:Planned", SCHEDULERS.group)
    monkeypatch.setitem(SCHEDULERS._found, "planned", point)
    cluster = clusters.cluster("jura", "planned", options={})
    assert "cannot be asked" in read(cluster)
    assert QueueReading.objects.get().at is None


def test_jobs_of_torque_and_htcondor_are_tied_to_their_request_by_the_archive(
    alps, captured, tmp_path
):
    seconds = int(AT.timestamp())
    record_array(cluster=alps, spool_id="1", request=captured, sent_at=AT, at=AT)
    ads = [
        {"ClusterId": 1, "ProcId": number, "JobStatus": 1, "QDate": seconds} for number in range(3)
    ]
    write_program(tmp_path / "condor_q", f"echo '{json.dumps(ads)}'")
    alps.scheduler, alps.options = "htcondor", {"bin": str(tmp_path)}
    alps.save()
    assert read(alps) == ""
    assert stored() == [("generation", 3, 0, 0)]
    job = f"<Job><Job_Id>1</Job_Id><job_state>R</job_state><ctime>{seconds}</ctime></Job>"
    write_program(tmp_path / "qstat", f"echo '<Data>{job}</Data>'")
    alps.scheduler = "torque"
    alps.save()
    assert read(alps) == ""
    assert stored() == [("generation", 0, 1, 0)]


SQUEUE = """
for last do :; done
end=${last#--format=%F}; end=${end%%%*}
line() { for field do printf '%s%s' "$field" "$end"; done; echo; }
line 7 1763640000 nova PENDING Priority 90
line 7 1763640000 nova PENDING Priority 90
line 7 1763640000 nova RUNNING None 90
line 8 1763640000 nova PENDING JobHeldUser 0
line 9 N/A nova RUNNING None 90
"""


def test_squeue_is_counted_by_submission_and_state(tmp_path):
    write_program(tmp_path / "squeue", SQUEUE)
    found = sorted(
        Slurm("alps", {"bin": str(tmp_path)}).current_jobs(),
        key=lambda one: (one.spool_id, one.state),
    )
    assert [(one.spool_id, one.state, one.jobs) for one in found] == [
        ("7", QUEUED, 2),
        ("7", RUNNING, 1),
        ("8", HELD, 1),
    ]
    write_program(tmp_path / "squeue", "echo no controller >&2; exit 1")
    with pytest.raises(SchedulerError, match="no controller"):
        list(Slurm("alps", {"bin": str(tmp_path)}).current_jobs())


# The queue by reason


def test_unchanged_queue_writes_nothing_and_a_change_only_its_rows(alps, captured):
    found = [
        now("1", QUEUED, 3, reason="Priority"),
        now("2", HELD, 2, reason="JobHeldUser"),
        now("9", RUNNING, 4),
    ]
    stages = {("1", AT): ProvenStage(captured.pk, "generation")}
    assert store_live(cluster=alps, jobs=found, stages=stages) == 6, "three groups, three arrays"
    assert store_live(cluster=alps, jobs=found, stages=stages) == 0
    assert (
        store_live(
            cluster=alps, jobs=[now("1", QUEUED, 2, reason="Priority"), found[1]], stages=stages
        )
        == 4
    )
    rows = LiveJobs.objects.order_by("state").values_list("state", "reason", "jobs", "request")
    assert list(rows) == [("held", "JobHeldUser", 2, None), ("queued", "Priority", 2, captured.pk)]


def test_queued_tab_shows_how_long_jobs_were_queued(alps, nova, client, liaison):
    today = timezone.now()
    ended = today - timedelta(hours=3)
    waits = [10, 20, 60_000]  # an import of old jobs, or a job that was held for weeks
    store_finished(
        alps,
        *(
            record(
                number,
                submitted_at=ended - timedelta(minutes=minutes + 30),
                started_at=ended - timedelta(minutes=30),
                ended_at=ended,
            )
            for number, minutes in enumerate(waits)
        ),
    )
    client.force_login(liaison)
    assert "No queue times" in client.get("/jobs/?tab=queued").content.decode()
    recompute_dirty_hours(at=today)
    page = client.get("/jobs/?tab=queued")
    assert page.context["trend_last_day"] == 60 * 20
    assert "median queue time by hour" in page.content.decode()
    assert "<td>20</td>" in page.content.decode().replace(' class="number"', "")


@pytest.mark.parametrize(("longest", "is_log"), [(90, False), (60_000, True)])
def test_queue_times_that_spread_widely_have_a_logarithmic_scale(
    longest, is_log, alps, nova, client, liaison
):
    today = timezone.now()
    for number, minutes in enumerate([1, longest]):
        ended = today - timedelta(hours=3 + number)
        started = ended - timedelta(minutes=30)
        submitted = started - timedelta(minutes=minutes)
        store_finished(
            alps, record(number, submitted_at=submitted, started_at=started, ended_at=ended)
        )
    recompute_dirty_hours(at=today)
    client.force_login(liaison)
    for address in ("/jobs/?tab=queued", "/statistics/?measure=queue_time&by=cluster&period=24h"):
        page = client.get(address).content.decode()
        assert page.count("logarithmic scale") == 2 * is_log, (
            "in the heading, and in the sentence of the chart"
        )
        assert ('>0.1</text><line class="grid-line"' in page) == is_log


def test_page_says_why_jobs_wait_in_plain_words(alps, captured, nova, dune, client, liaison):
    found = [now("1", QUEUED, 3, reason="Priority"), now("5", HELD, 7, reason="13", account="dune")]
    store_live(cluster=alps, jobs=found, stages={("1", AT): ProvenStage(captured.pk, "generation")})
    client.force_login(liaison)
    page = client.get("/jobs/?tab=queued").content.decode()
    assert "Higher-priority jobs first" in page
    assert captured.key in page
    # Those jobs are of DUNE.
    assert "Input transfer failed" not in client.get("/jobs/?tab=held").content.decode()
    assert [tab["jobs"] for tab in client.get("/jobs/").context["tabs"]] == [3, 0, 0, 0]
    assert reason_of("QOSMaxJobsPerUserLimit").text == "Limit of the account or QOS reached"


# Requeued jobs


def test_requeued_jobs_of_an_array_of_the_portal_keep_its_request(alps, captured):
    record_array(cluster=alps, spool_id="1", request=captured, sent_at=AT, at=AT)
    minute = timedelta(minutes=1)
    jobs = [
        now("1", HELD, submitted_at=AT + 10 * minute, reason="job requeued in held state"),
        now("1", HELD, submitted_at=AT + 11 * minute, reason="job requeued in held state"),
        now("2", HELD, submitted_at=AT + 10 * minute),
    ]
    store(alps, jobs)
    assert stored() == [("generation", 0, 0, 2)], "the ID of the other one may be used again"
    [row] = LiveArray.objects.filter(request=captured)
    assert (row.jobs, row.submitted_at) == (2, AT)

    store(alps, [now("1", HELD, submitted_at=AT + timedelta(days=2))])
    assert stored() == [], "it may be another job"


HELD_ROWS = """
line 7 1763640000 nova PENDING 'job requeued in held state' 0
line 7 1763640000 nova SPECIAL_EXIT 'job requeued in held state' 0
line 7 1763640000 nova RESV_DEL_HOLD ReservationDeleted 0
line 7 1763640000 nova PENDING BadConstraints 0
line 8 1763640000 nova PENDING BadConstraints 17
line 9 1763640000 nova RUNNING None 0
"""


def test_jobs_of_priority_zero_are_held_in_slurm(tmp_path):
    begin, _, _ = SQUEUE.partition("line 7")
    write_program(tmp_path / "squeue", begin + HELD_ROWS)
    jobs_by_state = {}
    for current in Slurm("alps", {"bin": str(tmp_path)}).current_jobs():
        key = (current.spool_id, current.state)
        jobs_by_state[key] = jobs_by_state.get(key, 0) + current.jobs
    assert jobs_by_state == {("7", HELD): 4, ("8", QUEUED): 1, ("9", RUNNING): 1}
