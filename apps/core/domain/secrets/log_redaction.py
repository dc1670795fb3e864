"""Keep secret URLs out of logs: Atom feeds and links to set a password."""

import logging
import re

_SECRETS = re.compile(r"(\b(?<!v1/)feeds/|password/new/[^/\s]+/)[^/\s\"'?]+")


def redact(text: str) -> str:
    """Return a log line without the secret parts of URLs."""
    return _SECRETS.sub(r"\1[secret]", text)


class RedactingFormatter(logging.Formatter):
    """Redacts whole lines, including paths in messages and tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))
