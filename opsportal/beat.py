"""Celery's beat, of which any number may run: one sends the periodic tasks, the others wait.

The one that holds a lock in PostgreSQL sends. The lock belongs to its connection, so PostgreSQL
gives it to the next one when the process, its host or the connection is gone.
"""

import logging
from typing import Any

from celery.beat import PersistentScheduler
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections

from opsportal.heartbeats import stop_hearts

logger = logging.getLogger(__name__)

#: The number of the advisory lock; see also `apps.core.domain.locks`.
LOCK = 4_716_090
#: How long a beat waits that does not send, until it tries to take the lock again.
WAIT_SECONDS = 5.0


class BeatTurn:
    """The right to send periodic tasks, which one process has at a time."""

    def __init__(self) -> None:
        # A connection of its own: others are closed, or copied by a fork.
        self._connection = connections.create_connection(DEFAULT_DB_ALIAS)
        self.is_ours = False

    def take(self) -> bool:
        """Take the turn, or make sure that we still have it; return whether we do.

        Without a database that accepts changes, nobody has it: a standby, or a former primary that
        is read-only, has locks of its own.
        """
        is_open = self._connection.connection is not None
        if is_open and not self._connection.is_usable():
            self.give_up()
        if self.is_ours:
            return True
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(
                    "SELECT CASE WHEN current_setting('transaction_read_only') = 'off'"
                    " THEN pg_try_advisory_lock(%s, 0) ELSE false END",
                    [LOCK],
                )
                self.is_ours = bool(cursor.fetchone()[0])
        except DatabaseError as error:
            self.give_up()
            logger.debug("beat cannot ask PostgreSQL for its turn: %s", error)
        return self.is_ours

    def give_up(self) -> None:
        """Let another process take the turn."""
        self.is_ours = False
        self._connection.close()


class Scheduler(PersistentScheduler):
    """Sends what is due while it is this process's turn."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.turn = BeatTurn()
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send one task that is due; return the seconds until the next call.

        The turn is checked before each task.
        """
        had_turn = self.turn.is_ours
        if not self.turn.take():
            if had_turn:
                logger.warning("The connection to PostgreSQL was lost: beat waits for its turn.")
            return WAIT_SECONDS
        if not had_turn:
            logger.info("It is this beat's turn to send the periodic tasks.")
        return super().tick(*args, **kwargs)

    def close(self) -> None:
        """Store the schedule, and let another process take the turn."""
        try:
            super().close()
        finally:
            self.turn.give_up()
            stop_hearts()
