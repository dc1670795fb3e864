"""Send jobs to a Kafka topic, and track which of them Kafka has acknowledged."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from apps.archive.sinks.base import SinkUnavailable, SinkURL
from apps.archive.sinks.facts import with_claimed_facts
from apps.archive.sinks.kafka import connection, message
from capture.wire.entry import CapturedJob

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

SILENT_SECONDS = 10.0  # maximum time without an acknowledgement
FAILING_SECONDS = 3.0  # the same while the client reports an error
_ROUND_SECONDS = 0.1
_Key = tuple[str, str, datetime, str]


class KafkaSink:
    """Writes a batch and waits until all replicas acknowledge or refuse each of its messages.

    Messages without an answer stay with the producer, which keeps trying. The next `write` of the
    same jobs waits for them instead of sending duplicates. The client library is loaded only when
    jobs are sent, since most portals have no Kafka.
    """

    wants_described = True

    def __init__(self, *, name: str, topic: str, configuration: Mapping[str, Any]) -> None:
        self.name = name
        self._topic = topic
        self._configuration = configuration
        self._max_bytes: int = configuration["message.max.bytes"]
        # Created by the first `write`, since its threads do not survive a fork.
        self._producer: Producer | None = None
        self._unanswered: set[_Key] = set()
        self._answers: dict[_Key, KafkaError | None] = {}
        self._cause = ""
        self._broken = False

    @classmethod
    def from_url(cls, url: SinkURL) -> Self:
        """Return the sink for `kafka://HOST:9092[,HOST2:9092]/TOPIC`, with options.

        TLS and passwords come from the settings.
        """
        topic = connection.topic(url)
        name = f"{url.scheme}://{connection.hosts(url)}/{topic}"
        return cls(name=name, topic=topic, configuration=connection.configuration(url))

    def write(self, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
        """Return once Kafka has every job, except those it refuses. Raises `SinkUnavailable`."""
        refused = {index: reason for index, job in enumerate(jobs) if (reason := self._send(job))}
        sent = {index: job for index, job in enumerate(jobs) if index not in refused}
        keys = set(map(_key, sent.values()))
        self._wait(keys)
        if any(map(self._answers.__getitem__, keys)):
            # Kafka refuses whole batches. So each refused job is tried alone, after all other jobs
            # are answered, which might otherwise share its batch and be refused with it.
            self._wait(set(self._unanswered))
            refused |= {
                index: reason for index, job in sent.items() if (reason := self._refusal(job))
            }
        for key in keys:
            del self._answers[key]
        return refused

    def close(self) -> None:
        """Drop messages that are not acknowledged; the intake still has their jobs."""
        self._discard()

    def _refusal(self, job: CapturedJob) -> str:
        """Return why Kafka refuses a job when it is alone; "" if it accepts it."""
        if self._answers[_key(job)] is None:
            return ""
        del self._answers[_key(job)]
        self._send(job)
        self._wait({_key(job)})
        error = self._answers[_key(job)]
        return "" if error is None else str(error.str())

    def _send(self, job: CapturedJob) -> str:
        """Hand a job to the producer, unless the producer already has it.

        Return why the job is too large, or "".
        """
        from confluent_kafka import KafkaError, KafkaException

        key = _key(job)
        if key in self._unanswered or key in self._answers:
            return ""
        if job.size_bytes > self._max_bytes:  # saves the encoding
            return self._too_large()
        job, claimed = with_claimed_facts(job)
        try:
            self._open().produce(
                self._topic,
                message.value(job, claimed),
                message.key(job),
                headers=message.headers(job, claimed),
                on_delivery=partial(self._answered, key),
            )
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                return self._too_large()
            self._discard()
            raise SinkUnavailable(f"topic {self._topic}: {cause.str()}") from error
        except BufferError as error:
            raise SinkUnavailable("the producer's queue is full") from error
        self._unanswered.add(key)
        return ""

    def _too_large(self) -> str:
        return f"its message is larger than max_message_bytes={self._max_bytes}"

    def _wait(self, keys: set[_Key]) -> None:
        """Wait for the answers to all of `keys`.

        Raises `SinkUnavailable` if the answers do not come or report a failure.
        """
        self._cause = ""
        moved_at, waiting = time.monotonic(), len(self._unanswered)
        while not self._unanswered.isdisjoint(keys):
            self._open().flush(_ROUND_SECONDS)
            if len(self._unanswered) != waiting:
                moved_at, waiting = time.monotonic(), len(self._unanswered)
            elif time.monotonic() - moved_at > (FAILING_SECONDS if self._cause else SILENT_SECONDS):
                raise SinkUnavailable(
                    self._cause or f"no acknowledgement within {SILENT_SECONDS:.0f} s"
                )
            if self._broken:
                break
        self._check(keys)

    def _check(self, keys: set[_Key]) -> None:
        failed = [
            key for key in keys if (error := self._answers.get(key)) and not _is_refusal(error)
        ]
        if not failed and not self._broken:
            return
        reason = self._cause
        for key in failed:
            error = self._answers.pop(key)
            reason = reason or f"topic {self._topic}: {error.str() if error else ''}"
        self._discard()
        raise SinkUnavailable(reason)

    def _open(self) -> "Producer":
        from confluent_kafka import KafkaException, Producer

        if self._producer is None:
            try:
                self._producer = Producer(dict(self._configuration) | {"error_cb": self._failed})
            except KafkaException as error:  # such as a certificate that cannot be read
                raise SinkUnavailable(_short(error.args[0].str())) from error
        return self._producer

    def _discard(self) -> None:
        """Close the producer and drop all messages that it has not finished."""
        self._unanswered.clear()  # later answers to these are ignored
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(1)
        self._producer, self._cause, self._broken = None, "", False

    def _answered(self, key: _Key, error: "KafkaError | None", _: "Message") -> None:
        if key in self._unanswered:
            self._unanswered.remove(key)
            self._answers[key] = error
            if error is None:
                self._cause = ""

    def _failed(self, error: "KafkaError") -> None:
        """Record an error that the client reports. A fatal error ends the producer."""
        from confluent_kafka import KafkaError

        self._broken = self._broken or error.fatal()
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._cause:
            self._cause = _short(error.str())


def _is_refusal(error: "KafkaError") -> bool:
    """Return whether the error is due to one message, or to another one in its batch."""
    from confluent_kafka import KafkaError

    return error.code() in {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }


def _key(job: CapturedJob) -> _Key:
    return (job.cluster, job.job_id, job.submitted_at, job.user)


def _short(reason: str) -> str:
    """Remove the client's note on how long it was in which state."""
    short, _, after = reason.partition(" (after ")
    return short if after.endswith(")") else reason
