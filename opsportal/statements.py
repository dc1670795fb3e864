"""A limit for the queries of web servers: what a page asks of the database ends,
whatever its parameters.
"""

from typing import Any

from django.db.backends.signals import connection_created

#: Longer than any page may take, and than a proxy waits for it.
STATEMENT_SECONDS = 60


def limit_statements() -> None:
    """Let PostgreSQL cancel statements of this process after `STATEMENT_SECONDS`;
    for web servers only.
    """
    connection_created.connect(_set_timeout, dispatch_uid="statement-timeout")


def _set_timeout(connection: Any, **_: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('statement_timeout', %s, false)", [f"{STATEMENT_SECONDS}s"]
        )
