"""Lines of logs: with the ID of their request, and without secret URLs, which are those of Atom
feeds and the links to set a password.
"""

import logging
import re

TEXT = "%(asctime)s%(in_request)s %(levelname)s %(name)s: %(message)s"
TIME = "%Y-%m-%dT%H:%M:%S%z"
_SECRETS = re.compile(r"(\b(?<!v1/)feeds/|password/new/[^/\s]+/)[^/\s\"'?]+")


def redact(text: str) -> str:
    """Return a log line without the secret parts of URLs."""
    return _SECRETS.sub(r"\1[secret]", text)


class RedactingFormatter(logging.Formatter):
    """Redacts whole lines, including paths in messages and tracebacks.

    `in_request` of a format is the ID of the record's request in brackets, if it has one.
    """

    def format(self, record: logging.LogRecord) -> str:
        request_id = getattr(record, "request_id", None)
        record.in_request = f" [{request_id}]" if request_id else ""
        return redact(super().format(record))
