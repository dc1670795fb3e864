"""The formats of logs."""

import logging

from apps.core.domain.secrets.log_redaction import TEXT, TIME, RedactingFormatter


def formatter(log_format: str) -> logging.Formatter:
    """Return the formatter of `LOG_FORMAT`: `text` or `json`."""
    if log_format == "json":
        # Few need it, and its library takes 50 ms to load.
        from apps.core.domain.secrets.json_log import RedactingJsonFormatter

        return RedactingJsonFormatter()
    return RedactingFormatter(TEXT, TIME)
