"""The Kafka sink keeps the contract of every sink,
with a real Kafka and a consumer that reads back.
"""

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager

import pytest

from capture.wire.entry import CapturedJob
from tests.archive.sinks.kafka_reading import jobs_of
from tests.contracts.sink import BYTES, FACTS, Harness, SinkContract, a_job
from tests.programs.kafka_server import KafkaServer

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]


class KafkaHarness:
    keeps = (*BYTES, *FACTS)
    # The broker does not take as much, even compressed.
    bad_job = a_job(9, script=random.Random(9).randbytes(1_500_000))

    def __init__(self, server: KafkaServer) -> None:
        self._server = server
        self._topic = server.create_topic()
        self.url = f"kafka://{server.bootstrap}/{self._topic}"
        self.other_url = f"{self.url}-2"

    def kept(self) -> Sequence[CapturedJob]:
        return jobs_of(self._server.messages(self._topic))

    def away(self) -> AbstractContextManager[None]:
        return self._server.away()


class TestKafka(SinkContract):
    @pytest.fixture
    def harness(self, kafka: KafkaServer) -> Harness:
        return KafkaHarness(kafka)
