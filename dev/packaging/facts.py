"""Facts about a portal: its rows, totals, what each person sees, and its main pages.

They are read from a release when its dump is made, and from the same database after later code has
migrated it. So this module uses only what stays: SQL on the tables that there are, addresses of
pages, and the API. Run as a program, it prints the facts of the portal of the environment and the
working directory, whatever its version, as JSON. Given the facts of an earlier release as a file,
it reads the same facts, at the time of that release.
"""

import json
import os
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

#: Rows that a database makes again, or numbers by itself.
NOT_COMPARED = ("django_migrations", "django_content_type", "auth_permission", "django_session")
PAGES = (
    "/",
    "/services/",
    "/requests/",
    "/requests/inbox/",
    "/requests/queue/",
    "/requests/campaigns/",
    "/jobs/",
    "/failures/",
    "/archive/",
    "/statistics/",
    "/health/",
    "/admin/",
)
#: Jobs of each experiment whose visibility is asked, the newest.
JOBS_ASKED = 2

_TABLES = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
    ORDER BY relname
"""
_COLUMNS = """
    SELECT attname FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attname
"""
_KEYS = """
    SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)
    WHERE indrelid = %s::regclass AND indisprimary ORDER BY attname
"""
_ONE_OF_EACH_ROLE = """
    SELECT min(username) FROM (
        SELECT username, array_agg(DISTINCT role ORDER BY role) AS roles
        FROM accounts_membership JOIN accounts_user ON accounts_user.id = user_id
        WHERE is_active GROUP BY username
    ) AS people GROUP BY roles ORDER BY 1
"""


def describe(earlier: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the facts; `earlier` are those of the earlier release.

    `rows` are numbers of rows by table, `columns` digests of each column's values by table,
    `jobs` numbers by hour and state, `requests` numbers by state, `visible` what each person gets
    of the API, and `pages` status and title of each page, by one person of each role.
    With `earlier`, only its tables and columns are read, as far as they still exist.
    """
    tables = [table for table in _names(_TABLES) if table not in NOT_COMPARED]
    if earlier:
        tables = [table for table in tables if table in earlier["columns"]]
    rows = {}
    columns = {}
    for table in tables:
        rows[table] = _rows(f'SELECT count(*) FROM "{table}"')[0][0]
        names = list(earlier["columns"][table]) if earlier else _names(_COLUMNS, table)
        columns[table] = _digests(table, names)
    people = _names("SELECT username FROM accounts_user WHERE is_active ORDER BY username")
    return {
        "rows": rows,
        "columns": columns,
        "jobs": _numbers(
            "SELECT to_char(ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24') || ' ' || state, "
            "count(*) FROM jobs_job GROUP BY 1 ORDER BY 1"
        ),
        "requests": _numbers("SELECT state, count(*) FROM production_request GROUP BY 1"),
        "visible": {person: _visible(person) for person in people},
        "pages": {person: _pages(person) for person in _names(_ONE_OF_EACH_ROLE)},
    }


def _rows(statement: str, *values: str | int) -> list[Any]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())


def _names(statement: str, *values: str | int) -> list[str]:
    return [name for (name,) in _rows(statement, *values)]


def _numbers(statement: str) -> dict[str, int]:
    return dict(_rows(statement))


def _digests(table: str, columns: list[str]) -> dict[str, str]:
    """Return a digest of the values of each column, in the order of the primary key.

    A column that the table no longer has is left out.
    """
    existing = set(_names(_COLUMNS, table))
    columns = [column for column in columns if column in existing]
    order = ", ".join(f'"{name}"' for name in _names(_KEYS, table)) or f'"{table}"::text'
    digests = [
        f"left(md5(coalesce(string_agg(coalesce(\"{column}\"::text, '-'), ',' ORDER BY {order}), "
        "'')), 12)"
        for column in columns
    ]
    values = _rows(f'SELECT {", ".join(digests)} FROM "{table}"')[0] if digests else ()
    return dict(zip(columns, values, strict=True))


def _client(person: str) -> Any:
    from django.contrib.auth import get_user_model
    from django.test import Client

    client = Client(raise_request_exception=False)
    client.force_login(get_user_model().objects.get(username=person))
    return client


def _visible(person: str) -> dict[str, Any]:
    """Return the keys of the requests and the numbers of the jobs that a person gets.

    Jobs are the newest of each experiment; what a person may not see is not in the list.
    """
    client = _client(person)
    answer = client.get("/api/v1/requests/?page_size=1000", secure=True).json()
    jobs = _names(
        "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY experiment_id ORDER BY id DESC)"
        " AS place FROM jobs_job) AS numbered WHERE place <= %s ORDER BY id",
        JOBS_ASKED,
    )
    statuses = {job: client.get(f"/api/v1/jobs/{job}/", secure=True).status_code for job in jobs}
    return {
        "requests": sorted(request["key"] for request in answer["results"]),
        "jobs": [job for job, status in statuses.items() if status == 200],
    }


def _pages(person: str) -> dict[str, list[Any]]:
    """Return status and title of each page."""
    client = _client(person)
    pages: dict[str, list[Any]] = {}
    for path in PAGES:
        answer = client.get(path, secure=True)
        title = re.search(r"<title>\s*(.*?)\s*</title>", answer.content.decode(), re.DOTALL)
        pages[path] = [answer.status_code, title[1] if title else ""]
    return pages


def main() -> int:
    """Print the facts of the portal in the working directory."""
    earlier = json.loads(Path(sys.argv[1]).read_text()) if sys.argv[1:] else None
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "opsportal.settings")
    import django

    django.setup()
    if earlier is None:
        print(json.dumps(describe()))
        return 0
    import time_machine

    with time_machine.travel(datetime.fromisoformat(earlier["at"])):
        print(json.dumps(describe(earlier)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
