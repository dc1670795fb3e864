"""Which migrations keep a running release from working beside them."""

import pytest
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from apps.core.breaking_migrations import REVIEWED_MIGRATIONS, list_breaking_migrations

RENAME = ("submission", "0002_cancel_requested_at")


def names(version, **options):
    breaking = list_breaking_migrations(database="default", version=version, **options)
    return [(migration.app_label, migration.name) for migration in breaking]


@pytest.mark.django_db
def test_applied_migrations_are_in_the_way_back_alone():
    assert names("0.2.0") == []
    assert RENAME in names("0.2.0", are_applied=True)
    assert names("0.3.0", are_applied=True) == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("version", "is_broken"), [("0.1.9", True), ("0.2.0", True), ("0.2.1", False), ("0.10", False)]
)
def test_pending_migration_breaks_the_releases_up_to_the_named_one(version, is_broken):
    MigrationRecorder.Migration.objects.filter(app=RENAME[0], name=RENAME[1]).delete()
    assert names(version) == ([RENAME] if is_broken else [])


def test_each_reviewed_migration_exists_once():
    reviewed = [(migration.app_label, migration.name) for migration in REVIEWED_MIGRATIONS]
    assert len(set(reviewed)) == len(reviewed)
    assert set(reviewed) <= set(MigrationLoader(None).disk_migrations)
