"""The configuration of the Kafka producer, from URL and settings."""

import logging
import os
import re
from typing import Any

from django.conf import settings

from apps.archive.sinks.base import BadSink, SinkURL

logger = logging.getLogger(__name__)

COMPRESSIONS = ("zstd", "lz4", "snappy", "gzip", "none")
OPTIONS = ("compression", "message_timeout", "max_message_bytes")
MESSAGE_TIMEOUT_SECONDS = 300
MAX_MESSAGE_BYTES = 8_000_000
_BATCH_BYTES = 900_000  # below the default limit of a broker
_TOPIC = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}")
_PORT = 9092


def hosts(url: SinkURL) -> str:
    """Return the bootstrap servers, sorted and with ports. Raises `BadSink`."""
    if not url.hosts:
        raise BadSink(f"the {url.scheme} sink needs a host: kafka://HOST:9092/TOPIC")
    return ",".join(
        sorted(host if re.search(r":\d+$", host) else f"{host}:{_PORT}" for host in url.hosts)
    )


def topic(url: SinkURL) -> str:
    """Return the topic's name. Raises `BadSink`."""
    name = url.path.removeprefix("/")
    if not _TOPIC.fullmatch(name):
        raise BadSink(
            f"the {url.scheme} sink needs a topic, in letters, digits, . _ and -: "
            "kafka://HOST:9092/TOPIC"
        )
    return name


def configuration(url: SinkURL) -> dict[str, Any]:
    """Return the producer's configuration. Raises `BadSink`."""
    url.only(*OPTIONS)
    compression = url.options.get("compression", COMPRESSIONS[0])
    if compression not in COMPRESSIONS:
        raise BadSink(
            f"the {url.scheme} sink's compression is one of {', '.join(COMPRESSIONS)}, not "
            f"{compression!r}"
        )
    return {
        "bootstrap.servers": hosts(url),
        "client.id": "opsportal",
        # With acks=all: a message sent again after a fault is stored once, and in order.
        "enable.idempotence": True,
        "partitioner": "murmur2_random",  # chooses the same partitions as Java clients
        "compression.type": compression,
        "batch.size": _BATCH_BYTES,
        # Wait for few large requests. Filling one takes about this long, and without further
        # messages there is no delay.
        "linger.ms": 20,
        "message.max.bytes": _number(
            url, "max_message_bytes", MAX_MESSAGE_BYTES, 1_000, 1_000_000_000
        ),
        "message.timeout.ms": _number(url, "message_timeout", MESSAGE_TIMEOUT_SECONDS, 1, 86_400)
        * 1000,
        "reconnect.backoff.max.ms": 1_000,
        "topic.metadata.propagation.max.ms": 5_000,
        "logger": _ClientLog(),
        **_security(url),
    }


class _ClientLog:
    """Receives the log of librdkafka, which is repetitive; the sink raises what matters."""

    def log(self, level: int, text: str, *values: object) -> None:
        logger.debug(text, *values)


def _security(url: SinkURL) -> dict[str, Any]:
    protocol = settings.ARCHIVE_KAFKA_SECURITY
    options: dict[str, Any] = {"security.protocol": protocol}
    if protocol.endswith("ssl"):
        options |= {
            "ssl.ca.location": settings.ARCHIVE_KAFKA_CA,
            "ssl.certificate.location": settings.ARCHIVE_KAFKA_CERT,
            "ssl.key.location": settings.ARCHIVE_KAFKA_KEY,
            "ssl.key.password": settings.ARCHIVE_KAFKA_KEY_PASSWORD,
        }
        for name in ("CA", "CERT", "KEY"):
            file = getattr(settings, f"ARCHIVE_KAFKA_{name}")
            if file and not os.access(file, os.R_OK):
                raise BadSink(
                    f"the {url.scheme} sink cannot read {file}, given by ARCHIVE_KAFKA_{name}"
                )
        if bool(settings.ARCHIVE_KAFKA_CERT) != bool(settings.ARCHIVE_KAFKA_KEY):
            raise BadSink(
                f"the {url.scheme} sink needs both ARCHIVE_KAFKA_CERT and ARCHIVE_KAFKA_KEY, "
                "or neither"
            )
    if protocol.startswith("sasl"):
        if not (settings.ARCHIVE_KAFKA_USER and settings.ARCHIVE_KAFKA_PASSWORD):
            raise BadSink(
                f"the {url.scheme} sink needs ARCHIVE_KAFKA_USER and ARCHIVE_KAFKA_PASSWORD"
            )
        options |= {
            "sasl.mechanism": settings.ARCHIVE_KAFKA_SASL_MECHANISM,
            "sasl.username": settings.ARCHIVE_KAFKA_USER,
            "sasl.password": settings.ARCHIVE_KAFKA_PASSWORD,
        }
    return {name: str(value) for name, value in options.items() if value}


def _number(url: SinkURL, option: str, default: int, least: int, most: int) -> int:
    text = url.options.get(option, str(default))
    if not re.fullmatch(r"[0-9]{1,10}", text) or not least <= int(text) <= most:
        raise BadSink(
            f"the {url.scheme} sink's {option} is a number from {least} to {most}, not {text!r}"
        )
    return int(text)
