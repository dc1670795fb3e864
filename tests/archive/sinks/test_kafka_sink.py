"""The Kafka sink without Kafka: its URL, its messages,
and what it makes of answers that no test gets from a server.
"""

import json
from datetime import timedelta

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from apps.archive.sinks.base import BadSink, SinkUnavailable
from apps.archive.sinks.kafka import message
from apps.archive.sinks.kafka import sink as sink_module
from apps.archive.sinks.registry import open_sink
from tests.archive.sinks.kafka_reading import job_of
from tests.factories.archive import START, captured_job

URL = "kafka://localhost:9092/jobs"
SILENCE = object()


class ScriptedProducer:
    """Answers each message by `answer`; what that leaves open waits for the next flush."""

    made: list["ScriptedProducer"] = []
    answer = staticmethod(lambda producer, job_id: None)

    def __init__(self, configuration):
        self.configuration = configuration
        self.produced = []
        self._waiting = []
        type(self).made.append(self)

    def produce(self, topic, value, key, *, headers, on_delivery):
        self.produced.append(key.decode().removeprefix("alps/"))
        self._waiting.append((self.produced[-1], on_delivery))

    def flush(self, timeout):
        waiting, self._waiting = self._waiting, []
        for job_id, on_delivery in waiting:
            answer = self.answer(self, job_id)
            if answer is SILENCE:
                self._waiting.append((job_id, on_delivery))
            else:
                on_delivery(answer, None)

    poll = flush

    def purge(self):
        pass


@pytest.fixture
def producers(monkeypatch):
    """The producers that the sink makes; set `answer` on the class."""
    monkeypatch.setattr("confluent_kafka.Producer", ScriptedProducer)
    monkeypatch.setattr(sink_module, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(sink_module, "FAILING_SECONDS", 0.0)
    monkeypatch.setattr(ScriptedProducer, "made", [])
    return ScriptedProducer


def answer_by(monkeypatch, answer):
    monkeypatch.setattr(ScriptedProducer, "answer", staticmethod(answer))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("kafka:///jobs", "needs a host"),
        ("kafka://localhost:9092", "needs a topic"),
        ("kafka://localhost:9092/a/b", "needs a topic"),
        ("kafka://localhost:9092/..", "needs a topic"),
        ("kafka://localhost:9092/a%20b", "needs a topic"),
        ("kafka://localhost:port/jobs", "bad host or port"),
        (f"{URL}?acks=0", "no option 'acks'"),
        (f"{URL}?compression=rar", "compression is one of"),
        (f"{URL}?max_message_bytes=many", "max_message_bytes is a number"),
        (f"{URL}?message_timeout=0", "message_timeout is a number"),
    ],
)
def test_url_that_cannot_be_used_is_refused(url, reason):
    with pytest.raises(BadSink, match=reason):
        open_sink(url)


def test_same_servers_have_the_same_name():
    names = [
        open_sink(url).name
        for url in ("kafka://b,a:9092/jobs", "kafka://a,b:9092/jobs?compression=gzip")
    ]

    assert names == ["kafka://a:9092,b:9092/jobs"] * 2


def test_passwords_reach_the_producer_alone(settings, producers):
    settings.ARCHIVE_KAFKA_SECURITY = "sasl_ssl"
    settings.ARCHIVE_KAFKA_USER = "opsportal"
    settings.ARCHIVE_KAFKA_PASSWORD = "geheim"
    sink = open_sink(f"{URL}?compression=lz4&message_timeout=20")

    sink.write([captured_job()])

    [producer] = producers.made
    assert producer.configuration["sasl.password"] == "geheim"
    assert producer.configuration["compression.type"] == "lz4"
    assert producer.configuration["message.timeout.ms"] == 20_000
    assert "geheim" not in sink.name


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"SECURITY": "sasl_ssl"}, "ARCHIVE_KAFKA_USER and ARCHIVE_KAFKA_PASSWORD"),
        ({"SECURITY": "ssl", "CERT": __file__}, "both ARCHIVE_KAFKA_CERT and ARCHIVE_KAFKA_KEY"),
        (
            {"SECURITY": "ssl", "CA": "/nonexistent.pem"},
            r"cannot read /nonexistent\.pem, given by ARCHIVE_KAFKA_CA",
        ),
    ],
)
def test_security_that_cannot_work_is_refused(settings, changes, reason):
    for name, value in changes.items():
        setattr(settings, f"ARCHIVE_KAFKA_{name}", value)

    with pytest.raises(BadSink, match=reason):
        open_sink(URL)


@settings_of_hypothesis(max_examples=50)
@given(st.binary(), st.binary(), st.text(), st.text(st.characters(codec=None), max_size=20))
def test_every_byte_comes_back(script, environment, name, arguments):
    job = captured_job(script=script, environment=environment, name=name, arguments=arguments)

    assert job_of(message.value(job)) == job


def test_message_is_the_same_each_time_and_readable():
    job = captured_job(
        7, user="ana", request_key="NOVA-1", script=b"echo \xe9", masked_names=("TOKEN",)
    )

    assert message.value(job) == message.value(job)
    assert message.key(job) == b"alps/7"
    assert dict(message.headers(job)) == {
        "version": b"1",
        "cluster": b"alps",
        "scheduler": b"slurm",
        "job_id": b"7",
        "submitted_at": b"2026-11-20T09:12:00.000000+00:00",
        "user": b"ana",
        "request": b"NOVA-1",
    }
    read = json.loads(message.value(job))
    assert read["script"] == {"encoding": "base64", "content": "ZWNobyDp"}
    assert read["environment"]["encoding"] == "utf-8"
    assert read["masked_names"] == ["TOKEN"]


def test_job_of_a_reused_id_is_another_one(producers):
    first, second = captured_job(1), captured_job(1, submitted_at=START + timedelta(days=90))

    open_sink(URL).write([first, second, first])

    assert producers.made[0].produced == ["1", "1"]


def test_neighbours_of_an_invalid_record_are_sent_again(producers, monkeypatch):
    def answer(producer, job_id):
        if job_id == "2":
            return KafkaError(KafkaError.INVALID_RECORD, "no such field")
        alone = producer.produced.count(job_id) > 1
        return None if alone else KafkaError(KafkaError._INVALID_DIFFERENT_RECORD, "another one")

    answer_by(monkeypatch, answer)

    refused = open_sink(URL).write([captured_job(n) for n in (1, 2, 3)])

    assert refused == {1: "no such field"}
    assert producers.made[0].produced == ["1", "2", "3", "1", "2", "3"]


def test_message_without_an_answer_is_waited_for_and_not_sent_again(producers, monkeypatch):
    jobs = [captured_job(n) for n in (1, 2, 3)]
    answer_by(monkeypatch, lambda producer, job_id: SILENCE if job_id == "2" else None)
    sink = open_sink(URL)
    with pytest.raises(SinkUnavailable, match="no acknowledgement"):
        sink.write(jobs)
    answer_by(monkeypatch, lambda producer, job_id: None)

    assert sink.write([*jobs, captured_job(4)]) == {}

    assert [producer.produced for producer in producers.made] == [["1", "2", "3", "4"]]


def test_producer_that_is_broken_is_replaced(producers, monkeypatch):
    def answer(producer, job_id):
        if job_id != "2":
            return None
        producer.configuration["error_cb"](
            KafkaError(KafkaError._FATAL, "out of sequence", fatal=True)
        )
        return SILENCE

    answer_by(monkeypatch, answer)
    sink = open_sink(URL)
    with pytest.raises(SinkUnavailable, match="out of sequence"):
        sink.write([captured_job(n) for n in (1, 2)])
    answer_by(monkeypatch, lambda producer, job_id: None)

    assert sink.write([captured_job(n) for n in (1, 2)]) == {}

    assert [producer.produced for producer in producers.made] == [["1", "2"], ["2"]]


@pytest.mark.parametrize("code", [KafkaError._MSG_TIMED_OUT, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_what_is_no_fault_of_a_job_refuses_none(producers, monkeypatch, code):
    answer_by(
        monkeypatch,
        lambda producer, job_id: KafkaError(code, "no fault") if job_id == "2" else None,
    )
    sink = open_sink(URL)

    for _ in range(2):
        with pytest.raises(SinkUnavailable, match="topic jobs: no fault"):
            sink.write([captured_job(n) for n in (1, 2, 3)])

    assert [producer.produced for producer in producers.made] == [["1", "2", "3"], ["2"]]
