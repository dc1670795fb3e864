"""Logs of jobs that run are followed: they grow, shrink, are replaced, go missing,
and end with the job.
"""

import os
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.urls import reverse

from apps.archive.domain.capture_hosts import create_capture_host
from apps.archive.domain.store.conflicts import choose_capture
from apps.archive.domain.store.jobs import store_jobs
from apps.archive.models import ArchivedJob
from apps.diagnosis.domain.reading import running_logs
from apps.diagnosis.domain.reading.running_logs import find_running_log, running_job, running_log
from capture.wire.entry import CapturedJob
from tests.archive.spool_writer import environment_bytes
from tests.factories import clusters, jobs


@pytest.fixture
def capture(db, nova, roots, at):
    """Capture a job that runs on a Slurm cluster whose commands do not answer:
    paths follow from its script.
    """
    cache.clear()

    def capture(
        job_id: str = "4711", options: str = "-o run-%j.out", user: str = "prod"
    ) -> ArchivedJob:
        cluster = clusters.cluster("alps", "slurm")
        captured = CapturedJob(
            cluster="alps",
            scheduler="slurm",
            job_id=job_id,
            submitted_at=at,
            captured_at=at,
            script=f"#!/bin/bash\n#SBATCH {options}\nreco\n".encode(),
            environment=environment_bytes((("SLURM_SUBMIT_DIR", str(roots)),)),
            user=user,
        )
        store_jobs(jobs=[captured], by="test", at=at)
        ArchivedJob.objects.update(experiment=nova)
        archived = ArchivedJob.objects.get(job_id=job_id)
        assert archived.cluster == cluster
        return archived

    return capture


def located(archived, at, job_id=None):
    find_running_log(archived_id=archived.pk, job_id=job_id or archived.job_id, at=at)
    return archived


def texts(log):
    return [shown.line.text for shown in log.lines]


def test_log_grows_shrinks_is_replaced_and_goes(capture, roots, at):
    archived, path = located(capture(), at), roots / "run-4711.out"
    missing = running_log(archived, job_id="4711")
    assert "no such file. The job may not have started." in missing.problem
    path.write_text("one\n")
    first = running_log(archived, job_id="4711")
    assert (texts(first), first.notice, first.problem) == (["one"], "", "")
    with path.open("a") as file:
        file.write("two\nHTTP error: 503 Service Unavailable: samweb.declareFile r91_s77.root\n")
    second = running_log(archived, job_id="4711", before=first.seen)
    assert texts(second)[:2] == ["one", "two"]
    assert second.lines[2].role
    assert second.notice == ""
    path.write_text("new\n")
    third = running_log(archived, job_id="4711", before=second.seen)
    assert third.notice == "shrank"
    path.write_text("other start\nand more\n")
    assert running_log(archived, job_id="4711", before=third.seen).notice == "overwritten"
    other = roots / "other"
    other.write_text("another file\n" * 9)
    other.replace(path)
    fourth = running_log(archived, job_id="4711", before=third.seen)
    assert fourth.notice == "replaced"
    path.unlink()
    gone = running_log(archived, job_id="4711", before=fourth.seen)
    assert "It was there before: it has been deleted or moved." in gone.problem
    assert gone.lines == ()


def test_only_the_end_of_a_large_log_is_read(capture, roots, at):
    archived, path = located(capture(), at), roots / "run-4711.out"
    with path.open("w") as file:
        file.truncate(4 * 2**30)
        file.seek(0, os.SEEK_END)
        file.write("\n" + "".join(f"line {number}\n" for number in range(1000)))
    log = running_log(archived, job_id="4711")
    assert (len(log.lines), texts(log)[-1]) == (200, "line 999")


def test_job_that_ends_is_no_longer_followed_one_that_starts_again_is(
    capture, roots, nova, at, client, liaison
):
    archived = located(capture(), at)
    (roots / "run-4711.out").write_text("one\n")
    client.force_login(liaison)
    address = reverse("diagnosis:running-log", args=["alps", "4711"])
    page = client.get(address)
    assert 'hx-trigger="every 3s"' in page.text
    assert (
        "hx-trigger"
        not in client.get(f"{address}?pause=yes").text.split('id="tail"')[1].split("<header")[0]
    )
    fields = {"submitted_at": at, "started_at": at, "experiment": nova}
    lost = jobs.row(archived.cluster, 4711, at=at + timedelta(hours=1), state="node_fail", **fields)
    assert running_log(archived, job_id="4711").finished is None
    last = jobs.row(archived.cluster, 4711, at=at + timedelta(hours=2), attempt=2, **fields)
    part = client.get(address, headers={"HX-Request": "true"})
    assert "hx-trigger" not in part.text
    assert reverse("diagnosis:log", args=[last.pk]) in part.text
    assert reverse("diagnosis:log", args=[lost.pk]) not in part.text


def test_task_of_an_array_has_its_own_log(capture, roots, at, liaison):
    archived = located(capture(options="-o a-%a.out -e a-%a.err"), at, "4711_3")
    (roots / "a-3.out").write_text("task three\n")
    (roots / "a-3.err").write_text("<b>bad</b>\n")
    assert running_job(user=liaison, cluster="alps", job_id="4711_3") == archived
    assert texts(running_log(archived, job_id="4711_3")) == ["task three"]
    assert texts(running_log(archived, job_id="4711_3", stream="stderr")) == ["<b>bad</b>"]


def test_page_escapes_asks_a_worker_and_hides_jobs_of_others(
    capture, roots, at, client, liaison, other_liaison
):
    archived = capture()
    (roots / "run-4711.out").write_text("<script>alert(1)</script>\n")
    client.force_login(liaison)
    address = reverse("diagnosis:running-log", args=["alps", "4711"])
    assert "Asking the scheduler" in client.get(address).text
    located(archived, at)
    page = client.get(address)
    assert "&lt;script&gt;alert(1)" in page.text
    assert "<script>alert(1)" not in page.text
    assert client.get(reverse("diagnosis:running-log", args=["alps", "4712"])).status_code == 404
    client.force_login(other_liaison)
    assert client.get(address).status_code == 404


def test_invented_tasks_ask_the_scheduler_once_at_a_time(
    capture, roots, at, client, liaison, monkeypatch
):
    archived = capture(options="-o a-%a.out")
    client.force_login(liaison)
    questions = []
    monkeypatch.setattr(
        running_logs, "enqueue", lambda _task, **arguments: questions.append(arguments["job_id"])
    )
    for task in range(30):
        address = reverse("diagnosis:running-log", args=["alps", f"4711_{task}"])
        assert "Asking the scheduler" in client.get(address).text
    assert questions == ["4711_0"]
    located(archived, at, "4711_0")
    client.get(reverse("diagnosis:running-log", args=["alps", "4711_1"]))
    assert questions == ["4711_0", "4711_1"]


def test_log_of_the_capture_that_was_chosen_is_read(capture, approver, at):
    """A forged one may be the newer one."""
    first = capture()
    forged = CapturedJob(
        cluster="alps",
        scheduler="slurm",
        job_id="4711",
        submitted_at=at + timedelta(seconds=3),
        captured_at=at,
        script=b"forged",
        environment=b"",
        sender="farm-1",
    )
    store_jobs(jobs=[forged], by="test", at=at)
    newest = running_job(user=approver, cluster="alps", job_id="4711")
    assert (newest.sender, running_log(newest, job_id="4711").problem) == (
        "farm-1",
        running_logs.NOT_TRUSTED,
    )

    choose_capture(job=first, conflict_version=1, reason="checked", by=approver, at=at)

    assert running_job(user=approver, cluster="alps", job_id="4711") == first
    first.refresh_from_db()
    assert running_log(first, job_id="4711").problem != running_logs.NOT_TRUSTED


def test_log_of_another_user_is_not_read_on_the_word_of_a_capture_host(capture, roots, at):
    """A forged capture names the user whose log it wants, and the path as its output."""
    archived = located(capture(), at)
    (roots / "run-4711.out").write_text("private\n")
    for change in (
        {"sender": "farm-1"},
        {"sender": None},
        {"sender": "", "conflict": "Captures differ."},
    ):
        ArchivedJob.objects.update(**change)
        archived.refresh_from_db()
        log = running_log(archived, job_id="4711")
        assert (texts(log), log.path, log.problem) == ([], "", running_logs.NOT_TRUSTED)
    create_capture_host(name="farm-1", clusters=["alps"], trusted=True, by="test", at=at)
    ArchivedJob.objects.update(sender="farm-1", conflict="")
    archived.refresh_from_db()
    assert texts(running_log(archived, job_id="4711")) == ["private"]


def test_file_outside_of_the_roots_is_refused(capture, tmp_path, at):
    (tmp_path / "secret").write_text("secret\n")
    log = running_log(located(capture(options=f"-o {tmp_path}/secret"), at), job_id="4711")
    assert log.lines == ()
    assert "secret" in log.problem


def test_secrets_of_a_running_job_are_starred(capture, roots, at):
    (roots / "run-4711.out").write_text("start\npassword: hunter2\n")
    log = running_log(located(capture(), at), job_id="4711")
    assert texts(log) == ["start", "password: *******"]


def test_log_is_opened_by_the_id_of_its_job(capture, client, liaison, other_liaison):
    archived = capture()
    query = {"cluster": archived.cluster.name, "job": " 4711_3 "}
    address = f"/jobs/running/{archived.cluster.name}/4711_3/log/"
    client.force_login(liaison)
    assert client.get("/jobs/running/log/", query).url == address
    for unknown in ({"job": "9999"}, {"job": "../x"}, {"cluster": "nowhere"}, {"job": ""}):
        assert client.get("/jobs/running/log/", query | unknown).url == "/jobs/?tab=running"
    client.force_login(other_liaison)
    assert client.get("/jobs/running/log/", query).url == "/jobs/?tab=running"
