"""`deploy/upgrade.sh` with a real PostgreSQL, web server and worker."""

import re
import stat
import subprocess

import pytest
from django.db import connection

from dev.postgres import clean_environment
from tests.upgrade import databases
from tests.upgrade.installation import ROOT, Site, make_release

DATABASE = "upgraded_by_script"
NEW = "99.1.0"
BROKEN = "99.2.0"
MARK = "the mark of the newer release"
pytestmark = [
    pytest.mark.django_db,
    pytest.mark.xdist_group("upgrade"),
    pytest.mark.timeout(1200),
]


@pytest.fixture
def site(tmp_path_factory):
    # A socket's path has 107 bytes at most.
    made = Site(tmp_path_factory.mktemp("s"), DATABASE)
    made.install()
    yield made
    made.run("systemctl", "stop")


@pytest.fixture
def database():
    """A copy of the migrated database of the tests."""
    databases.administer(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
    databases.administer(f"CREATE DATABASE {DATABASE}")
    environment = clean_environment()
    dump = [databases.BINARIES / "pg_dump", databases.url_of(connection.settings_dict["NAME"])]
    sql = subprocess.check_output(dump, env=environment)
    psql = [databases.BINARIES / "psql", "-Xqo", "/dev/null", "-d", databases.url_of(DATABASE)]
    subprocess.run(psql, input=sql, env=environment, check=True)
    yield
    databases.administer(f"DROP DATABASE {DATABASE} WITH (FORCE)")


def test_older_and_same_versions_are_refused(site, tmp_path):
    older = make_release(tmp_path / "older", "0.1.9")
    assert "0.1.9 is older than 0.2.0" in site.upgrade(older, code=1)
    assert "0.2.0 is installed already" in site.upgrade(site.root / "current", code=1)
    assert "holds no release" in site.upgrade(tmp_path, code=1)
    assert "no release before" in site.upgrade("--back", code=1)
    assert not (site.units / "state/calls").exists()
    assert site.current() == "0.2.0"


@pytest.mark.slow
def test_upgrade_and_the_way_back(site, database, tmp_path):
    site.run("systemctl", "start", "opsportal.target")
    statement = f"COMMENT ON TABLE core_event IS '{MARK}'"
    new = make_release(tmp_path / "new", NEW, statement, is_breaking=True)
    changelog = f"## Unreleased\n## {NEW} - 2027-01-01\n### Upgrade\n- Mind this.\n\n## 0.2.0\n"
    (new / "CHANGELOG.md").write_text(f"{changelog}### Upgrade\n- Long done.\n")
    for path in new.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)

    refused = site.upgrade("--yes", "--rolling", new, umask=0o077, code=1)
    assert "core.9999_newer: for the test" in refused
    assert "nothing was changed" in refused

    said = site.upgrade("--yes", new, umask=0o077)
    assert "rolling: no" in said
    assert "Mind this" in said
    assert "Long done" not in said
    assert "ready: 200" in said
    assert (site.current(), site.is_marked()) == (NEW, MARK)
    for path in (site.root / "releases" / NEW).rglob("*"):
        assert path.stat().st_mode & stat.S_IROTH, path
    (dump,) = site.backups.iterdir()
    assert dump.stat().st_mode & 0o077 == 0
    calls = (site.units / "state/calls").read_text()
    assert calls.index("stop opsportal.target") < calls.rindex("start opsportal.target")
    assert site.run(ROOT / "deploy/opsportal-manage", "version").strip() == f"opsportal {NEW}"

    refused = site.upgrade("--back", code=1)
    assert "give --restore DUMP" in refused
    assert site.current() == NEW
    said = site.upgrade("--back", "--restore", dump)
    assert "0.2.0 runs again" in said
    assert "production is on hold" in said
    assert (site.current(), site.is_marked()) == ("0.2.0", None)


@pytest.mark.slow
def test_failed_migration_names_the_way_back(site, database, tmp_path):
    site.run("systemctl", "start", "opsportal.target")
    broken = make_release(tmp_path / "broken", BROKEN, "SELECT 1 / 0")
    said = site.upgrade("--yes", broken, code=1)
    way_back = re.search(r"way back: upgrade.sh (--back --restore \S+)$", said, re.MULTILINE)
    assert way_back, said
    calls = (site.units / "state/calls").read_text()
    assert calls.rindex("stop opsportal.target") > calls.rindex("start opsportal.target")
    assert "0.2.0 runs again" in site.upgrade(*way_back[1].split())
    assert site.current() == "0.2.0"
