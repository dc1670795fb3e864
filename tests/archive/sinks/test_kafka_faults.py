"""A real Kafka that is killed, away, locked or too small: from the intake,
every job arrives unharmed.
"""

import random
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from django.utils import timezone

from apps.archive.domain.sinks import retry_refused
from apps.archive.models import SinkState
from apps.archive.sinks.base import SinkUnavailable
from apps.archive.sinks.registry import open_sink
from tests.archive.conftest import AWAY_SECONDS, wait_for
from tests.archive.delivering import delivering
from tests.archive.sinks.kafka_reading import jobs_of
from tests.archive.spool_writer import script_of
from tests.factories.archive import captured_job

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.xdist_group("kafka"),
    pytest.mark.django_db(transaction=True),
]

PATIENCE_SECONDS = 90


@pytest.fixture
def topic(kafka):
    return kafka.create_topic()


@pytest.fixture
def url(kafka, topic):
    return f"kafka://{kafka.bootstrap}/{topic}"


@pytest.fixture
def secured(kafka, settings):
    """Sets the sink's security as it should be for a listener,
    and returns the URL of a topic on it.
    """

    def secure(listener, topic, **changes):
        settings.ARCHIVE_KAFKA_SECURITY = listener
        settings.ARCHIVE_KAFKA_CA = Path(kafka.values["SSL_CA"])
        settings.ARCHIVE_KAFKA_CERT = Path(kafka.values["SSL_CERT"])
        settings.ARCHIVE_KAFKA_KEY = Path(kafka.values["SSL_KEY"])
        settings.ARCHIVE_KAFKA_SASL_MECHANISM = kafka.values["SASL_MECHANISM"]
        settings.ARCHIVE_KAFKA_USER = kafka.values["SASL_USER"]
        settings.ARCHIVE_KAFKA_PASSWORD = kafka.values["SASL_PASSWORD"]
        for name, value in changes.items():
            setattr(settings, f"ARCHIVE_KAFKA_{name}", value)
        name = listener.removesuffix("_plaintext").upper()
        return f"kafka://{kafka.values[f'{name}_BOOTSTRAP']}/{topic}"

    return secure


def make_jobs(count):
    return [
        captured_job(n, script=script_of(n) + b"# \xe9\n" * (n % 3), user="ana")
        for n in range(1, count + 1)
    ]


def wait_delivered(sink):
    wait_for(lambda: sink.behind == 0, seconds=PATIENCE_SECONDS)


def by_id(jobs):
    return sorted(jobs, key=lambda job: int(job.job_id))


@pytest.mark.slow
def test_broker_that_is_killed_in_the_middle_and_away_for_a_while_has_every_job_once(
    kafka, topic, url, settings
):
    jobs = make_jobs(8000)

    with delivering(settings, url, jobs[:6000]) as sink:
        wait_for(lambda: sink.written >= 500)
        with kafka.away():
            sink.add(jobs[6000:])
            assert sink.behind >= 2000
            time.sleep(AWAY_SECONDS)
            wait_for(lambda: sink.last_error)
        wait_delivered(sink)
        wait_for(lambda: sink.last_error == "")  # told after the last is noted
        assert sink.refused() == []

    messages = kafka.messages(topic)
    assert by_id(jobs_of(messages)) == jobs
    assert len(messages) == len(jobs), "a producer that lives on sends nothing twice"


def test_job_too_large_for_the_broker_is_kept_aside_until_it_fits(kafka, topic, url, settings):
    jobs = make_jobs(20)
    jobs[7] = captured_job(8, script=random.Random(8).randbytes(1_500_000))

    with delivering(settings, url, jobs) as sink:
        wait_delivered(sink)
        [(job, reason)] = sink.refused()

    assert job == jobs[7]
    assert reason == "Broker: Message size too large"
    assert by_id(jobs_of(kafka.messages(topic))) == jobs[:7] + jobs[8:]

    kafka.configure_topic(topic, max_message_bytes=3_000_000)
    with delivering(settings, url) as sink:
        retry_refused(sink=SinkState.objects.get(), by="test", at=timezone.now())
        wait_delivered(sink)
        assert sink.refused() == []

    assert by_id(jobs_of(kafka.messages(topic))) == jobs


def test_broker_that_takes_only_small_batches_refuses_only_what_is_large(kafka, settings):
    topic = kafka.create_topic(max_message_bytes=20_000)
    jobs = make_jobs(300)
    jobs[100] = captured_job(101, script=random.Random(1).randbytes(30_000))

    with delivering(settings, f"kafka://{kafka.bootstrap}/{topic}?compression=none", jobs) as sink:
        wait_delivered(sink)
        assert [job for job, _ in sink.refused()] == [jobs[100]]

    assert by_id(jobs_of(kafka.messages(topic))) == jobs[:100] + jobs[101:]


def test_job_larger_than_the_option_is_not_sent(kafka, topic, url):
    jobs = [
        captured_job(1),
        captured_job(2, script=b"x" * 5000),
        captured_job(3, script=b"\0" * 900),
    ]

    with closing(open_sink(f"{url}?max_message_bytes=5000")) as sink:
        refused = sink.write(jobs)

    assert refused == dict.fromkeys([1, 2], "its message is larger than max_message_bytes=5000")
    assert jobs_of(kafka.messages(topic)) == jobs[:1]


@pytest.mark.parametrize(
    ("listener", "changes"),
    [
        ("ssl", {}),
        ("sasl_plaintext", {}),
        ("sasl_plaintext", {"SASL_MECHANISM": "SCRAM-SHA-512"}),
        ("sasl_plaintext", {"SASL_MECHANISM": "PLAIN"}),
        ("sasl_ssl", {"CERT": None, "KEY": None}),
    ],
    ids=["mutual TLS", "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "SCRAM over TLS"],
)
def test_secured_listeners_take_jobs(kafka, topic, secured, listener, changes):
    with closing(open_sink(secured(listener, topic, **changes))) as sink:
        assert sink.write([captured_job()]) == {}

    assert jobs_of(kafka.messages(topic)) == [captured_job()]


@pytest.mark.parametrize(
    ("listener", "changes", "reason"),
    [
        ("sasl_plaintext", {"PASSWORD": "wrong"}, "invalid credentials"),
        ("sasl_ssl", {"USER": "nobody"}, "invalid credentials"),
        ("sasl_ssl", {"CA": None}, "certificate verify failed"),
        ("ssl", {"CERT": None, "KEY": None}, "certificate"),
    ],
    ids=["password", "user", "CA", "no certificate"],
)
def test_jobs_wait_for_the_right_credentials(
    kafka, topic, secured, listener, changes, reason, settings
):
    jobs = make_jobs(5)

    with delivering(settings, secured(listener, topic, **changes), jobs) as sink:
        wait_for(lambda: sink.last_error, seconds=PATIENCE_SECONDS)
        assert reason in sink.last_error
        assert "wrong" not in sink.last_error
        assert len(sink.last_error) < 300
    assert kafka.messages(topic) == []
    with delivering(settings, secured(listener, topic)) as sink:
        wait_delivered(sink)

    assert by_id(jobs_of(kafka.messages(topic))) == jobs


def test_jobs_wait_for_the_topic(kafka, settings):
    topic = "made-later"
    jobs = make_jobs(5)

    with delivering(settings, f"kafka://{kafka.bootstrap}/{topic}", jobs) as sink:
        wait_for(lambda: sink.last_error, seconds=PATIENCE_SECONDS)
        assert sink.last_error.startswith(f"topic {topic}: ")
        assert "nknown topic" in sink.last_error
        kafka.create_topic(topic)
        wait_delivered(sink)

    assert by_id(jobs_of(kafka.messages(topic))) == jobs


def test_jobs_wait_for_the_permission(kafka, topic, secured):
    denied = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:tester",
        "*",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )
    kafka.admin.create_acls([denied])[denied].result(30)

    with (
        closing(open_sink(secured("sasl_plaintext", topic))) as sink,
        pytest.raises(SinkUnavailable, match="authorization failed"),
    ):
        sink.write(make_jobs(3))


def test_client_is_quiet_while_kafka_is_away(caplog, capfd):
    with (
        closing(open_sink("kafka://127.0.0.1:1/jobs")) as sink,
        pytest.raises(SinkUnavailable, match="refused"),
    ):
        sink.write([captured_job()])

    assert caplog.text == ""
    assert capfd.readouterr() == ("", "")
