"""User, account and name in sinks that show them: at first the environment's word,
then that of accounting.
"""

import pytest

from apps.archive import delivery
from apps.archive.models import SinkState
from apps.archive.sinks.elasticsearch.documents import document
from apps.archive.sinks.elasticsearch.sink import _version
from apps.archive.sinks.facts import with_claimed_facts
from apps.archive.sinks.kafka import message
from tests.archive.delivering import MemorySink
from tests.archive.sinks.kafka_reading import job_of
from tests.archive.spool_writer import environment_bytes
from tests.archive.store.test_links import collect, store
from tests.archive.test_workers import nothing_is_left
from tests.factories.archive import captured_job

ENVIRONMENT = environment_bytes(
    [
        ("HOME", "/home/ana"),
        ("XUSER", "no"),
        ("USER", "ana"),
        ("SBATCH_ACCOUNT", "nova"),
        ("SLURM_JOB_NAME", "sim\xe9"),
    ]
)
LIVE = captured_job(1, environment=ENVIRONMENT)


def test_environment_tells_until_the_scheduler_does():
    described, claimed = with_claimed_facts(LIVE)
    assert (described.user, described.account, described.name) == ("ana", "nova", "sim\xe9")
    assert claimed == ["user", "account", "name"]
    assert document(LIVE)["claimed"] == claimed
    assert dict(message.headers(described, claimed))["claimed"] == b"user account name"
    assert job_of(message.value(described, claimed)) == LIVE
    known = captured_job(1, environment=ENVIRONMENT, user="ben")
    assert with_claimed_facts(known) == (known, [])
    assert "claimed" not in document(known)
    assert _version(known) > _version(LIVE)
    assert with_claimed_facts(captured_job(1, environment=environment_bytes([("A", "b")])))[1] == []


@pytest.mark.django_db
def test_job_comes_again_once_when_accounting_knows_it(settings, monkeypatch):
    plain, described = MemorySink(), MemorySink()
    plain.name, described.name, described.wants_described = "memory:a", "memory:b", True
    monkeypatch.setattr(delivery, "_opened", {"memory:a": plain, "memory:b": described})
    settings.ARCHIVE_SINKS = ["memory:a", "memory:b"]
    for url in settings.ARCHIVE_SINKS:
        delivery._state(url)
    assert list(SinkState.objects.order_by("name").values_list("wants_described", flat=True)) == [
        False,
        True,
    ]
    store(LIVE)
    collect("1", user="ana", account="nova", name="sim")
    collect("1_2", user="ana", account="nova", name="sim")  # another task of it: nothing new
    while not nothing_is_left():
        for sink in SinkState.objects.all():
            delivery.deliver(sink=sink, at=LIVE.captured_at)
    assert plain.jobs == []
    assert [
        (job.job_id, job.user, job.account, job.name, job.script) for job in described.jobs
    ] == [("1", "ana", "nova", "sim", LIVE.script)]
