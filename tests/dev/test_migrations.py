"""`make lint` refuses migrations beside which the release before does not work."""

import pytest
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader

from dev import migrations as check

BARE = models.TextField()
#: A release after which tables and columns were added, renamed and removed.
FORMER = check.RELEASES / "0.2.0.sql.gz"


@pytest.fixture(scope="module")
def loader():
    return MigrationLoader(None)


@pytest.fixture(scope="module")
def present(loader):
    return loader.project_state()


@pytest.fixture(scope="module")
def released(loader):
    known = check.read_released_migrations(FORMER)
    return loader.project_state([key for key in loader.graph.nodes if key in known])


def migration_of(app_label, operation):
    migration = migrations.Migration("0099_new", app_label)
    migration.operations = [operation]
    return migration


@pytest.mark.parametrize(
    ("app_label", "operation", "fault"),
    [
        (
            "notifications",
            migrations.AddField("webhook", "colour", BARE),
            "0099_new adds the required column colour to webhook, which the release before does not",
        ),
        ("notifications", migrations.RemoveField("webhook", "nonce"), "(Remove field nonce from"),
        ("notifications", migrations.RenameField("webhook", "nonce", "n"), "(Rename field nonce"),
        ("notifications", migrations.RenameModel("Webhook", "Hook"), "(Rename model Webhook"),
        ("notifications", migrations.DeleteModel("Webhook"), "(Delete model Webhook"),
        (
            "notifications",
            migrations.SeparateDatabaseAndState([migrations.RemoveField("webhook", "nonce")]),
            "(Remove field nonce",
        ),
        (
            "notifications",
            migrations.AddField("webhook", "colour", models.TextField(db_default="red")),
            "",
        ),
        ("notifications", migrations.AddField("webhook", "c", models.TextField(null=True)), ""),
        # A later migration has added its default.
        ("notifications", migrations.AddField("webhook", "key_id", BARE), ""),
        # The release before does not know the model.
        ("search", migrations.AddField("logtoindex", "colour", BARE), ""),
        (
            "notifications",
            migrations.SeparateDatabaseAndState([], [migrations.DeleteModel("Webhook")]),
            "",
        ),
    ],
)
def test_migration_is_judged(released, present, app_label, operation, fault):
    migration = migration_of(app_label, operation)
    faults = list(check.find_faults(migration, released=released, present=present))
    if fault:
        assert len(faults) == 1
        assert fault in faults[0]
    else:
        assert faults == []


def test_migrations_since_the_newest_release_have_no_faults():
    assert check.find_all_faults() == []


def test_reviewed_migrations_are_the_only_ones(monkeypatch):
    monkeypatch.setattr(check, "newest_dump", lambda: FORMER)
    assert check.find_all_faults() == []
    monkeypatch.setattr("apps.core.breaking_migrations.REVIEWED_MIGRATIONS", ())
    faults = check.find_all_faults()
    assert any(fault.startswith("submission.0002_cancel_requested_at ") for fault in faults)
