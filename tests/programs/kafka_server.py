"""A real Kafka for the tests of mark `kafka`, started once a session by `bin/kafka-up`.

A test module that asks for the fixture `kafka` says so with

    pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]
"""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

BIN = Path(__file__).parents[2] / "bin"
CANNOT_RUN = 3  # the exit status by which kafka-up says that this host is not fit for it
OPTIONS = (
    *("--ssl", "--sasl", "--set", "auto.create.topics.enable=false"),
    *("--set", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    *("--set", "super.users=User:ANONYMOUS", "--set", "allow.everyone.if.no.acl.found=true"),
)


class KafkaServer:
    """A running Kafka without automatic topics, and how tests look into it and do it harm."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        found = re.findall(
            r"^export KAFKA_(\w+)='?([^'\n]*)", (directory / "env").read_text(), re.MULTILINE
        )
        self.values = dict(found)
        self.bootstrap = self.values["BOOTSTRAP"]
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})

    def create_topic(self, name: str = "", *, partitions: int = 3, **config: object) -> str:
        """Make a topic, of a name of its own unless one is given."""
        name = name or f"jobs-{uuid4().hex[:12]}"
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)
        return name

    def configure_topic(self, name: str, **config: object) -> None:
        """Change settings of a topic."""
        entries = [ConfigEntry(key.replace("_", "."), str(value)) for key, value in config.items()]
        for entry in entries:
            entry.incremental_operation = AlterConfigOpType.SET
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def messages(self, topic: str) -> list[Message]:
        """Return all that a topic holds, partition by partition."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "tests", "enable.auto.commit": False}
        )
        try:
            ends = self._ends(consumer, topic)
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in ends])
            messages: list[Message] = []
            # Offsets have no gaps: nothing is in a transaction.
            while missing := sum(ends.values()) - len(messages):
                batch = consumer.consume(min(missing, 10_000), timeout=120)
                assert batch, f"{topic} gives {len(messages)} of {ends}"
                assert not [message.error() for message in batch if message.error()]
                messages += batch
            return messages
        finally:
            consumer.close()

    def _ends(self, consumer: Consumer, topic: str) -> dict[int, int]:
        """Return the number of messages of each partition;
        a broker that comes back has no partitions at first.
        """
        deadline = time.monotonic() + 120
        while True:
            try:
                partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
                return {
                    number: consumer.get_watermark_offsets(
                        TopicPartition(topic, number), timeout=30
                    )[1]
                    for number in sorted(partitions)
                }
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def kill(self) -> None:
        """kill -9, as a power cut for one process would."""
        os.kill(int((self.directory / "pid").read_text()), signal.SIGKILL)

    def start(self) -> None:
        """Start it, on the data that it had, unless it runs."""
        done = _kafka_up(self.directory)
        assert done.returncode == 0, done.stderr

    @contextmanager
    def away(self) -> Iterator[None]:
        """Killed for a while; then as before."""
        self.kill()
        try:
            yield
        finally:
            self.start()


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """A real Kafka with listeners of all kinds.

    A host that cannot run it skips the test; with CI=true it fails.
    """
    directory = Path(tempfile.mkdtemp(prefix="opsportal-kafka-"))
    watchdog = stop_when_gone(directory)
    try:
        started = _kafka_up(directory, *OPTIONS)
        if started.returncode == CANNOT_RUN:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
                f"kafka: {started.stderr.strip()}"
            )
        assert started.returncode == 0, started.stderr
        yield KafkaServer(directory)
    finally:
        watchdog.communicate(timeout=120)


def stop_when_gone(directory: Path) -> "subprocess.Popen[bytes]":
    """Start a watchdog that stops this Kafka when its standard input ends: when told to,
    or when we are killed.
    """
    script = 'cat; "$1" "$2"; rm -rf "$2"'
    command = ["sh", "-c", script, "watchdog", str(BIN / "kafka-down"), str(directory)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )


def _kafka_up(directory: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [BIN / "kafka-up", directory, *options],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
