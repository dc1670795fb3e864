"""Jobs post the ends of their logs, which count where the logs themselves cannot be read."""

from datetime import timedelta

import pytest

from apps.diagnosis.domain.excerpt_retention import delete_expired
from apps.diagnosis.domain.harvest import harvest_batch, queue_harvests
from apps.diagnosis.domain.posted_logs import MOST_BYTES, MOST_OF_A_LOG
from apps.diagnosis.models import LogExcerpt, LogHarvest, PostedLog, Verdict
from apps.jobs.domain.phases.tokens import new_phase_token
from tests.factories import people

FATAL = b"start\n[FATAL] Auth failed\n"


@pytest.fixture
def post(client, make_job, nova, at, time_machine):
    """Post the end of a log of a job, as of a time while it ran."""
    cluster = make_job(99).cluster

    def post(job_id, data=FATAL, *, label="x", when=at - timedelta(minutes=10), experiment=nova, **query):
        time_machine.move_to(when, tick=False)
        token = new_phase_token(cluster=cluster.pk, experiment=experiment.pk, at=at - timedelta(days=1), label=label)
        address = "/api/v1/job-logs/?" + "&".join(
            f"{name}={value}" for name, value in {"job_id": job_id, **query}.items()
        )
        headers = {"Authorization": f"Bearer {token}"} if label else {}
        return client.post(address, data, content_type="application/octet-stream", headers=headers).status_code

    return post


def harvested(job, at) -> tuple[str, str]:
    queue_harvests(job_ids=[job.pk], at=at)
    harvest_batch(at=at)
    return LogHarvest.objects.get(job=job).state, Verdict.objects.get(job=job).cause


@pytest.mark.parametrize("fields", [{}, {"log_path": ""}, {"log_path": "/etc/passwd"}])
def test_what_was_posted_is_judged_where_the_log_cannot_be_read(post, make_job, at, fields):
    job = make_job(1, **fields)
    assert post(job.job_id, offset=4000) == 204
    assert harvested(job, at) == ("done", "XRD-AUTH")
    excerpt = LogExcerpt.objects.get()
    assert (excerpt.data, excerpt.first_offset) == (FATAL, 4000)
    assert "Read from the end of the log that the job posted" in str(Verdict.objects.get().reasons)


def test_log_itself_counts_more(post, make_job, at):
    job = make_job(1, log="std::bad_alloc\n")
    post(job.job_id)
    assert harvested(job, at) == ("done", "BADALLOC")


def test_post_of_another_attempt_experiment_or_job_is_not_the_jobs(post, make_job, at, dune):
    job = make_job(1, log_path="")
    post(job.job_id, label="before", when=job.started_at - timedelta(minutes=2))
    post(job.job_id, label="after", when=job.ended_at + timedelta(minutes=6))
    post(job.job_id, label="other", experiment=dune)
    post("2", label="job")
    assert harvested(job, at) == ("log_not_found", "")


def test_newest_posts_stay_secrets_do_not_and_all_expire(post, make_job, at, settings):
    job = make_job(1)
    for number in range(MOST_OF_A_LOG + 1):
        post(job.job_id, f"{number} X_TOKEN=abcdefgh\n".encode(), when=at - timedelta(minutes=20 - number))
    assert [row.data[:10] for row in PostedLog.objects.order_by("pk")] == [b"1 X_TOKEN=", b"2 X_TOKEN=", b"3 X_TOKEN="]
    assert b"abcdefgh" not in PostedLog.objects.last().data
    delete_expired(at=at + timedelta(days=settings.LOG_EXCERPT_DAYS))
    assert not PostedLog.objects.exists()


def test_wrong_posts_are_refused(post):
    assert post("86_1") == 204
    assert post("86_2", stream="stderr") == 204
    assert post("87") == 403  # the token counts for one array
    assert post("86_1", label="") == 401
    assert post("86_1", b"") == 400
    assert post("86_1", stream="log") == 400
    assert post("86_1", b"x" * (MOST_BYTES + 1)) == 413
    assert PostedLog.objects.count() == 2
    assert people.experiment("NOVA") == PostedLog.objects.first().experiment
