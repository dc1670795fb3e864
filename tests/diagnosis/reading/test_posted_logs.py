"""Jobs post the ends of their logs, which count where the logs themselves cannot be read."""

import os
from datetime import timedelta

import pytest

from apps.diagnosis.domain.reading import posted_logs
from apps.diagnosis.domain.reading.excerpt_retention import delete_expired
from apps.diagnosis.domain.reading.posted_logs import MOST_BYTES, MOST_OF_A_LOG, delete_unknown
from apps.diagnosis.domain.verdicts.harvest import harvest_batch, queue_harvests
from apps.diagnosis.models import LogExcerpt, LogHarvest, PostedLog, Verdict
from apps.jobs.domain.phases.tokens import new_phase_token
from apps.jobs.models import Collection
from tests.factories import archive, people

FATAL = b"start\n[FATAL] Auth failed\n"


@pytest.fixture
def post(client, make_job, nova, at, time_machine):
    """Post the end of a log of a job, as of a time while it ran."""
    cluster = make_job(99).cluster

    def post(
        job_id, data=FATAL, *, label="x", when=at - timedelta(minutes=10), experiment=nova, **query
    ):
        time_machine.move_to(when, tick=False)
        token = new_phase_token(
            cluster_id=cluster.pk,
            experiment_id=experiment.pk,
            at=at - timedelta(days=1),
            label=label,
        )
        address = "/api/v1/job-logs/?" + "&".join(
            f"{name}={value}" for name, value in {"job_id": job_id, **query}.items()
        )
        headers = {"Authorization": f"Bearer {token}"} if label else {}
        return client.post(address, data, content_type="application/octet-stream", headers=headers)

    def status_of_post(*args, **options):
        return post(*args, **options).status_code

    status_of_post.answer = post
    return status_of_post


def harvested(job, at) -> tuple[str, str]:
    queue_harvests(job_pks=[job.pk], at=at)
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
        post(
            job.job_id,
            f"{number} X_TOKEN=abcdefgh\n".encode(),
            when=at - timedelta(minutes=20 - number),
        )
    assert [row.data[:10] for row in PostedLog.objects.order_by("pk")] == [
        b"1 X_TOKEN=",
        b"2 X_TOKEN=",
        b"3 X_TOKEN=",
    ]
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


def stored_bytes() -> int:
    return sum(len(row.compressed) for row in PostedLog.objects.all())


def test_posts_of_a_token_are_limited_by_bytes(post, monkeypatch):
    monkeypatch.setattr(posted_logs, "MOST_BYTES_OF_A_TOKEN", 2 * 1024 * 1024)
    answers = [post(f"86_{number}", os.urandom(MOST_BYTES // 2)) for number in range(8)]
    assert answers == [204] * 4 + [413] * 4
    assert stored_bytes() < 2.1 * 1024 * 1024
    assert post("87", label="other") == 204
    assert (
        "limit of a token is 2 MB; posts are deleted after" in post.answer("86_9").json()["detail"]
    )


def test_posts_of_a_token_are_limited_by_number(post, monkeypatch):
    monkeypatch.setattr(posted_logs, "MOST_OF_AN_ARRAY", 2)
    assert [post(f"86_{number}") for number in range(3)] == [204, 204, 413]


def test_posts_of_an_experiment_are_limited_for_a_day(post, monkeypatch, at, dune):
    monkeypatch.setattr(posted_logs, "MOST_BYTES_A_DAY", 1024 * 1024)
    big, hour = os.urandom(MOST_BYTES // 2), timedelta(hours=1)
    assert [post(str(number), big, label=str(number), when=at - hour) for number in range(2)] == [
        204,
        204,
    ]

    refused = post.answer("3", label="3", when=at)
    assert refused.status_code == 429
    assert refused["Retry-After"] == str(23 * 3600)
    assert f"Try again after {at + 23 * hour:%d %b %Y %H:%M} UTC" in refused.json()["detail"]
    assert post("4", label="4", when=at, experiment=dune) == 204
    assert post("5", label="5", when=at + 24 * hour) == 204


def test_small_posts_count_for_their_rows(post, monkeypatch):
    monkeypatch.setattr(posted_logs, "MOST_BYTES_OF_A_TOKEN", 8192)
    assert [post(f"86_{number}", b"x") for number in range(3)] == [204, 204, 413]


def test_posts_for_jobs_that_nobody_knows_are_deleted_after_a_day(post, make_job, at, dune):
    job = make_job(1)
    posted_for = {
        "known": job.job_id,
        "captured": "501_7",
        "unknown": "600",
        "of another experiment": job.job_id,
    }
    archive.store(
        archive.captured_job(501, cluster=job.cluster.name, scheduler=job.cluster.scheduler)
    )
    for label, job_id in posted_for.items():
        post(job_id, label=label, experiment=dune if "another" in label else job.experiment)
    posted_at, day = PostedLog.objects.first().posted_at, timedelta(days=1)

    assert delete_unknown(at=posted_at + day) == 0
    assert delete_unknown(at=posted_at + 3 * day) == 0, "accounting was never read"
    Collection.objects.create(cluster=job.cluster, collected_until=posted_at + day)
    assert delete_unknown(at=posted_at + 3 * day) == 0, "accounting is behind"
    Collection.objects.update(collected_until=posted_at + 2 * day)
    delete_expired(at=posted_at + 3 * day)
    assert set(PostedLog.objects.values_list("token_label", flat=True)) == {"known", "captured"}
