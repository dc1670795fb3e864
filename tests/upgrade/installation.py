"""A portal installed in a directory as docs/production.md says, and releases for it.

Only `systemctl` is another (it really starts and stops the units), and what makes an environment,
which takes the packages of this one.
"""

import os
import re
import shutil
import socket
import subprocess
import sys

import psycopg

from dev.postgres import clean_environment
from tests.upgrade import databases

ROOT = databases.ROOT
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


#: What a release consists of.
FOLDERS = ("apps", "capture", "deploy", "opsportal", "static", "templates", "docs")
FILES = ("manage.py", "gunicorn.conf.py", "requirements.lock", "CHANGELOG.md", "pyproject.toml")
BREAKING = """
REVIEWED_MIGRATIONS += (
    ReviewedMigration("core", "9999_newer", breaks="0.2.0", reason="for the test"),
)
"""


def make_release(directory, version, statement="", *, is_breaking=False, source=ROOT):
    """Copy the portal as a release of this version.

    `statement` is what its migration does, which no earlier release survives if `is_breaking`.
    """
    for name in FOLDERS:
        # Bytecode comes along: its source keeps its time.
        ignored = shutil.ignore_patterns("*.pyc.*")  # being written
        shutil.copytree(source / name, directory / name, ignore=ignored)
    for name in FILES:
        shutil.copy(source / name, directory / name)
    project = (directory / "pyproject.toml").read_text()
    project = re.sub('^version = ".*"$', f'version = "{version}"', project, flags=re.MULTILINE)
    (directory / "pyproject.toml").write_text(project)
    if statement:
        migrations = directory / "apps/core/migrations"
        before = max(path.stem for path in migrations.glob("0*.py"))
        text = MIGRATION.format(before=before, statement=statement)
        (migrations / "9999_newer.py").write_text(text)
    if is_breaking:
        with (directory / "apps/core/breaking_migrations.py").open("a") as reviewed:
            reviewed.write(BREAKING)
    return directory


class Site:
    """A portal installed in a directory, and the environment of its scripts."""

    def __init__(self, base, database, **settings):
        self.base, self.root, self.database = base, base / "opt", database
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
            "DATABASE_URL": databases.url_of(database),
            "REDIS_URL": os.environ["REDIS_URL"].partition("?")[0] + "?db=14",
            "PORTAL_URL": "https://portal.example.org",
            "TRUST_PROXY": "true",
            "VAR_DIR": str(base),
            "STATIC_DIR": str(base / "static"),
            "LOG_ROOTS": str(base),
        } | settings
        self.settings = settings
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

    def manage(self, program):
        """Run a program on the portal, as its units run, and return what it prints."""
        return self.run(ROOT / "deploy/opsportal-manage", "--python", "-c", program)

    def wait_until_ready(self):
        """Wait until the web server answers on its socket, which is open already."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(120)
            connection.connect(str(self.base / "web.sock"))
            connection.sendall(b"GET /healthz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            answer = connection.recv(100)
            assert b" 200 " in answer, answer

    def install(self, version="0.2.0", **options):
        """Install as docs/production.md says, without a database."""
        release = make_release(self.root / "releases" / version, version, **options)
        self.run(self.base / "programs/python3", "-m", "venv", release / ".venv")
        (self.root / "current").symlink_to(release)
        for unit in (release / "deploy/systemd").iterdir():
            shutil.copy(unit, self.units)

    def current(self):
        return (self.root / "current").resolve().name

    def is_marked(self):
        with psycopg.connect(databases.url_of(self.database)) as asked:
            return asked.execute("SELECT obj_description('core_event'::regclass)").fetchone()[0]
