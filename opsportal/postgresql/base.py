"""PostgreSQL on another host: each side notices when the other is gone."""

from typing import Any

from django.db.backends.postgresql import base
from psycopg import Error

from opsportal.servers import PROBE_SECONDS, PROBES, SILENT_SECONDS, UNACKNOWLEDGED_MS

#: What the server does with a connection whose client says nothing, as the client does with it.
_SERVER_KEEPALIVES = {
    "tcp_keepalives_idle": SILENT_SECONDS,
    "tcp_keepalives_interval": PROBE_SECONDS,
    "tcp_keepalives_count": PROBES,
    "tcp_user_timeout": UNACKNOWLEDGED_MS,
}


class DatabaseWrapper(base.DatabaseWrapper):
    """Closes a connection whose server has become read-only, as one that was lost.

    Django asks before the first query of each request and task. The next connection goes to the
    primary, where `DATABASE_URL` names several hosts.

    The server closes connections of a host that is gone. By itself it would keep them for the two
    hours of the kernel's keepalives, with their locks, such as that of beat, and their share of
    `max_connections`.
    """

    connection: Any

    def init_connection_state(self) -> None:
        super().init_connection_state()
        # Without an address it is a socket of this host, whose other end is always noticed.
        if not self.connection.info.hostaddr:
            return
        settings = ", ".join(f"set_config('{name}', %s, false)" for name in _SERVER_KEEPALIVES)
        values = [str(value) for value in _SERVER_KEEPALIVES.values()]
        self.connection.execute(f"SELECT {settings}", values)
        # Settings are those of the transaction until it is committed.
        if not self.connection.autocommit:
            self.connection.commit()

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
