"""Lines of logs: with the ID of their request, and without secret URLs, which are the ones of Atom
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

    `in_request` of a format is the IDs of the record's request and trace in brackets, if it has
    them.
    """

    def format(self, record: logging.LogRecord) -> str:
        ids = [getattr(record, "request_id", None) or ""]
        for name in ("trace_id", "span_id"):
            if hasattr(record, name):
                ids.append(f"{name}={getattr(record, name)}")
        text = " ".join(ids).strip()
        record.in_request = f" [{text}]" if text else ""
        return redact(super().format(record))
