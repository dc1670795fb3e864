"""`deploy/upgrade.sh` with a real PostgreSQL, web server and worker.

Only `systemctl` is another (it really starts and stops them), and what makes an environment, which
takes the packages of this one.
"""

import os
import re
import shutil
import stat
import subprocess
import sys

import psycopg
import pytest
from django.db import connection

from dev.postgres import clean_environment
from tests.upgrade import databases

ROOT = databases.ROOT
DATABASE = "upgraded_by_script"
NEW = "99.1.0"
BROKEN = "99.2.0"
MARK = "the mark of the newer release"
MIGRATION = """
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("core", "{before}")]
    operations = [migrations.RunSQL("{statement}")]
"""
PYTHON = """#!/bin/sh
# `python3 -m venv DIRECTORY`
[ "$2" = venv ] || exec {python} "$@"
mkdir -p "$3/bin"
for name in gunicorn celery; do
    printf '#!/bin/sh\\nexec {python} -m %s "$@"\\n' $name >"$3/bin/$name"
done
printf '#!/bin/sh\\nexec {python} "$@"\\n' >"$3/bin/python"
printf '#!/bin/sh\\necho pip "$@"\\n' >"$3/bin/pip"
chmod 755 "$3"/bin/*
"""
pytestmark = [
    pytest.mark.django_db,
    pytest.mark.xdist_group("upgrade"),
    pytest.mark.timeout(1200),
]


def make_release(directory, version, statement=""):
    """Copy the portal as a release of this version; `statement` is what its migration does."""
    for name in ("apps", "capture", "deploy", "opsportal", "static", "templates", "docs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, directory / name, ignore=ignored)
    for name in ("manage.py", "gunicorn.conf.py", "requirements.lock", "CHANGELOG.md"):
        shutil.copy(ROOT / name, directory / name)
    project = (ROOT / "pyproject.toml").read_text()
    project = re.sub('^version = ".*"$', f'version = "{version}"', project, flags=re.MULTILINE)
    (directory / "pyproject.toml").write_text(project)
    if statement:
        migrations = directory / "apps/core/migrations"
        before = max(path.stem for path in migrations.glob("0*.py"))
        text = MIGRATION.format(before=before, statement=statement)
        (migrations / "9999_newer.py").write_text(text)
    return directory


class Site:
    """A portal installed in a directory, and the environment of its scripts."""

    def __init__(self, base):
        self.base, self.root = base, base / "opt"
        self.units, self.backups = base / "units", base / "backups"
        programs = base / "programs"
        for directory in (self.units, programs):
            directory.mkdir()
        (programs / "python3").write_text(PYTHON.format(python=sys.executable))
        (programs / "systemctl").write_text((ROOT / "tests/upgrade/systemctl").read_text())
        for program in programs.iterdir():
            program.chmod(0o755)
        settings = {
            "SECRET_KEY": "a key for the tests, which guards nothing, and is long enough for that",
            "MASKING_KEY": "another key, which guards nothing either, and is long enough for that",
            "METRICS_TOKEN": "a token for the tests, which guards nothing and is long enough",
            "DATABASE_URL": databases.url_of(DATABASE),
            "REDIS_URL": os.environ["REDIS_URL"].partition("?")[0] + "?db=14",
            "PORTAL_URL": "https://portal.example.org",
            "TRUST_PROXY": "true",
            "VAR_DIR": str(base),
            "STATIC_DIR": str(base / "static"),
            "LOG_ROOTS": str(base),
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        (base / "opsportal.env").write_text("# Settings\n" + "\n".join(lines) + "\n")
        path = [programs, databases.BINARIES, os.environ["PATH"]]
        self.environment = clean_environment() | {
            "PATH": os.pathsep.join(str(part) for part in path),
            "OPSPORTAL_ROOT": str(self.root),
            "OPSPORTAL_UNITS": str(self.units),
            "OPSPORTAL_BACKUPS": str(self.backups),
            "OPSPORTAL_SOCKET": str(base / "web.sock"),
            "OPSPORTAL_SETTINGS": str(base / "opsportal.env"),
            "OPSPORTAL_READY_SECONDS": "600",
            "OPSPORTAL_USER": subprocess.check_output(["id", "-un"], text=True).strip(),
        }
        for name in ("SECRET_KEY", "DATABASE_URL", "REDIS_URL", "DJANGO_ALLOW_ASYNC_UNSAFE"):
            self.environment.pop(name, None)

    def run(self, *command, code=0, umask=0o022):
        done = subprocess.run(
            [str(part) for part in command],
            cwd=self.base,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            umask=umask,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def upgrade(self, *arguments, **options):
        return self.run("sh", ROOT / "deploy/upgrade.sh", *arguments, **options)

    def install(self, version="0.2.0"):
        """Install as docs/production.md says, without a database."""
        release = make_release(self.root / "releases" / version, version)
        self.run(self.base / "programs/python3", "-m", "venv", release / ".venv")
        (self.root / "current").symlink_to(release)
        for unit in (release / "deploy/systemd").iterdir():
            shutil.copy(unit, self.units)

    def current(self):
        return (self.root / "current").resolve().name

    def is_marked(self):
        with psycopg.connect(databases.url_of(DATABASE)) as asked:
            return asked.execute("SELECT obj_description('core_event'::regclass)").fetchone()[0]


@pytest.fixture
def site(tmp_path_factory):
    # A socket's path has 107 bytes at most.
    made = Site(tmp_path_factory.mktemp("s"))
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
    new = make_release(tmp_path / "new", NEW, f"COMMENT ON TABLE core_event IS '{MARK}'")
    changelog = f"## Unreleased\n## {NEW} - 2027-01-01\n### Upgrade\n- Mind this.\n\n## 0.2.0\n"
    (new / "CHANGELOG.md").write_text(f"{changelog}### Upgrade\n- Long done.\n")
    for path in new.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)

    said = site.upgrade("--yes", new, umask=0o077)
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
