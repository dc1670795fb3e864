"""What the rules no longer keep goes, the oldest first; what is pinned, or needed by another job,
stays.
"""

import threading
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.urls import reverse

from apps.archive.domain import retention
from apps.archive.domain.retention import (
    content_size,
    delete_expired,
    find_excess_storage,
    pin_job,
    save_retention_rule,
    unpin_job,
)
from apps.archive.models import ArchivedJob, Blob, Pin, RetentionRule, ScriptWords
from apps.clusters.models import Cluster
from apps.core.errors import NotAllowed
from apps.core.models import Event
from tests.archive.conftest import index_words
from tests.factories import people
from tests.factories.archive import START, captured_job, store

pytestmark = pytest.mark.django_db

DAY = 24 * 60
AT = START + timedelta(days=100)


def rule(*, cluster="alps", **limits):
    rule = RetentionRule(cluster=cluster and Cluster.objects.get(name=cluster), **limits)
    save_retention_rule(rule=rule, by="admin", at=START)
    return rule


def expire(batches=100):
    return delete_expired(by="test", at=AT, batches=batches)


def kept():
    return sorted(ArchivedJob.objects.values_list("job_id", flat=True), key=int)


def test_jobs_past_the_age_go_with_the_contents_that_nobody_else_has():
    store(
        captured_job(1),
        captured_job(2),
        captured_job(3, script=captured_job(1).script, minutes=50 * DAY),
    )
    rule(max_age_days=60)

    assert expire() == 2

    assert kept() == ["3"]
    assert {bytes(blob.sha256).hex() for blob in Blob.objects.all()} == {
        ArchivedJob.objects.get().script_sha256,
        ArchivedJob.objects.get().environment_sha256,
    }
    call_command("archive", "verify")


def test_words_go_with_the_last_job_of_a_day():
    script = captured_job(1).script
    store(
        captured_job(1),
        captured_job(2, script=script, minutes=5),
        captured_job(3, script=script, minutes=50 * DAY),
    )
    index_words(at=AT)
    rule(max_age_days=60)
    assert ScriptWords.objects.count() == 2

    assert expire() == 2

    assert [words.day for words in ScriptWords.objects.all()] == [
        (START + timedelta(days=50)).date()
    ]


def test_deletion_is_one_event_a_batch_with_numbers_and_range(monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 2)
    store(*(captured_job(number, minutes=number) for number in (1, 2, 3)))
    ids = list(ArchivedJob.objects.order_by("pk").values_list("pk", flat=True))
    rule(max_age_days=60)

    assert expire() == 3

    first, second = Event.objects.filter(kind="archive.expired").order_by("pk")
    assert (first.data["jobs"], first.data["contents"], first.data["ids"]) == (2, 2, ids[:2])
    assert (second.data["jobs"], second.data["ids"]) == (1, [ids[2], ids[2]])
    assert first.reason == "submitted more than 60 days ago"


def test_size_is_kept_by_deleting_the_oldest(monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 1)
    store(
        *(captured_job(number, minutes=number) for number in range(1, 9)),
        captured_job(99, cluster="jura"),
    )
    size = content_size(cluster=Cluster.objects.get(name="alps"))
    rule(max_bytes=size // 2)
    (before,) = find_excess_storage(at=AT)

    deleted = expire()

    assert content_size(cluster=Cluster.objects.get(name="alps")) <= size // 2
    assert kept() == [*map(str, range(deleted + 1, 9)), "99"]
    assert (before.size_bytes, before.for_size > 0) == (size, True)
    assert expire() == 0


def test_own_rule_of_a_cluster_counts_in_place_of_that_of_all():
    store(captured_job(1), captured_job(2, cluster="jura"), captured_job(3, cluster="eiger"))
    rule(cluster=None, max_age_days=60)
    rule(max_age_days=365)

    expire()

    assert kept() == ["1"]


def test_pinned_job_stays_until_it_is_unpinned(admin):
    store(captured_job(1), captured_job(2))
    rule(max_age_days=60, max_bytes=0)
    job = ArchivedJob.objects.get(job_id="1")
    pin_job(job=job, by=admin, reason="GGUS-17", at=START)
    pin_job(job=job, by=admin, reason="again", at=START)

    expire()
    assert kept() == ["1"]
    unpin_job(job=job, by=admin, at=START)
    expire()

    assert kept() == []
    assert list(
        Event.objects.filter(kind__contains="pinned").order_by("pk").values_list("kind", "reason")
    ) == [
        ("archive.pinned", "GGUS-17"),
        ("archive.unpinned", "GGUS-17"),
    ]


def test_only_those_who_answer_for_a_job_pin_it(nova):
    store(captured_job(1), captured_job(2))
    ArchivedJob.objects.filter(job_id="2").update(experiment=nova)
    member = people.person("member", ("liaison", nova))

    with pytest.raises(NotAllowed):
        pin_job(job=ArchivedJob.objects.get(job_id="1"), by=member, reason="mine", at=START)
    pin_job(job=ArchivedJob.objects.get(job_id="2"), by=member, reason="ours", at=START)

    assert Pin.objects.get().job.job_id == "2"


def test_job_is_pinned_and_unpinned_on_its_page_and_over_the_api(client, admin):
    store(captured_job(1))
    job = ArchivedJob.objects.get()
    page = reverse("archive:job", args=[job.pk])
    client.force_login(admin)

    assert "Pin job" in client.get(page).text
    answer = client.post(
        reverse("archive:pin", args=[job.pk]), {"reason": "<b>under discussion</b>"}, follow=True
    )
    assert "&lt;b&gt;under discussion&lt;/b&gt;" in answer.text
    client.post(reverse("archive:pin", args=[job.pk]), {"reason": ""}, follow=True)
    client.post(reverse("archive:unpin", args=[job.pk]))
    assert not Pin.objects.exists()
    assert (
        client.post(f"/api/v1/archive/{job.pk}/pin/", {"reason": "x"}, "application/json").json()[
            "reason"
        ]
        == "x"
    )
    assert client.post(f"/api/v1/archive/{job.pk}/unpin/").status_code == 204
    assert not Pin.objects.exists()


def test_dry_run_deletes_nothing(capsys):
    store(captured_job(1, minutes=-100 * DAY), captured_job(2, minutes=-100 * DAY))
    rule(max_age_days=60)

    call_command("archive", "retain", "--dry-run")

    assert "2 jobs are too old" in capsys.readouterr().out
    assert len(kept()) == 2
    call_command("archive", "retain")
    assert capsys.readouterr().out.endswith("deleted 2 jobs\n")
    assert kept() == []


def in_another_connection(work):
    def run():
        work()
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_content_that_is_being_stored_again_stays(transactional_db):
    """The last job with a content is deleted while another with the same is being stored,
    and the other way round.
    """
    store(captured_job(1))
    rule(max_age_days=60)
    again = captured_job(2, script=captured_job(1).script, minutes=90 * DAY)

    with transaction.atomic():
        store(again)
        deleting = in_another_connection(expire)
        deleting.join(0.3)
        assert deleting.is_alive()
    deleting.join(10)
    assert kept() == ["2"]
    ArchivedJob.objects.update(submitted_at=START)
    with transaction.atomic():
        expire()
        storing = in_another_connection(
            lambda: store(captured_job(3, script=again.script, minutes=90 * DAY))
        )
        storing.join(0.3)
        assert storing.is_alive()
    storing.join(10)

    assert kept() == ["3"]
    call_command("archive", "verify")


def test_job_that_is_being_pinned_stays(transactional_db, admin):
    store(captured_job(1), captured_job(2))
    rule(max_age_days=60)

    with transaction.atomic():
        pin_job(job=ArchivedJob.objects.get(job_id="1"), by=admin, reason="now", at=START)
        deleting = in_another_connection(expire)
        deleting.join(0.3)
        assert deleting.is_alive()
    deleting.join(10)

    assert kept() == ["1"]
