"""Migrations that have landed never change: databases have applied them already."""

import hashlib
from pathlib import Path

import pytest
from django.apps import apps
from django.db.migrations.loader import MigrationLoader

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests/migrations.sha256"
HASHES = {path: digest for digest, path in (line.split() for line in LIST.read_text().splitlines())}
FILES = sorted(
    str(path.relative_to(ROOT))
    for path in ROOT.glob("apps/*/migrations/*.py")
    if path.stem != "__init__"
)


@pytest.mark.parametrize("path", HASHES)
def test_landed_migration_is_unchanged(path):
    file = ROOT / path
    assert file.exists(), f"{path} has landed, so it must stay."
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert digest == HASHES[path], (
        f"{path} has landed, so it must not change: write a new migration instead."
    )


def test_every_migration_is_listed():
    missing = [path for path in FILES if path not in HASHES]
    assert missing == [], (
        f"Add new migrations with: sha256sum {' '.join(missing)} >> tests/migrations.sha256"
    )


def test_list_names_each_migration_once():
    assert len(LIST.read_text().splitlines()) == len(HASHES)


def test_each_app_has_one_line_of_migrations():
    assert MigrationLoader(None).detect_conflicts() == {}


def test_every_app_is_migrated_after_core():
    """The core leaves the mark that tells this database from one of 0.1.0."""
    graph = MigrationLoader(None).graph
    ours = [config.label for config in apps.get_app_configs() if config.name.startswith("apps.")]
    for app_label, name in graph.leaf_nodes():
        if app_label in ours:
            assert ("core", "0001_initial") in graph.forwards_plan((app_label, name))
