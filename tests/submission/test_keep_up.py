"""Files as they come: each once, cut as asked, by cadence, to the stop date;
later stages follow job by job.
"""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.clusters.models import Cluster
from apps.core.errors import InvalidFields, InvalidTransition
from apps.datasets.models import InputFile
from apps.production.domain.content.stages import content_of
from apps.production.domain.outputs.datasets import DataFile, FileCatalogue
from apps.production.domain.requests.drafts import save_draft
from apps.production.domain.types.versions import newest_version, workflow_of
from apps.production.enums import Verb
from apps.production.models import Request, WorkflowType
from apps.progress.domain.transitions import complete_ended
from apps.submission.domain.arrays import keepup
from apps.submission.domain.arrays.assignment import assign_request, choose_cluster
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.arrays.request_bundle import write_bundle
from apps.submission.domain.arrays.shortfalls import accept_stage
from apps.submission.domain.arrays.trials import complete_processed_requests
from apps.submission.domain.dispatch import dispatch
from apps.submission.models import Submission
from tests.factories import requests
from tests.factories.requests import AT
from tests.factories.submissions import retry_failed
from tests.factories.verdicts import judge

HOUR = timedelta(hours=1)
ARGUMENTS = {"cadence": 3600, "split": "per file", "most_in_flight": 3, "stop_on": "2026-11-21"}


@pytest.fixture
def detector(tmp_path, settings):
    """Return a function that says which files there are, by run."""
    path = tmp_path / "datasets.json"
    settings.DATASET_CATALOGUE = f"file:{path}"

    def has(**runs):
        files = [
            {"name": name, "run": int(run[1:])} for run, names in runs.items() for name in names
        ]
        path.write_text(json.dumps({"datasets": [{"name": "raw", "file_list": files}]}))

    has()
    return has


@pytest.fixture
def keep_up(detector, cluster, liaison, nova, approver):
    """Return a function that makes a running keep-up request of some stages."""
    assert WorkflowType.objects.filter(key="keep_up").exists()

    def make(*names, state="running", **arguments):
        first = {"input_type": "raw", "output_type": "reco"}
        stages = tuple(
            requests.stage(
                name,
                kind="analysis" if n else "reconstruction",
                jobs=None,
                events=None,
                input_dataset="" if n else "raw",
                arguments=first if n == 0 else {"input_type": "reco", "output_type": "ana"},
            )
            for n, name in enumerate(names)
        )
        workflow = workflow_of(newest_version("keep_up"))
        content = {"workflow": workflow, "stages": stages, "arguments": {**ARGUMENTS, **arguments}}
        content["later"] = AT
        request = requests.request_in(
            state, by=liaison, experiment=nova, approver=approver, **content
        )
        return choose_cluster(request=request, cluster=cluster, by=approver, at=AT)

    return make


def step(assignment, at=AT):
    plan_next(assignment=assignment, at=at)
    claimed = dispatch.claim_next(cluster=assignment.cluster, at=at)
    return dispatch.send(submission=claimed, at=at) if claimed else None


def end(submission, end_jobs, at, **how):
    end_jobs(submission, at=at, **how)
    dispatch.refresh_progress(cluster=submission.cluster, at=at)


def files_of(submission) -> list[str]:
    rows = InputFile.objects.filter(
        stage__request=submission.request, stage__position=0, number__isnull=False
    ).order_by("number", "pk")
    return [
        name
        for name, job in rows.values_list("name", "number")
        if f"  {job}) files=" in submission.script
    ]


def test_files_are_taken_up_once_as_they_come(keep_up, detector, end_jobs, fake):
    assignment = keep_up("reco")
    assert step(assignment) is None
    detector(r1=["a", "b"])
    assert step(assignment, AT + HOUR / 2) is None, "it looks once an hour"
    first = step(assignment, AT + HOUR)
    assert (first.indices, files_of(first)) == ("0-1", ["a", "b"])
    detector(r1=["a", "b"], r2=["it's c", "d", "e", "f"])
    assert step(assignment, AT + HOUR * 1.5) is None
    assert step(assignment, AT + HOUR * 2) is None, "no more than three at once"
    end(first, end_jobs, AT + HOUR * 2)
    second = step(assignment, AT + HOUR * 2)
    assert (second.indices, files_of(second)) == ("2-4", ["it's c", "d", "e"])
    end(second, end_jobs, AT + HOUR * 3)
    third = step(assignment, AT + HOUR * 3)
    assert (third.indices, files_of(third)) == ("5", ["f"])
    assert "2) files=('it'\"'\"'s c');;" in fake.script(second.spool_id)


def test_jobs_of_known_files_go_on_while_the_catalogue_is_away(
    keep_up, detector, end_jobs, tmp_path
):
    assignment = keep_up("reco", "ana")
    detector(r1=["a", "b", "c", "d"])
    first = step(assignment)
    assert first.tasks == 3, "no more at once"
    (tmp_path / "datasets.json").write_text("{")
    end(first, end_jobs, AT + HOUR)
    second = step(assignment, AT + HOUR)
    assert files_of(second) == ["d"]
    assert assignment.listing_failed_since == AT + HOUR
    end(second, end_jobs, AT + HOUR)
    third = step(assignment, AT + HOUR)
    assert (third.position, third.tasks) == (1, 3), "the next stage goes on"
    detector(r1=["a", "b", "c", "d", "e"])
    end(third, end_jobs, AT + HOUR * 2)
    assert files_of(step(assignment, AT + HOUR * 2)) == ["e"]
    assert assignment.listing_error == ""


@pytest.mark.parametrize(
    ("arguments", "groups"),
    [
        ({"split": "per run"}, [["a", "b", "c"], ["d"]]),
        ({"split": "per N files", "files_per_job": 2}, [["a", "b"], ["c", "d"]]),
        ({"split": "per N files", "files_per_job": 3}, [["a", "b", "c"]]),
        ({"split": "per N files", "files_per_job": 3, "cadence": 86_400}, [["a", "b", "c"], ["d"]]),
    ],
)
def test_files_are_cut_into_jobs(keep_up, detector, arguments, groups):
    detector(r1=["a", "b", "c"], r2=["d"])
    submission = step(keep_up("reco", **arguments), AT + timedelta(days=1))
    files_by_job = {}
    for file in InputFile.objects.filter(number__isnull=False).order_by("pk"):
        files_by_job.setdefault(file.number, []).append(file.name)
    assert list(files_by_job.values()) == groups
    assert submission.tasks == len(groups)


def test_a_later_stage_follows_job_by_job_and_all_ends_after_the_stop_date(
    keep_up, detector, end_jobs, fake
):
    assignment = keep_up("reco", "ana", most_in_flight=50)
    request = assignment.request
    detector(r1=["a", "b", "c"])
    first = step(assignment)
    end(first, end_jobs, AT + HOUR, failed={1})
    judge(first, {1: "service"}, at=AT + HOUR)
    second = step(assignment, AT + HOUR)
    assert (second.stage_name, second.indices, files_of(second)) == ("ana", "0,2", ["a", "c"])
    again = retry_failed(first, at=AT + HOUR)
    assert files_of(again) == ["b"]
    again = step(assignment, AT + HOUR)
    end(again, end_jobs, AT + HOUR)
    end(second, end_jobs, AT + HOUR)
    third = step(assignment, AT + HOUR)
    assert (third.stage_name, third.indices) == ("ana", "1")
    late = AT + timedelta(days=2)
    detector(r1=["a", "b", "c", "too late"])
    end(second, end_jobs, late)
    assert complete_processed_requests(cluster=assignment.cluster, at=late) == []
    end(third, end_jobs, late)
    assert complete_processed_requests(cluster=assignment.cluster, at=AT) == [], (
        "not before the stop date"
    )
    assert complete_ended(at=late) == []
    assert step(assignment, late) is None
    assert complete_processed_requests(cluster=assignment.cluster, at=late) == [request]
    request.refresh_from_db()
    assert request.state == "completing"


def test_new_files_are_found_in_batches(keep_up, detector, monkeypatch):
    monkeypatch.setattr(keepup, "_BATCH", 2)
    assignment = keep_up("reco", most_in_flight=9)
    detector(r1=["a", "b", "c"])
    assert files_of(step(assignment)) == ["a", "b", "c"]
    detector(r1=["new1", "a", "b", "c", "new2", "new2"])
    with CaptureQueriesContext(connection) as queries:
        plan_next(assignment=assignment, at=AT + HOUR)
    assert set(InputFile.objects.values_list("name", flat=True)) == {"a", "b", "c", "new1", "new2"}
    reads = [
        query["sql"] for query in queries if 'SELECT "datasets_inputfile"."name"' in query["sql"]
    ]
    assert reads
    assert all(" IN (" in sql or '"number" IS NULL' in sql or " LIMIT " in sql for sql in reads)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("state", "tasks"), [("running", 2), ("testing", 1)])
def test_nothing_is_locked_while_the_catalogue_is_asked(
    keep_up, detector, monkeypatch, state, tasks
):
    in_transaction = []

    def files_of(self, dataset):
        in_transaction.append(connection.in_atomic_block)
        return [DataFile("a"), DataFile("b")]

    assignment = keep_up("reco", state=state)
    monkeypatch.setattr(FileCatalogue, "files_of", files_of)
    assert step(assignment).tasks == tasks
    assert in_transaction == [False]


def test_a_test_takes_one_file_and_leaves_it_for_production(keep_up, detector):
    assignment = keep_up("reco", state="testing")
    assert step(assignment) is None, "there is none yet"
    detector(r1=["a", "b"])
    test = step(assignment)
    assert (test.is_test, test.tasks) == (True, 1)
    assert "files=(a)" in test.script
    assert not InputFile.objects.exists()


def test_a_test_waits_while_the_catalogue_is_away(keep_up, detector, tmp_path):
    assignment = keep_up("reco", state="testing")
    (tmp_path / "datasets.json").write_text("{")
    assert step(assignment) is None
    assert "is not a catalogue" in assignment.listing_error
    detector(r1=["a"])
    assert step(assignment, AT + HOUR).is_test


def test_without_a_list_of_files_nothing_begins(keep_up, approver, settings):
    queued = keep_up("reco", state="queued")
    settings.DATASET_CATALOGUE = ""
    with pytest.raises(InvalidFields, match="cannot be listed"):
        assign_request(
            request=queued.request, cluster=queued.cluster, by=approver, at=AT, verb=Verb.START
        )
    assert not Submission.objects.exists()


def test_there_is_no_bundle_of_files_that_are_still_to_come(keep_up):
    with pytest.raises(InvalidFields, match="cannot be bundled"):
        write_bundle(request=keep_up("reco").request, at=AT)


def test_it_goes_on_for_longer_while_it_runs(keep_up, detector, end_jobs, liaison, fake):
    assignment = keep_up("reco")
    detector(r1=["a"])
    end(step(assignment), end_jobs, AT + HOUR)
    request = Request.objects.get(pk=assignment.request_id)
    new = content_of(request)
    new = replace(new, arguments={**new.arguments, "stop_on": "2026-12-24"})
    save_draft(request=request, content=new, version=request.version, by=liaison, at=AT + HOUR)
    detector(r1=["a"], r9=["b"])
    late = AT + timedelta(days=10)
    assert complete_processed_requests(cluster=assignment.cluster, at=late) == []
    assert files_of(step(assignment, late)) == ["b"]


def test_a_stage_of_it_is_taken_as_it_is_once_no_more_files_come(
    keep_up, detector, end_jobs, approver, fake
):
    assignment = keep_up("reco", "ana", most_in_flight=50)
    detector(r1=["a", "b", "c"])
    first = step(assignment)
    end(first, end_jobs, AT + HOUR, failed={1})
    end(step(assignment, AT + HOUR), end_jobs, AT + HOUR)

    def accept(at):
        return accept_stage(
            request=assignment.request, position=0, by=approver, at=at, reason="The file is broken."
        )

    with pytest.raises(InvalidTransition, match="new files are processed until 2026-11-21"):
        accept(AT + HOUR)
    late = AT + timedelta(days=3)
    assert complete_processed_requests(cluster=assignment.cluster, at=late) == []
    assert accept(late).jobs_missing == 1
    assert [
        request.pk for request in complete_processed_requests(cluster=assignment.cluster, at=late)
    ] == [assignment.request_id]


def test_files_that_wait_for_an_accepted_stage_do_not_keep_the_later_ones_open(
    keep_up, detector, end_jobs, approver, fake
):
    assignment = keep_up("reco", "ana", split="per N files", files_per_job=2, most_in_flight=50)
    detector(r1=["a", "b", "c", "d", "e"])
    first = step(assignment)
    assert first.tasks == 2, "the last file waits for another one"
    end(first, end_jobs, AT + HOUR, failed={1})
    end(step(assignment, AT + HOUR), end_jobs, AT + HOUR)
    late = AT + timedelta(days=3)
    assert complete_processed_requests(cluster=assignment.cluster, at=late) == []
    accept_stage(
        request=assignment.request, position=0, by=approver, at=late, reason="The file is broken."
    )
    assert step(assignment, late) is None
    assert InputFile.objects.filter(stage__position=0, number=None, state="waiting").count() == 1
    assert complete_processed_requests(cluster=assignment.cluster, at=late) == [assignment.request]


def test_what_cannot_be_started_for_want_of_a_list_is_found_by_the_checks(
    keep_up, settings, cluster, client, liaison
):
    request = keep_up("reco").request
    settings.DATASET_CATALOGUE = ""
    client.force_login(liaison)
    address = f"/api/v1/requests/{request.key}/check/"
    findings = client.post(address, {}, content_type="application/json").json()["findings"]
    assert [finding["rule"] for finding in findings if finding["severity"] == "error"] == [
        "files_listed"
    ]
    Cluster.objects.update(submits=False)
    findings = client.post(address, {}, content_type="application/json").json()["findings"]
    assert "files_listed" not in {finding["rule"] for finding in findings}
