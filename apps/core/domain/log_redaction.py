"""Keeps secret URLs out of logs: those of Atom feeds and of links for a new password."""

import logging
import re

_SECRETS = re.compile(r"(\b(?<!v1/)feeds/|password/new/[^/\s]+/)[^/\s\"'?]+")


def redact(text: str) -> str:
    """Return a log line without the secret parts of URLs."""
    return _SECRETS.sub(r"\1[secret]", text)


class RedactingFormatter(logging.Formatter):
    """Redacts whole lines, with paths in messages and in tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))
