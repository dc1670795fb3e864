"""Settings of gunicorn, which it reads from the directory where it is started.

See docs/production.md.
"""

import logging
import os
import socket
import struct
from typing import Any

from gunicorn.glogging import Logger

from apps.core.domain.secrets.log_formats import formatter
from apps.core.domain.secrets.log_redaction import RedactingFormatter

# No header of a client becomes part of the environment of WSGI, whoever passes it on: SCRIPT_NAME
# and PATH_INFO would change every URL. Django itself reads X-Forwarded-Proto and X-Forwarded-For,
# with TRUST_PROXY.
forwarded_allow_ips = ""
forwarder_headers = ""
secure_scheme_headers: dict[str, str] = {}

#: Longest pause of a client that sends a request or reads a response. One that keeps sending single
#: bytes takes a thread for longer: only a proxy that buffers requests helps against that.
CLIENT_PAUSE_SECONDS = 20


class RedactingLogger(Logger):
    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in (*self.error_log.handlers, *self.access_log.handlers):
            handler.setFormatter(_formatter(handler.formatter))


def _formatter(replaced: logging.Formatter | None) -> logging.Formatter:
    log_format = os.environ.get("LOG_FORMAT", "text")
    if log_format == "text" and replaced:
        return RedactingFormatter(replaced._fmt, replaced.datefmt)
    return formatter(log_format)


logger_class = RedactingLogger


def when_ready(server: Any) -> None:
    """Limit the pauses of clients: gthread sets no timeout,
    but accepted TCP sockets inherit that of the listener.
    """
    seconds = struct.pack("ll", CLIENT_PAUSE_SECONDS, 0)
    for listener in server.LISTENERS:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            listener.sock.setsockopt(socket.SOL_SOCKET, option, seconds)


def post_worker_init(_: Any) -> None:
    """Start the threads of a process: one brings payloads of the journal to the database, also those
    of a process that was killed, and one sends traces.
    """
    # Imported here because the application is loaded only now.
    from apps.statusboard.web.intake_pump import start_pump
    from opsportal import tracing

    start_pump()
    tracing.start(tracing.WEB)
