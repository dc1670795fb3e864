"""The dump of a release names nothing of the machine that made it."""

import socket

from django.db import connection

from dev.packaging.dump import HOST, WORKED, find_empty, forget_machine


def test_texts_of_all_tables_forget_the_host(nova):
    """Generated columns, which cannot be written, follow from the others."""
    nova.name = f"NOvA at {socket.gethostname()}"
    nova.save()
    forget_machine(connection.connection)
    nova.refresh_from_db()
    assert nova.name == f"NOvA at {HOST}"


def test_empty_tables_are_named(nova):
    tables = ("accounts_experiment", *WORKED)
    assert find_empty(connection.connection, tables) == list(WORKED)
