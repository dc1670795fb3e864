"""What a test commits is gone when the next one starts."""

from django.test import TransactionTestCase

from apps.diagnosis.models import KnownError
from tests.database import copy_rows
from tests.factories import people


def sorted_rows() -> dict[str, list[bytes]]:
    return {table: sorted(rows.splitlines()) for table, rows in copy_rows().items()}


def test_teardown_restores_the_rows_of_a_migrated_database(transactional_db):
    rows = sorted_rows()
    people.person("someone")
    KnownError.objects.filter(pk="DNS").delete()
    assert sorted_rows() != rows
    TransactionTestCase()._fixture_teardown()
    assert sorted_rows() == rows
    assert "django_migrations" in rows
    assert "accounts_user" not in rows
