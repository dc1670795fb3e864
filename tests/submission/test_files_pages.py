"""Pages and API of the files of a stage: what they show, decide, and download."""

import csv
import io
import json
import time

import pytest

from apps.core.domain import outbox
from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields
from apps.core.models import Delivery
from apps.datasets.domain.output_files import NamedFile, parents_of, store_output_files
from apps.datasets.domain.provenance import provenance_of
from apps.datasets.models import (
    Catalogue,
    FileTotals,
    InputFile,
    KnownDataset,
    OutputFile,
    OutputTotals,
)
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.production.domain.lifecycle.moves import (
    approve_request,
    check_request,
    make_move,
    submit_request,
)
from apps.production.domain.lineage.clones import clone_request
from apps.production.enums import Verb
from apps.production.models import DatasetPart, Request, RequestLink
from apps.progress.domain.production_report import report_of
from apps.submission.domain.arrays.assignment import assign_request
from apps.submission.domain.arrays.files import list_files, start_ledger
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.files.decisions import take_back
from apps.submission.domain.files.recovery import give_files_back, request_missing
from apps.submission.domain.retries.by_stage import retry_failed
from apps.submission.tasks import check_files
from apps.submission.web.forms import FilesForm
from tests.factories.requests import AT
from tests.submission.arrays.test_files import HOUR, counts, send
from tests.submission.conftest import NAMES


@pytest.fixture
def with_failures(started, end_jobs):
    """Return a running request whose second and third job failed, with five files."""
    array = send(started)
    end_jobs(array, failed={1, 2})
    dispatch.refresh_progress(cluster=array.cluster, at=AT + HOUR)
    return started.request


def test_the_page_says_where_each_file_stands_and_why(client, liaison, with_failures):
    client.force_login(liaison)
    text = client.get(f"/submissions/{with_failures.key}/files/").content.decode()
    plain = " ".join(text.split())
    assert ">5</a> done + <a" in plain
    assert ">5</a> failed + <a" in plain
    assert "5 need a job." in plain
    assert "Their jobs failed, not analysed yet" in plain
    assert "Request what is missing (5)…" in plain
    assert "have 500 events" in plain


def test_submissions_tell_a_liaison_what_can_be_done_about_failed_jobs(
    client, liaison, shifter, with_failures
):
    request = with_failures
    ways = (f'"/requests/{request.key}/comment/"', "request what is missing</a>")
    client.force_login(liaison)
    page = client.get(f"/submissions/{request.key}/").content.decode()
    stage = request.stages.get(position=0)
    assert f"/jobs/?state=any_failure&amp;request={request.key}&amp;stage={stage.name}" in page
    assert all(way in page for way in ways)
    client.force_login(shifter)
    page = client.get(f"/submissions/{request.key}/").content.decode()
    assert "Retry failed jobs" in page
    assert not any(way in page for way in ways)


def test_a_stage_without_a_ledger_shows_what_goes_in_and_out(client, liaison, make):
    request = make("running")
    stage = request.stages.all()[0]
    client.force_login(liaison)
    url = f"/submissions/{request.key}/files/"
    text = client.get(url).content.decode()
    assert "No job has reported an output file" in text
    stage.input_dataset = "raw"
    stage.save(update_fields=["input_dataset"])
    assert "No catalogue has answered how many files it has" in client.get(url).content.decode()
    catalogue = Catalogue.objects.create(name="sam", kind="sam", base_url="/x")
    KnownDataset.objects.create(
        catalogue=catalogue, name="raw", exists=True, files=4711, events=99, answered_at=AT,
        requested_at=AT, due_at=AT, is_waiting=False,
    )  # fmt: skip
    OutputTotals.objects.create(stage=stage, files=9, counting_files=8, counting_events=7_000)
    text = " ".join(client.get(url).content.decode().split())
    assert "files · 99 events, from sam," in text
    assert "8 files that count, from reports of jobs" in text
    Request.objects.filter(pk=request.pk).update(scan="e = 1, 2")
    KnownDataset.objects.all().delete()
    assert "Each point of the scan reads the whole dataset" in client.get(url).content.decode()


def test_a_stage_without_a_ledger_says_why(client, liaison, make):
    request = make("running")
    client.force_login(liaison)
    text = client.get(f"/submissions/{request.key}/files/").content.decode()
    assert "The portal does not know the files of this stage" in text
    assert client.get(f"/submissions/{request.key}/files/?stage=9").status_code == 404
    assert client.get(f"/submissions/{request.key}/files/give-up/").status_code == 404


def test_the_query_count_does_not_grow_with_files(
    client, liaison, with_failures, django_assert_max_num_queries
):
    client.force_login(liaison)
    stage = with_failures.stages.all()[0]
    pages = ("files/", "files/list/", "files/list/?state=missing&q=raw", "files/outputs/")
    client.get(f"/submissions/{with_failures.key}/files/")
    for page in pages:
        with django_assert_max_num_queries(60) as before:
            client.get(f"/submissions/{with_failures.key}/{page}")
        more = []
        for number in range(30):
            name = f"{page}-{number}"
            more.append(InputFile(stage=stage, name=name, number=1, state="failed", changed_at=AT))
        InputFile.objects.bulk_create(more)
        with django_assert_max_num_queries(len(before)):
            client.get(f"/submissions/{with_failures.key}/{page}")


def test_the_list_is_filtered_and_paged(client, liaison, with_failures):
    client.force_login(liaison)
    url = f"/submissions/{with_failures.key}/files/list/"
    text = client.get(url, {"state": "failed"}).content.decode()
    assert "raw_3.root" in text
    assert "raw_0.root" not in text
    assert "No such files" in client.get(url, {"state": "given_up"}).content.decode()
    assert "raw_9.root" in client.get(url, {"q": "raw_9"}).content.decode()
    stage = with_failures.stages.all()[0]
    rows = [InputFile(stage=stage, name=f"x{n:03}", changed_at=AT) for n in range(150)]
    InputFile.objects.bulk_create(rows)
    page = client.get(url)
    names = [row.name for row, _ in page.context["rows"]]
    while page.context["page"].next_query:
        page = client.get(url + page.context["page"].next_query)
        names += [row.name for row, _ in page.context["rows"]]
    assert sorted(names) == sorted([*NAMES, *(row.name for row in rows)])


def test_downloads(client, liaison, with_failures):
    client.force_login(liaison)
    url = f"/submissions/{with_failures.key}/files/download/"
    text = b"".join(client.get(url, {"state": "failed"}).streaming_content).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["name"] for row in rows] == [f"raw_{number}.root" for number in range(3, 8)]
    assert rows[0]["state"] == "failed"
    answer = client.get(url, {"format": "json"})
    assert len(json.loads(b"".join(answer.streaming_content))) == 10
    answer = client.get(url, {"format": "json", "q": "nothing"})
    assert json.loads(b"".join(answer.streaming_content)) == []
    answer = client.get(url, {"format": "sam", "state": "failed"})
    query = b"".join(answer.streaming_content).decode()
    assert query == "file_name raw_3.root,raw_4.root,raw_5.root,raw_6.root,raw_7.root\n"
    answer = client.get(url, {"format": "rucio", "q": "raw_0"})
    assert json.loads(b"".join(answer.streaming_content)) == [{"scope": "", "name": "raw_0.root"}]
    assert client.get(url, {"format": "xls"}).status_code == 404


def test_giving_up_needs_a_reason_and_can_be_undone(client, liaison, with_failures):
    client.force_login(liaison)
    url = f"/submissions/{with_failures.key}/files/"
    page = client.get(f"{url}give-up/?stage=1&name=raw_3.root")
    assert "raw_3.root" in page.content.decode()
    refused = client.post(f"{url}give-up/", {"position": 0, "names": "raw_3.root"})
    assert refused.status_code == 400
    assert "is required: " in refused.content.decode()
    data = {"position": 0, "names": "raw_3.root\nraw_4.root\n", "reason": "Lost."}
    assert client.post(f"{url}give-up/", data).status_code == 302
    assert counts(with_failures) == {"done": 5, "failed": 3, "given_up": 2}
    text = client.get(url).content.decode()
    assert "Take back…" in text
    client.post(f"{url}take-back/", {"position": 0, "names": ""})
    assert counts(with_failures) == {"done": 5, "failed": 5}


def test_what_is_missing_is_requested_once(client, liaison, approver, with_failures):
    client.force_login(liaison)
    url = f"/submissions/{with_failures.key}/files/missing/"
    assert "The draft has the 5 files" in " ".join(client.get(url).content.decode().split())
    answer = client.post(url, {"position": 0})
    made = Request.objects.exclude(pk=with_failures.pk).get()
    assert answer.headers["Location"] == made.get_absolute_url()
    stage = made.stages.get()
    assert (stage.jobs, stage.input_dataset) == (2, "raw_missing_of_nova_0001_1")
    assert stage.output_dataset == with_failures.stages.get().output_dataset
    part = DatasetPart.objects.get()
    assert part.files == [f"raw_{number}.root" for number in range(3, 8)]
    link = RequestLink.objects.get()
    assert (link.kind, link.earlier, link.later) == ("recovered", with_failures, made)
    assert counts(with_failures) == {"done": 5, "given_up": 5}
    given_up = InputFile.objects.get(name="raw_3.root")
    assert given_up.reason == f"Requested in {made.key}."
    client.post(url, {"position": 0})
    assert Request.objects.count() == 2, "nothing is missing any more"


def test_the_page_of_a_dataset_links_its_recovery_both_ways(
    client, liaison, other_liaison, with_failures
):
    original = with_failures.stages.get()
    made = request_missing(request=with_failures, position=0, by=liaison, at=AT)
    part = DatasetPart.objects.get()

    def page_of(user, name):
        client.force_login(user)
        return client.get("/datasets/dataset/", {"name": name})

    for name in (part.name, original.input_dataset):
        text = " ".join(page_of(liaison, name).content.decode().split())
        section = text.partition('id="parts"')[2].partition("</section>")[0]
        assert f"?name={part.name}" in section
        assert f"?name={original.input_dataset}" in section
        assert "the 5 files missing in <a" in section
        assert with_failures.get_absolute_url() in section
        assert made.get_absolute_url() in section
    output = " ".join(page_of(liaison, original.output_dataset).content.decode().split())
    link = f'<a href="{made.get_absolute_url()}">{made.key}</a>'
    assert f"Also planned by the draft of a recovery, {link} of" in output
    assert 'id="parts"' not in output
    # Who does not see the requests is not told of the parts.
    assert provenance_of(original.input_dataset, other_liaison) is None
    assert page_of(other_liaison, part.name).status_code == 404


def test_files_of_a_recovery_are_taken_back_only_once_it_is_cancelled(liaison, with_failures):
    made = request_missing(request=with_failures, position=0, by=liaison, at=AT)
    how = {"request": with_failures, "position": 0, "by": liaison, "at": AT, "reason": ""}
    with pytest.raises(InvalidFields, match=rf"raw_3\.root is processed by {made.key}"):
        take_back(**how, names=["raw_3.root"])
    make_move(verb=Verb.CANCEL, request=made, by=liaison, at=AT, reason="Not needed.")
    assert take_back(**how, names=[]) == 5
    assert counts(with_failures) == {"done": 5, "failed": 5}


def test_a_cancelled_recovery_gives_its_files_back(liaison, approver, with_failures):
    made = request_missing(request=with_failures, position=0, by=liaison, at=AT)
    assert give_files_back(recovery=made, at=AT) == 0, "it is only a draft"
    make_move(verb=Verb.CANCEL, request=made, by=liaison, at=AT, reason="Not needed.")
    delivery = Delivery.objects.get(subscriber="submission.give_files_back")
    assert outbox.deliver(delivery_id=delivery.pk, at=AT), delivery.last_error
    assert counts(with_failures) == {"done": 5, "failed": 5}
    event = events_of(with_failures).filter(kind="submission.files_taken_back").get()
    assert (event.data["files"], event.reason) == (5, f"{made.key} was cancelled.")
    made.refresh_from_db()
    assert give_files_back(recovery=made, at=AT) == 0
    again = request_missing(request=with_failures, position=0, by=liaison, at=AT)
    assert again.key != made.key


def test_a_recovery_keeps_the_files_that_its_jobs_read(
    liaison, approver, with_failures, cluster, end_jobs
):
    made = request_missing(request=with_failures, position=0, by=liaison, at=AT)
    stage = made.stages.get()
    names = [f"raw_{number}.root" for number in range(3, 8)]
    start_ledger(stage, list_files(stage), at=AT)
    InputFile.objects.filter(stage=stage, name=names[0]).update(state="done")
    InputFile.objects.filter(stage=stage, name=names[1]).update(state="taken")
    make_move(verb=Verb.CANCEL, request=made, by=liaison, at=AT, reason="Not needed.")
    made.refresh_from_db()
    assert give_files_back(recovery=made, at=AT) == 3
    assert counts(with_failures) == {"done": 5, "failed": 3, "given_up": 2}


def test_a_copy_of_a_recovery_has_its_files(liaison, with_failures):
    made = request_missing(request=with_failures, position=0, by=liaison, at=AT)
    copy, _ = clone_request(request=made, by=liaison, at=AT)
    names = [file.name for file in list_files(copy.stages.get())]
    assert names == [f"raw_{number}.root" for number in range(3, 8)]


def start(recovery, liaison, approver, cluster):
    """Let a recovery be approved and start, and return its assignment."""
    submit_request(request=recovery, by=liaison, at=AT)
    check_request(request=recovery, at=AT)
    recovery.refresh_from_db()
    approve_request(request=recovery, by=approver, at=AT)
    recovery.refresh_from_db()
    return assign_request(request=recovery, cluster=cluster, by=approver, at=AT, verb=Verb.START)


@pytest.mark.parametrize("is_sent", [False, True])
def test_files_of_queued_jobs_of_a_cancelled_recovery_come_back_once_these_have_ended(
    liaison, approver, with_failures, cluster, end_jobs, is_sent
):
    made = request_missing(request=with_failures, position=0, by=liaison, at=AT)
    assignment = start(made, liaison, approver, cluster)
    array = send(assignment, AT) if is_sent else plan_next(assignment=assignment, at=AT)
    assert counts(made) == {"taken": 5}
    made.refresh_from_db()
    make_move(verb=Verb.CANCEL, request=made, by=approver, at=AT, reason="Not needed.")
    made.refresh_from_db()
    assert give_files_back(recovery=made, at=AT) == 0, "a job may still read them"
    if is_sent:
        check_files()
        assert counts(with_failures) == {"done": 5, "given_up": 5}
        end_jobs(array, failed={1}, tasks=[1])
        dispatch.refresh_progress(cluster=cluster, at=AT + HOUR)
    check_files()
    if is_sent:
        assert counts(with_failures) == {"done": 5, "failed": 2, "given_up": 3}
    else:
        assert counts(with_failures) == {"done": 5, "failed": 5}
    check_files()
    assert events_of(with_failures).filter(kind="submission.files_taken_back").count() == 1


def test_files_of_a_recovery_come_back_later_if_they_are_not_decided_on_now(
    liaison, approver, with_failures
):
    made = request_missing(request=with_failures, position=0, by=liaison, at=AT)
    Request.objects.filter(pk=with_failures.pk).update(state="testing")
    make_move(verb=Verb.CANCEL, request=made, by=liaison, at=AT, reason="Not needed.")
    made.refresh_from_db()
    assert give_files_back(recovery=made, at=AT) == 0
    check_files()
    assert counts(with_failures) == {"done": 5, "given_up": 5}
    Request.objects.filter(pk=with_failures.pk).update(state="running")
    check_files()
    assert counts(with_failures) == {"done": 5, "failed": 5}


def test_a_recovery_runs_with_exactly_its_files(
    liaison, approver, with_failures, cluster, end_jobs
):
    made = request_missing(request=with_failures, position=0, by=liaison, at=AT)
    array = send(start(made, liaison, approver, cluster), AT)
    assert "0) files=(raw_3.root raw_4.root raw_5.root);;" in array.script
    assert "1) files=(raw_6.root raw_7.root);;" in array.script
    end_jobs(array, at=AT + HOUR)
    dispatch.refresh_progress(cluster=cluster, at=AT + HOUR)
    assert counts(made) == {"done": 5}


def test_another_result_can_count(client, liaison, approver, started, end_jobs):
    array = send(started)
    jobs = end_jobs(array, failed={0})
    dispatch.refresh_progress(cluster=array.cluster, at=AT + HOUR)
    retry_failed(request=started.request, position=0, by=approver, at=AT + HOUR)
    jobs[0].state = "completed"
    jobs[0].save(update_fields=["state"])
    again = send(started, AT + HOUR)
    retried = end_jobs(again, at=AT + 2 * HOUR)[0]
    dispatch.refresh_progress(cluster=array.cluster, at=AT + 2 * HOUR)
    file = InputFile.objects.get(name="raw_0.root")
    assert (file.job_key, file.is_doubled) == (jobs[0].pk, True)
    client.force_login(liaison)
    url = f"/submissions/{started.request.key}/files/"
    assert "Count this" in client.get(url).content.decode()
    client.post(f"{url}count/", {"position": 0, "file": file.pk, "job": retried.pk})
    file.refresh_from_db()
    assert file.job_key == retried.pk
    assert [row.job_key for row in file.repeated_results.all()] == [jobs[0].pk]
    wrong = client.post(f"{url}count/", {"position": 0, "file": file.pk, "job": 1}, follow=True)
    assert "did not complete with the file" in wrong.content.decode()


def test_the_api_lists_and_decides(api, liaison, with_failures):
    call = api(liaison)
    url = f"/api/v1/files/{with_failures.key}/"
    (totals,) = call.get(url).json()
    assert (totals["stage"], totals["done"], totals["failed"]) == (1, 5, 5)
    inputs = call.get(f"{url}inputs/?stage=1&state=failed").json()["results"]
    assert {row["name"] for row in inputs} == {f"raw_{number}.root" for number in range(3, 8)}
    refused = call.post(f"{url}give-up/", {"position": 0, "names": []}, format="json")
    assert refused.status_code == 400
    body = {"position": 0, "names": ["raw_3.root"], "reason": "Lost."}
    (totals,) = call.post(f"{url}give-up/", body, format="json").json()
    assert totals["given_up"] == 1
    made = call.post(f"{url}request-missing/", {"position": 0}, format="json")
    assert made.status_code == 201
    assert Request.objects.filter(key=made.json()["key"]).exists()


def test_catalogue_answers_are_shown_with_their_age(client, liaison, with_failures):

    sam = Catalogue.objects.create(name="sam", kind="json", base_url="/x")
    KnownDataset.objects.create(
        catalogue=sam,
        name=with_failures.stages.get().output_dataset,
        exists=True,
        files=7,
        requested_at=AT,
        answered_at=AT,
        due_at=AT,
    )
    client.force_login(liaison)
    text = client.get(f"/submissions/{with_failures.key}/files/").content.decode()
    assert "sam has 7 files of the output dataset" in " ".join(text.split())
    assert FileTotals.objects.count() == 1


def test_the_production_report_lists_files_in_and_out(client, liaison, with_failures):
    recompute_dirty_hours(at=AT + 2 * HOUR)
    (row,) = report_of(with_failures, at=AT + 2 * HOUR)["files"]
    assert (row["files_in"], row["done"], row["missing"], row["files_out"]) == (10, 5, 5, 0)


def test_very_many_names_are_read_in_linear_time():
    names = [str(number) for number in range(100_000)]
    form = FilesForm({"position": 0, "reason": "Lost.", "names": "\n \n".join(names + names[:5])})
    began = time.process_time()
    assert form.is_valid()
    assert form.cleaned_data["names"] == names
    assert time.process_time() - began < 5


def report_parents(stage, *, names, parents):
    """Report an output file of these parents for each of these names."""
    files = [NamedFile(name, 10, parents=parents) for name in names]
    store_output_files(
        stage=stage, key="report", number=None, files=files, by="liaison", at=AT + HOUR
    )


def test_the_outputs_say_of_which_files_they_were_made(client, liaison, with_failures):
    client.force_login(liaison)
    stage = with_failures.stages.all()[0]
    hostile = "<b>raw&x=1.root"
    InputFile.objects.create(stage=stage, name=hostile, changed_at=AT)
    report_parents(stage, names=["a.root"], parents=["raw_3.root", hostile])
    url = f"/submissions/{with_failures.key}/files/outputs/"
    text = " ".join(client.get(url).content.decode().split())
    assert "<summary>2 files</summary>" in text
    assert "?stage=1&amp;q=raw_3.root" in text
    assert "?stage=1&amp;q=%3Cb%3Eraw%26x%3D1.root" in text
    assert "&lt;b&gt;raw&amp;x=1.root" in text
    assert hostile not in text

    [row] = client.get(f"/api/v1/files/{with_failures.key}/outputs/").json()["results"]
    assert row["parents"] == ["raw_3.root", hostile]


def test_of_many_parents_the_page_shows_the_first(
    client, liaison, with_failures, django_assert_num_queries
):
    client.force_login(liaison)
    stage = with_failures.stages.all()[0]
    names = [f"parent-{number:03}" for number in range(30)]
    rows = [InputFile(stage=stage, name=name, changed_at=AT) for name in names]
    InputFile.objects.bulk_create(rows)
    report_parents(stage, names=[f"out-{number}" for number in range(50)], parents=names)
    url = f"/submissions/{with_failures.key}/files/outputs/"
    text = " ".join(client.get(url).content.decode().split())
    assert text.count("<summary>more than 20 files</summary>") == 50
    assert "parent-019" in text
    assert "parent-020" not in text
    rows = client.get(f"/api/v1/files/{with_failures.key}/outputs/").json()["results"]
    assert [row["parents"] for row in rows] == [names] * len(rows)
    files = list(stage.output_files.all())
    with django_assert_num_queries(1):
        parents = parents_of(files, 5)
    assert parents == {file.pk: names[:5] for file in files}


def test_an_output_without_named_parents_is_made_of_all_files_of_its_job(
    client, liaison, with_failures
):
    stage = with_failures.stages.all()[0]
    client.force_login(liaison)
    values = {"stage": stage, "size_bytes": 10, "at": AT, "by": "job"}
    OutputFile.objects.create(name="of-job.root", key="4711_0", number=0, **values)
    OutputFile.objects.create(name="of-nobody.root", key="x", **values)
    url = f"/submissions/{with_failures.key}/files/outputs/"
    text = client.get(url).content.decode()
    assert text.count("all files of its job") == 1
    assert "<details>" not in text
