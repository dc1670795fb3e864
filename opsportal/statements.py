"""A time limit for the database queries of web servers.

Every query of a page ends, whatever the parameters of the page.
"""

from typing import Any

from django.db.backends.signals import connection_created

#: Longer than any page may take, and longer than a proxy waits for it.
STATEMENT_SECONDS = 60


def limit_statements() -> None:
    """Make PostgreSQL cancel statements of this process after `STATEMENT_SECONDS`.

    Only web servers call this.
    """
    connection_created.connect(_set_timeout, dispatch_uid="statement-timeout")


def _set_timeout(connection: Any, **_: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('statement_timeout', %s, false)", [f"{STATEMENT_SECONDS}s"]
        )
