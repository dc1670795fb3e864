"""Output files of jobs: stored as reported, and counted once accounting knows their job."""

import threading
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models import Count, Sum
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.clusters.schedulers.base import JobState
from apps.core.errors import InvalidFields
from apps.datasets.domain import output_files
from apps.datasets.domain.output_files import NamedFile, StoredFiles, revisions_of
from apps.datasets.models import InputFile, OutputFile, OutputTotals
from apps.jobs.models import Job
from apps.production.enums import PORTAL
from apps.production.models import OutputReport, Request, Stage
from apps.quality.domain.facts import gather_facts
from apps.submission.domain.arrays.files import follow_jobs
from apps.submission.domain.arrays.output_files import store_files
from apps.submission.domain.arrays.plan import lock_request, plan_retry
from apps.submission.domain.dispatch import dispatch
from apps.submission.models import Submission
from tests.factories import jobs as job_factory
from tests.factories.requests import AT
from tests.submission.test_keep_up import HOUR, detector, keep_up, step

__all__ = ["detector", "keep_up"]  # fixtures


@pytest.fixture
def array(keep_up, detector, fake) -> Submission:
    """Return an array in the scheduler of three jobs, which read one file each."""
    assignment = keep_up("reco")
    detector(r1=["a", "b", "c"])
    return step(assignment, AT + HOUR)


def stage_of(submission) -> Stage:
    stages = Stage.objects.select_related("request__experiment")
    return stages.get(request=submission.request, position=submission.position)


def report(submission, task, *files: NamedFile, key=""):
    files = files or (NamedFile(f"out-{submission.spool_id}-{task}.root", 10),)
    return store_files(
        stage=stage_of(submission),
        key=key or f"{submission.spool_id}_{task}",
        files=files,
        by="liaison",
        at=AT,
    )


def retry(submission, index) -> Submission:
    """Send the job of a number again."""
    array = plan_retry(
        submission=submission,
        request=lock_request(submission.request),
        indices=[index],
        by=PORTAL,
        at=AT + HOUR,
        reason="Node failure.",
    )
    claimed = dispatch.claim_next(cluster=array.cluster, at=AT + HOUR)
    return dispatch.send(submission=claimed, at=AT + HOUR)


def counting() -> dict[str, tuple[int | None, bool]]:
    rows = OutputFile.objects.filter(counts=True)
    sums = rows.aggregate(files=Count("pk"), events=Sum("events"), size_bytes=Sum("size_bytes"))
    for totals in OutputTotals.objects.all():
        assert totals.counting_files == sums["files"]
        assert totals.counting_events == (sums["events"] or 0)
        assert totals.counting_bytes == (sums["size_bytes"] or 0)
    rows = OutputFile.objects.order_by("pk").values_list("key", "number", "counts")
    return {key: (number, counts) for key, number, counts in rows}


def test_files_count_once_their_job_has_completed(array, end_jobs):
    array.refresh_from_db()
    first, second = f"{array.spool_id}_0", f"{array.spool_id}_1"
    assert report(array, 0).counts is False
    assert counting() == {first: (0, False)}
    end_jobs(array, failed={1}, at=AT + HOUR)
    follow_jobs(array, at=AT + 2 * HOUR)
    assert counting() == {first: (0, True)}
    assert report(array, 1).counts is False, "its job failed"
    assert report(array, 2).counts is True, "its job completed before it reported"
    assert report(array, 0).counts is True, "reported again"
    assert counting()[second] == (1, False)


def test_no_order_of_events_leaves_another_result(array, fake):
    """Report, completion, retry, a late second completion, and when accounting is read."""
    array.refresh_from_db()
    start = {"submitted_at": array.sent_at, "started_at": array.sent_at}
    lost = job_factory.record(
        7, job_id=f"{array.spool_id}_0", spool_id=array.spool_id, state=JobState.NODE_FAIL,
        ended_at=AT + HOUR, **start,
    )  # fmt: skip
    job_factory.store(array.cluster, lost)
    dispatch.refresh_progress(cluster=array.cluster, at=AT + 2 * HOUR)
    array.refresh_from_db()
    second = retry(array, 0)
    assert second is not None

    def complete(submission, number):
        """Accounting corrects the job that was lost."""
        job_id = f"{submission.spool_id}_0"
        ended_at = AT + 3 * HOUR + timedelta(minutes=number)
        lost_jobs = Job.objects.filter(cluster=submission.cluster, job_id=job_id)
        if not lost_jobs.update(state="completed", ended_at=ended_at):
            job_factory.row(
                submission.cluster, number, at=ended_at, job_id=job_id, state="completed",
                spool_id=submission.spool_id, submitted_at=submission.sent_at,
            )  # fmt: skip

    events = {
        "first reports": lambda: report(array, 0),
        "retry reports": lambda: report(second, 0),
        "first completes": lambda: complete(array, 8),
        "retry completes": lambda: complete(second, 9),
    }
    results = {}
    # Accounting is read after each event, or only when all is over.
    for is_read_often in (True, False):
        for order in _play_orders(events, array, is_read_often=is_read_often):
            counted = Job.objects.get(pk=InputFile.objects.get(name="a").job_key).job_id
            expected = {}
            for key in (f"{array.spool_id}_0", f"{second.spool_id}_0"):
                expected[key] = (0, key == counted)
            assert counting() == expected, order
            report(second, 0)
            report(array, 0)
            assert counting() == expected, order

            completions = [event for event in order if event.endswith("completes")]
            circumstances = (is_read_often, *completions)
            assert results.setdefault(circumstances, counted) == counted, order
    assert len(results) == 4
    assert len(set(results.values())) == 2


def _play_orders(events, array, *, is_read_often, order=()):
    """Let the events happen in each order, and yield it; orders that begin alike share that part."""
    if len(order) == len(events):
        follow_jobs(array, at=AT + 4 * HOUR)
        yield order
    for event in [event for event in events if event not in order]:
        with transaction.atomic():
            events[event]()
            if is_read_often:
                follow_jobs(array, at=AT + 4 * HOUR)
            yield from _play_orders(
                events, array, is_read_often=is_read_often, order=(*order, event)
            )
            transaction.set_rollback(True)


@pytest.mark.django_db(transaction=True)
def test_a_report_waits_while_accounting_is_read(array, end_jobs):
    array.refresh_from_db()
    end_jobs(array, at=AT + HOUR)
    results = []

    def report_in_thread():
        results.append(report(array, 0))
        connection.close()

    reporter = threading.Thread(target=report_in_thread)
    with transaction.atomic():
        follow_jobs(array, at=AT + 2 * HOUR)
        reporter.start()
        reporter.join(timeout=0.5)
        assert reporter.is_alive()
    reporter.join(timeout=10)
    assert results == [StoredFiles(1, 1, counts=True)]


def test_data_quality_knows_only_files_that_count(array, end_jobs):
    array.refresh_from_db()
    report(array, 0, NamedFile("good", 5))
    report(array, 1, NamedFile("lost", 0))
    before = revisions_of(array.request_id)
    end_jobs(array, failed={1, 2}, at=AT + HOUR)
    assert gather_facts(array.request, catalogued={}).stages[0].files is None
    follow_jobs(array, at=AT + 2 * HOUR)
    files = gather_facts(array.request, catalogued={}).stages[0].files
    assert (files.count, files.smallest_bytes) == (1, 5)
    assert revisions_of(array.request_id) != before, "so that the checks run again"
    after = revisions_of(array.request_id)
    follow_jobs(array, at=AT + 3 * HOUR)
    assert revisions_of(array.request_id) == after


def test_everything_about_a_file_is_stored(array):
    array.refresh_from_db()
    checksum = "adler32:0A1B2C3D"
    report(array, 0, NamedFile("x", 5, events=3, run=7, checksum=checksum, parents=["a"]))
    report(array, 0, NamedFile("x", 6, events=3, run=7, checksum=checksum, parents=["a"]))
    file = OutputFile.objects.get()
    assert (file.size_bytes, file.events, file.run, file.checksum) == (6, 3, 7, checksum.lower())
    assert [parent.name for parent in file.parents.all()] == ["a"]
    assert OutputTotals.objects.get().files == 1
    assert OutputFile.parents.through.objects.count() == 1


FAULTS = [
    (NamedFile("x", 1, parents=["a", "none"]), "files.1.parents.1", "no input file"),
    (NamedFile("x", 1, parents=["b"]), "files.1.parents.0", "of another job"),
    (NamedFile("x", 1, parents=["a", "a"]), "files.1.parents.1", "Duplicate"),
    (NamedFile("x", 1, parents=["a\0"]), "files.1.parents.0", "no input file"),
    (NamedFile("x", 1, checksum="md5:0a"), "files.1.checksum", "hexadecimal"),
    (NamedFile("x", 1, checksum="adler32:0a1b2c3d\n"), "files.1.checksum", "hexadecimal"),
    (NamedFile("x", 1, run=-1), "files.1.run", "whole number"),
    (NamedFile("x", 1, parents=["a"] * 1_001), "files", "at most 1,000 parents"),
]


def test_a_fault_is_named_and_nothing_is_stored(array):
    array.refresh_from_db()
    report(array, 0, NamedFile("before", 1))
    for file, field, problem in FAULTS:
        with pytest.raises(InvalidFields) as refused:
            report(array, 0, NamedFile("good", 1), file)
        assert list(refused.value.problems) == [field]
        assert problem in refused.value.problems[field][0]
        assert OutputFile.objects.get().name == "before"


def test_all_faults_are_named_at_once(array):
    with pytest.raises(InvalidFields) as refused:
        report(array, 0, NamedFile("", -1, parents=["none"]), key="all jobs")
    assert sorted(refused.value.problems) == [
        "files.0.name",
        "files.0.parents.0",
        "files.0.size_bytes",
        "key",
    ]


def test_an_unknown_job_waits_for_accounting(array, end_jobs):
    """Its array may be in the scheduler before the portal knows its ID."""
    array.refresh_from_db()
    spool_id = array.spool_id
    Submission.objects.filter(pk=array.pk).update(state="sending", spool_id="", sent_at=None)
    report(array, 0, NamedFile("x", 1, parents=["b"]), key=f"{spool_id}_0")
    assert counting() == {f"{spool_id}_0": (None, False)}
    Submission.objects.filter(pk=array.pk).update(
        state="sent", spool_id=spool_id, sent_at=array.sent_at
    )
    end_jobs(array, at=AT + HOUR)
    follow_jobs(Submission.objects.get(pk=array.pk), at=AT + 2 * HOUR)
    assert counting() == {f"{spool_id}_0": (0, True)}


def test_files_of_a_test_never_count(array):
    array.refresh_from_db()
    Submission.objects.filter(pk=array.pk).update(purpose="test")
    with pytest.raises(InvalidFields, match="never count"):
        report(array, 0)


def test_what_counted_still_does_when_the_row_of_its_job_is_in_the_archive(array, end_jobs):
    array.refresh_from_db()
    end_jobs(array, at=AT + HOUR)
    follow_jobs(array, at=AT + 2 * HOUR)
    report(array, 0)
    Job.objects.all().delete()
    assert report(array, 0).counts is True
    assert report(array, 1).counts is False


def test_without_a_ledger_files_count_at_once(make):
    stage = Stage.objects.select_related("request").filter(request=make("running")).first()
    store = {"stage": stage, "by": "x", "at": AT}
    assert store_files(key="all jobs", files=[NamedFile("x", 1)], **store).counts is True
    assert store_files(key="4711_3", files=[NamedFile("x", 1)], **store).counts is True
    assert counting() == {"all jobs": (None, True), "4711_3": (None, True)}
    with pytest.raises(InvalidFields, match="no input file"):
        store_files(key="4711_3", files=[NamedFile("x", 1, parents=["a"])], **store)


def test_files_of_a_stage_are_limited_without_counting_them(array, monkeypatch):
    array.refresh_from_db()
    monkeypatch.setattr(output_files, "FILES_A_STAGE", 2)
    report(array, 0, NamedFile("x", 1), NamedFile("y", 1))
    report(array, 0, NamedFile("x", 1), NamedFile("z", 1))
    with pytest.raises(InvalidFields, match="at most 2"):
        report(array, 1)
    with CaptureQueriesContext(connection) as queries:
        report(array, 0, NamedFile("x", 1))
    assert not [query for query in queries if '"__count"' in query["sql"]]
    report(array, 1)


def test_files_of_an_earlier_version_are_counted_once(array):
    array.refresh_from_db()
    OutputFile.objects.create(stage=stage_of(array), key="k", name="x", size_bytes=1, at=AT, by="x")
    report(array, 0)
    assert OutputTotals.objects.get().files == 2


def test_queries_do_not_grow_with_the_files(array):
    array.refresh_from_db()

    def count(files):
        rows = [NamedFile(f"f{n}", 1, parents=["a"]) for n in range(files)]
        report(array, 0, *rows)
        with CaptureQueriesContext(connection) as queries:
            report(array, 0, *rows)
        return len(queries)

    assert count(1) == count(300)


def post_outputs(client, submission, **body):
    url = reverse("api:stage-outputs", args=[submission.request.key, submission.position + 1])
    return client.post(url, body, content_type="application/json")


def test_counts_follow_from_the_listed_files(array, liaison, browse):
    array.refresh_from_db()
    client = browse(liaison)
    key = f"{array.spool_id}_0"
    files = [{"name": "x", "size_bytes": 5, "events": 3, "run": 7, "parents": ["a"]}]
    files.append({"name": "y", "size_bytes": 6, "events": 4, "checksum": "md5:" + 32 * "0"})
    first = post_outputs(client, array, key=key, files_in=1, files=files)
    assert first.status_code == 201, first.json()
    assert (first.json()["files_out"], first.json()["events_out"]) == (2, 7)
    del files[1]["events"]
    again = post_outputs(client, array, key=key, files=files, events_out=9)
    assert (again.status_code, again.json()["events_out"]) == (200, 9)
    assert post_outputs(client, array, key=key, files=files).json()["events_out"] is None
    assert sorted(OutputFile.objects.values_list("name", "by")) == [
        ("x", liaison.username),
        ("y", liaison.username),
    ]
    counts_only = post_outputs(client, array, key=key, files_out=2)
    assert (counts_only.status_code, OutputFile.objects.count()) == (200, 2)


CONTRADICTIONS = [
    ({"files_out": 1}, ["files_out"]),
    ({"events_out": 8}, ["events_out"]),
    ({"events_out": 6, "files_out": 0}, ["events_out", "files_out"]),
    ({"key": " ", "files_out": 3}, ["files_out", "key"]),
    ({"key": "all"}, ["key"]),
    ({"files_in": -1, "parents": ["b"]}, ["files.1.parents.0", "files_in"]),
    ({"run": "x"}, ["files.1.run"]),
    ({"files": []}, ["files"]),
    ({"lumi": 3}, ["files.1.lumi"]),
]


def test_contradictions_and_other_faults_are_named(array, liaison, browse):
    array.refresh_from_db()
    client = browse(liaison)
    for changes, fields in CONTRADICTIONS:
        of_file = {}
        for name in ("parents", "run", "lumi"):
            if name in changes:
                of_file[name] = changes[name]
        others = {name: value for name, value in changes.items() if name not in of_file}
        files = [{"name": "x", "size_bytes": 5, "events": 3}]
        files.append({"name": "y", "size_bytes": 6, "events": 4, **of_file})
        body = {"key": f"{array.spool_id}_0", "files": files, **others}
        answer = post_outputs(client, array, **body)
        assert (answer.status_code, sorted(answer.json())) == (400, fields)
    assert not OutputFile.objects.exists()
    assert not OutputReport.objects.exists()


def test_who_may_list_files(array, other_liaison, admin, liaison, browse):
    array.refresh_from_db()
    body = {"key": f"{array.spool_id}_0", "files": [{"name": "x", "size_bytes": 5}]}
    assert post_outputs(browse(other_liaison), array, **body).status_code == 404
    assert post_outputs(browse(admin), array, **body).status_code == 403
    Request.objects.filter(pk=array.request_id).update(state="cancelled", closed_at=AT)
    assert post_outputs(browse(liaison), array, **body).status_code == 409
    assert not OutputFile.objects.exists()
