"""The dump of each supported release, with two months of work in it, is restored, migrated by this
code, with kills, and compared with what that release said about itself.

Each dump is restored and migrated once, for all of its tests.
"""

import random
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from apps.core.breaking_migrations import REVIEWED_MIGRATIONS
from apps.core.domain.schema import find_faults
from tests.archive.test_kills import on_database
from tests.upgrade import databases, schema_changes

SUPPORTED = sorted(
    path.name.removesuffix(".sql.gz") for path in databases.RELEASES.glob("*.sql.gz")
)
KILLS = 1
#: What each version ships and `migrate` brings up to date, and tables that were renamed.
SHIPPED = {
    "diagnosis_cataloguestate",
    "diagnosis_exitcodemeaning",
    "diagnosis_knownerror",
    "diagnosis_knownerrorchange",
    "production_workflowtype",
    "production_workflowversion",
    "quality_outputfile",
    "submission_takenfile",
}
#: Titles of pages that changed on purpose. "Site administration" was Django's name.
CHANGED_TITLES = {"Site administration · opsportal admin": "Back office · opsportal"}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("upgrade"),
    pytest.mark.parametrize("migrated", SUPPORTED, indirect=True),
]


class Migrated:
    """A migrated database, what its release said of it, and a directory for its portal."""

    def __init__(self, release: str, directory: Path) -> None:
        self.name = f"upgraded_from_{release.replace('.', '_')}"
        self.facts = databases.read_facts(release)
        self.directory = directory
        databases.restore(self.name, release)
        before = databases.count_applied(self.name)
        self.applied_before = databases.list_applied(self.name)
        self.schema_before = schema_changes.read_schema_of(self.name)
        # The oldest has the most to migrate; others would be killed in a part of the same.
        pending = len(MigrationLoader(None).disk_migrations) - before
        kills = KILLS if release == SUPPORTED[0] else 0
        kill_after = [random.randrange(1, min(60, pending)) for _ in range(kills)]
        print(f"{before} migrations; killed after {kill_after} more")
        databases.migrate_with_kills(self.name, directory, sorted(kill_after))
        self.now = databases.describe(self.name, directory, self.facts)


@pytest.fixture(scope="module")
def migrated(request, tmp_path_factory):
    made = Migrated(request.param, tmp_path_factory.mktemp("portal"))
    yield made
    databases.administer(f'DROP DATABASE "{made.name}" WITH (FORCE)')


@pytest.mark.django_db
def test_schema_is_that_of_a_new_database(migrated):
    new = databases.read_schema(connection.settings_dict["NAME"])
    assert databases.read_schema(migrated.name) == new


def test_database_fits_and_the_archive_is_whole(migrated, capsys, django_db_blocker):
    with django_db_blocker.unblock(), on_database(databases.url_of(migrated.name)):
        assert find_faults(database="default") == []
        call_command("migrate", check_unapplied=True, verbosity=0)
        call_command("check", databases=["default"])
        call_command("archive", "verify")
    assert migrated.facts["rows"]["archive_archivedjob"] > 20
    assert "Every content is as it was stored." in capsys.readouterr().out


def test_no_row_is_lost(migrated):
    assert migrated.facts["rows"]["jobs_job"] > 500
    for table in migrated.facts["rows"].keys() - SHIPPED:
        assert migrated.now["rows"][table] == migrated.facts["rows"][table], table


def test_totals_are_the_same(migrated):
    assert len(migrated.facts["jobs"]) > 100
    assert migrated.now["jobs"] == migrated.facts["jobs"]
    assert migrated.now["requests"] == migrated.facts["requests"]


def test_each_person_sees_what_they_saw(migrated):
    people = migrated.facts["visible"]
    assert len({str(seen) for seen in people.values()}) > 3
    assert migrated.now["visible"] == people


def test_main_pages_answer_each_role(migrated):
    assert len(migrated.facts["pages"]) >= 4
    for person, pages in migrated.facts["pages"].items():
        expected = {}
        for path, (status, title) in pages.items():
            expected[path] = [status, CHANGED_TITLES.get(title, title)]
        assert migrated.now["pages"][person] == expected, person


def test_code_of_the_release_runs_on_this_schema_but_for_what_is_listed(migrated):
    """Code of release n runs on schema n + 1; see docs/adr/0050-rolling-upgrades.md."""
    now = schema_changes.read_schema_of(migrated.name)
    changes = schema_changes.find_changes(migrated.schema_before, now)
    listed = set()
    for migration in REVIEWED_MIGRATIONS:
        if (migration.app_label, migration.name) not in migrated.applied_before:
            listed |= migration.changes
    assert changes == listed, (
        "Give the migration a form that the release before bears (a column with db_default, and no "
        "removal before its code has gone), or list it in apps/core/breaking_migrations.py."
    )
