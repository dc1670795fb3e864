"""Lines of logs as JSON."""

import logging

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from apps.core.domain.secrets.log_redaction import TIME, redact

_FIELDS = "%(asctime)s %(levelname)s %(name)s %(message)s %(request_id)s"
#: Names of JSON fields where they differ from Python's.
_NAMES = {
    "asctime": "time",
    "levelname": "level",
    "name": "logger",
    "exc_info": "traceback",
}


class RedactingJsonFormatter(JsonFormatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, `request_id` (or null), and
    `traceback` after an error.
    """

    def __init__(self) -> None:
        # Django adds its request to records, which says no more than the message.
        reserved = [*RESERVED_ATTRS, "request", "in_request"]
        super().__init__(_FIELDS, TIME, rename_fields=_NAMES, reserved_attrs=reserved)

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))
