"""The logs of completed jobs are read too, so that a line can be looked for in good jobs."""

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.domain.reading.line_templates import (
    queue_completed,
    read_completed_batch,
    template_lines,
)
from apps.diagnosis.domain.verdicts.harvest import harvest_batch, queue_harvests
from apps.diagnosis.engine.base import Block
from apps.diagnosis.models import CompletedLog
from apps.jobs.models import Job
from apps.search.domain import line_totals
from apps.search.models import JobTemplates, LineTemplate, TemplateTotals

pytestmark = pytest.mark.django_db


def texts_of(job: Job) -> set[str]:
    keys = JobTemplates.objects.get(job=job).templates
    return set(LineTemplate.objects.filter(pk__in=keys).values_list("text", flat=True))


def test_template_of_a_line_has_no_numbers_paths_and_ids():
    data = b"12:03 open /a/b/c1.root on wn-0306\nError 17: 0xff\n\n12 -- /\n"
    lines = template_lines([Block(data, 0, len(data), 1)])
    assert {(line.text, line.names_error) for line in lines.values()} == {
        ("* open * on wn*", False),
        ("Error * *", True),
    }


def test_log_of_a_completed_job_is_read_once(make_job, at):
    good = make_job(1, state="completed", exit_code=0, stage="reco", log="event 3\nclosed\n")
    bad = make_job(2, stage="reco", log="event 4\ncannot open /a/b\n")
    queue_harvests(job_pks=[good.pk, bad.pk], at=at)
    assert queue_completed(job_pks=[good.pk, bad.pk], at=at) == 1
    assert queue_completed(job_pks=[good.pk, bad.pk], at=at) == 1
    assert CompletedLog.objects.count() == 1

    assert read_completed_batch(at=at) == 1
    assert read_completed_batch(at=at) == 0
    harvest_batch(at=at)

    assert texts_of(good) == {"event *", "closed"}
    assert texts_of(bad) == {"event *", "cannot open *"}
    assert not JobTemplates.objects.get(job=good).failed
    assert JobTemplates.objects.get(job=bad).failed
    assert CompletedLog.objects.count() == 0
    assert queue_completed(job_pks=[good.pk], at=at) == 0


def test_missing_log_is_tried_again_and_then_left_out(make_job, at):
    job = make_job(1, state="completed", exit_code=0, stage="reco")
    queue_completed(job_pks=[job.pk], at=at)
    for minutes, waiting in ((0, 1), (2, 1), (20, 0)):
        assert read_completed_batch(at=at + timedelta(minutes=minutes)) == 1
        assert CompletedLog.objects.count() == waiting
    assert JobTemplates.objects.count() == 0


def test_old_jobs_and_a_setting_that_is_off_queue_nothing(make_job, at, settings):
    job = make_job(1, state="completed", exit_code=0, stage="reco", log="closed\n")
    assert queue_completed(job_pks=[job.pk], at=at + timedelta(days=3)) == 0
    settings.READ_COMPLETED_LOGS = False
    assert queue_completed(job_pks=[job.pk], at=at) == 0


def test_job_that_failed_meanwhile_is_stored_as_failed(make_job, at):
    job = make_job(1, state="completed", exit_code=0, stage="reco", log="closed\n")
    queue_completed(job_pks=[job.pk], at=at)
    Job.objects.filter(pk=job.pk).update(state=JobState.FAILED)
    read_completed_batch(at=at)
    assert JobTemplates.objects.get().failed


def test_kept_logs_of_an_earlier_version_get_their_templates(make_job, at, capsys):
    jobs = [make_job(n, stage="reco", log=f"event {n}\ncannot open /a/b\n") for n in range(1, 4)]
    queue_harvests(job_pks=[job.pk for job in jobs], at=at)
    harvest_batch(at=at)
    JobTemplates.objects.all().delete()
    LineTemplate.objects.all().delete()

    call_command("line_templates")
    assert "Stored the templates of 3 jobs." in capsys.readouterr().out
    assert texts_of(jobs[0]) == {"event *", "cannot open *"}
    call_command("line_templates", check=True)
    TemplateTotals.objects.update(failed=9)
    with pytest.raises(CommandError, match="The totals of 1 hour differ"):
        call_command("line_templates", check=True)


def test_command_ends_although_an_hour_cannot_be_counted(make_job, at, monkeypatch, caplog):
    job = make_job(1, stage="reco", log="event 1\n")
    queue_harvests(job_pks=[job.pk], at=at)
    harvest_batch(at=at)

    def fail(**_: object) -> None:
        raise DatabaseError("the disk is full")

    monkeypatch.setattr(line_totals, "recount_hour", fail)
    call_command("line_templates")
    assert caplog.text.count("cannot be counted") == 1
