"""The doctor calls a good site good, and names each broken thing once, with its fix."""

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from redis import Redis

from apps.core.domain.events import publish
from apps.core.domain.health import beat_heart
from apps.core.models import Delivery, Heartbeat
from apps.jobs.models import Collection
from apps.notifications.domain.webhooks import add_webhook
from apps.portal.management.commands import doctor
from apps.portal.pages.doctor import database, files
from apps.portal.pages.doctor.checks import CHECKS, DoctorCheck
from apps.portal.pages.doctor.clock import clock_finding
from apps.portal.pages.doctor.findings import FindingLevel, ok
from apps.portal.pages.doctor.support import POSTGRESQL, SUPPORTED, version_finding
from opsportal.checkout import FILES
from tests.factories import clusters

# One of these tests changes a setting of the Redis of all.
pytestmark = pytest.mark.xdist_group("doctor")


@pytest.fixture
def site(live_server, settings, tmp_path):
    """A site whose web server, beat and a worker run, and whose directories are there."""
    settings.PORTAL_URL = live_server.url
    settings.SILENCED_SYSTEM_CHECKS = ["async.E001"]  # tests in a browser allow it
    for name in ("VAR_DIR", "STATIC_ROOT", "BACKUP_DIR"):
        directory = tmp_path / name
        directory.mkdir()
        setattr(settings, name, directory)
    settings.JOB_ARCHIVE = settings.VAR_DIR / "job-months"
    settings.LOG_ROOTS = []
    (settings.STATIC_ROOT / "staticfiles.json").write_text("{}")
    (settings.BACKUP_DIR / "opsportal.dump").write_text("a dump")
    for name in ("beat", "queue", "worker default@here"):
        beat_heart(name=name, at=timezone.now())
    return settings


def examine():
    findings, left_out = doctor.examine(CHECKS, at=timezone.now())
    assert all(bool(finding.fix) == (finding.level != FindingLevel.OK) for finding in findings)
    assert all("\n" not in finding.seen + finding.fix for finding in findings)
    return findings, left_out


def problems():
    findings, left_out = examine()
    return [finding for finding in findings if finding.level == FindingLevel.PROBLEM], left_out


def the_problem():
    ((finding,), _) = problems()
    return finding


def test_good_site_has_no_problem(site, capsys):
    call_command("doctor")
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "warning"}
    for check in (
        "PostgreSQL",
        "Redis",
        "migrations",
        "portal is ready",
        "beat",
        "queue",
        "backup",
    ):
        assert any(line.startswith(f"ok       {check}:") for line in lines), check


def test_tools_get_json_and_a_status(site, capsys):
    Heartbeat.objects.filter(name="beat").delete()
    with pytest.raises(SystemExit) as end:
        call_command("doctor", as_json=True)
    assert end.value.code == 1
    answer = json.loads(capsys.readouterr().out)
    (finding,) = [row for row in answer["findings"] if row["level"] == "problem"]
    assert (finding["check"], finding["seen"]) == ("beat", "no heartbeat yet")
    assert "systemctl start opsportal-beat" in finding["fix"]
    assert answer["not_checked"] == ["messages"]


def test_webhooks_of_former_keys_are_counted(site, approver, replace_key):
    site.WEBHOOK_HTTP, site.WEBHOOK_NETWORKS = True, ["127.0.0.0/8"]
    add_webhook(url="http://127.0.0.1/hook", experiment=None, by=approver, at=timezone.now())
    replace_key(keep=True)
    findings, _ = examine()
    (finding,) = [finding for finding in findings if finding.check == "keys"]
    assert finding.level == FindingLevel.WARNING
    assert finding.seen == "webhooks with a secret of a former SECRET_KEY: 1"
    replace_key(keep=False)
    assert the_problem().check == "keys"


def test_line_of_the_settings_that_a_shell_reads_differently_is_named(site, tmp_path, monkeypatch):
    path = tmp_path / "opsportal.env"
    path.write_text("# settings\nA=b\nEMAIL_URL=smtp://me:se$cret@mail\n")
    monkeypatch.setattr(files, "ENVIRONMENT_FILES", (path, tmp_path / "none"))
    (finding,) = files.check_quoting(timezone.now())
    assert finding.level == FindingLevel.WARNING
    assert finding.seen.endswith("differently: EMAIL_URL (line 3)")
    assert "cret" not in finding.seen

    path.write_text("A='b c'\n")
    assert [finding.level for finding in files.check_quoting(timezone.now())] == [FindingLevel.OK]


def test_redis_that_is_away_is_one_problem(site):
    site.REDIS_URL = "redis://127.0.0.1:1/0"
    ((finding,), left_out) = problems()
    assert finding.check == "Redis"
    assert "REDIS_URL" in finding.fix
    assert set(left_out) == {"Redis' clock", "shared JOB_ARCHIVE", "ready", "messages"}


def test_redis_that_evicts_is_a_problem(site):
    with closing(Redis.from_url(site.REDIS_URL)) as client:
        before = client.config_get("maxmemory*")
        try:
            client.config_set("maxmemory", 8_000_000_000)
            client.config_set("maxmemory-policy", "allkeys-lru")
            finding = the_problem()
        finally:
            client.config_set("maxmemory-policy", before["maxmemory-policy"])
            client.config_set("maxmemory", before["maxmemory"])
    assert (finding.check, "allkeys-lru" in finding.seen) == ("memory of Redis", True)
    assert "noeviction" in finding.fix


def test_database_that_is_away_is_one_problem_and_no_traceback(tmp_path):
    environment = os.environ | {
        "DATABASE_URL": "postgresql://opsportal:not-shown@127.0.0.1:1/none",
        "PORTAL_URL": "http://127.0.0.1:1",
    }
    command = [sys.executable, "manage.py", "doctor", "--json"]
    run = subprocess.run(
        command,
        cwd=FILES,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    assert "Traceback" not in run.stdout + run.stderr
    assert "not-shown" not in run.stdout + run.stderr
    answer = json.loads(run.stdout)
    broken = [row["check"] for row in answer["findings"] if row["level"] == "problem"]
    assert broken.count("PostgreSQL") == 1
    assert "portal answers" in broken
    assert {"migrations", "processes", "queues", "ready"} <= set(answer["not_checked"])


@pytest.mark.django_db
def test_role_without_rights_is_a_problem():
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE doctor_stranger")
        cursor.execute("SET LOCAL ROLE doctor_stranger")
        (finding,) = database.check_rights(timezone.now())
        cursor.execute("RESET ROLE")
    assert finding.level == FindingLevel.PROBLEM
    assert "cannot use" in finding.seen
    assert "OWNER TO doctor_stranger" in finding.fix


@pytest.mark.django_db
def test_other_schema_is_a_problem():
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE core_heartbeat DROP COLUMN detail")
    (finding,) = database.check_schema(timezone.now())
    assert finding.level == FindingLevel.PROBLEM
    assert "table core_heartbeat lacks column detail" in finding.seen


def test_portal_that_does_not_answer_is_one_problem(site):
    site.PORTAL_URL = "http://127.0.0.1:1"
    finding = the_problem()
    assert finding.check == "portal answers"
    assert "PORTAL_URL" in finding.fix


def test_dead_worker_is_named(site):
    Heartbeat.objects.filter(name__startswith="worker").update(
        at=timezone.now() - timedelta(hours=1)
    )
    broken, _ = problems()
    assert [finding.check for finding in broken] == ["worker default@here", "workers"]


def test_late_queue_and_broken_accounting_are_named(site, nova):
    event = publish(kind="experiment.created", target=nova, by="test", at=timezone.now())
    overdue = timezone.now() - timedelta(hours=2)
    Delivery.objects.create(event=event, subscriber="test.late", due_at=overdue)
    Collection.objects.update_or_create(
        cluster=clusters.cluster("alps", "slurm"),
        defaults={"collected_until": overdue, "last_error": "sacct: refused"},
    )
    broken, _ = problems()
    assert [finding.check for finding in broken] == ["queue events", "accounting of alps"]


def test_missing_directories_are_named(site, tmp_path):
    site.VAR_DIR = tmp_path / "lost"
    site.LOG_ROOTS = [tmp_path / "logs"]
    (site.STATIC_ROOT / "staticfiles.json").unlink()
    broken, _ = problems()
    assert [finding.check.split()[0] for finding in broken] == [
        "VAR_DIR",
        "STATIC_DIR",
        "LOG_ROOTS",
    ]
    assert "collectstatic" in broken[1].fix


def test_secret_that_others_read_is_a_problem(monkeypatch, tmp_path):
    tmp_path.chmod(0o755)
    monkeypatch.setattr(files.Path, "parents", ())  # directories of tests are closed to others
    secret = tmp_path / "secret-key"
    secret.write_text("x")
    secret.chmod(0o644)
    monkeypatch.setenv("SECRET_KEY_FILE", str(secret))
    (finding,) = files.check_secret_files(timezone.now())
    assert (finding.level, finding.fix) == (FindingLevel.PROBLEM, f"Run `chmod 640 {secret}`.")
    secret.chmod(0o640)
    (finding,) = files.check_secret_files(timezone.now())
    assert finding.level == FindingLevel.OK


def test_dump_that_is_old_empty_or_missing_is_a_problem(tmp_path):
    now = datetime.now(UTC)
    (tmp_path / "empty.dump").touch()
    assert "no dump" in database.dump_finding(tmp_path, now).seen
    (tmp_path / "a.dump").write_text("x")
    assert database.dump_finding(tmp_path, now).level == FindingLevel.OK
    later = now + timedelta(hours=database.BACKUP_HOURS + 1)
    assert database.dump_finding(tmp_path, later).level == FindingLevel.PROBLEM
    assert database.dump_finding(tmp_path / "lost", now).level == FindingLevel.PROBLEM


def test_mail_server_that_is_away_is_one_problem(site):
    site.EMAIL_HOST, site.EMAIL_PORT = "127.0.0.1", 1
    assert the_problem().check == "mail server"


@pytest.mark.parametrize(
    ("days", "level"),
    [(3, FindingLevel.PROBLEM), (20, FindingLevel.WARNING), (40, FindingLevel.OK)],
)
def test_disk_is_judged_by_growth(days, level):
    assert database.growth_finding("", free_bytes=days * 10, daily_bytes=10).level == level


@pytest.mark.parametrize(
    ("seconds", "level"),
    [
        (-20, FindingLevel.PROBLEM),
        (-2, FindingLevel.WARNING),
        (0.5, FindingLevel.OK),
        (3, FindingLevel.WARNING),
    ],
)
def test_clock_is_judged_by_its_distance(at, seconds, level):
    theirs = at + timedelta(seconds=seconds)
    after = at + timedelta(milliseconds=100)
    assert clock_finding("X", theirs=theirs, before=at, after=after).level == level


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ((14, 9), FindingLevel.PROBLEM),
        ((15, 0), FindingLevel.OK),
        ((18, 3), FindingLevel.OK),
        ((19, 0), FindingLevel.WARNING),
    ],
)
def test_versions_are_judged(version, level):
    assert version_finding(POSTGRESQL, version).level == level


def test_documentation_states_the_supported_versions():
    page = (FILES / "docs/production.md").read_text()
    for supported in SUPPORTED:
        assert f"| {supported.program} | {supported} |" in page


def test_check_that_hangs_or_fails_hides_no_other():
    def hang(at):
        yield ok("before", "seen")
        time.sleep(5)

    def fail(at):
        raise KeyError("x")
        yield

    checks = [DoctorCheck("hangs", hang), DoctorCheck("fails", fail)]
    began = time.monotonic()
    findings, _ = doctor.examine(checks, at=timezone.now(), limit_seconds=0.2)
    assert time.monotonic() - began < 4
    assert [finding.check for finding in findings] == ["before", "hangs", "fails"]


@pytest.mark.django_db
def test_statement_that_takes_too_long_is_stopped():
    def sleep(at):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(20)")
        yield ok("never", "")

    check = DoctorCheck("slow", sleep, asks_database=True)
    ((finding,), _) = doctor.examine([check], at=timezone.now(), limit_seconds=0.3)
    assert (finding.check, finding.level) == ("slow", FindingLevel.PROBLEM)
