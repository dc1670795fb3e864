"""A connection counts as usable only while its server accepts changes."""

from typing import Any

from django.db.backends.postgresql import base
from psycopg import Error


class DatabaseWrapper(base.DatabaseWrapper):
    """Closes a connection whose server has become read-only, as one that was lost.

    Django asks before the first query of each request and task. The next connection goes to the
    primary, where `DATABASE_URL` names several hosts.
    """

    connection: Any

    def is_usable(self) -> bool:
        """Return whether the server answers and accepts changes."""
        if self.connection is None:
            return False
        try:
            # Django's own cursors would close the connection that they ask about.
            with self.connection.cursor() as cursor:
                cursor.execute("SHOW transaction_read_only")
                (read_only,) = cursor.fetchone()
        except Error:
            return False
        return bool(read_only == "off")
