"""The thread of a web server process that moves payloads from the journal to the database."""

import logging
import threading

from django.db import DatabaseError, InterfaceError, close_old_connections

from apps.statusboard.domain.monitoring.intake import pump

log = logging.getLogger(__name__)

#: How often the pump looks for new payloads.
PUMP_SECONDS = 0.5
#: How long the pump pauses after a failure.
PAUSE_SECONDS = 2.0


def start_pump() -> threading.Thread:
    """Run the pump in a thread for the lifetime of this process.

    Every web server process that accepts payloads calls this.
    """
    thread = threading.Thread(target=_pump_for_ever, name="intake-pump", daemon=True)
    thread.start()
    return thread


def _pump_for_ever() -> None:
    pause = PUMP_SECONDS
    never = threading.Event()
    is_down = False
    while not never.wait(pause):
        try:
            close_old_connections()
            pump()
        except (DatabaseError, InterfaceError, OSError) as error:
            if not is_down:
                log.warning("payloads stay in the journal for now: %s", error)
            is_down = True
            pause = PAUSE_SECONDS
        except Exception:
            # A bug here must not stop the pump for good.
            log.exception("the journal of payloads cannot be read")
            pause = PAUSE_SECONDS
        else:
            if is_down:
                log.warning("payloads of the journal are stored again")
            is_down = False
            pause = PUMP_SECONDS
