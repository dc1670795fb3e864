"""The portal tells a restore to a moment from a failover: both begin a timeline of PostgreSQL."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from apps.production.models import Hold
from apps.submission.domain.dispatch.restore import stop_after_restore
from apps.submission.models import KnownDatabase
from apps.submission.tasks import send_all
from tests.failover.postgresql_pair import NAME, Pair, Server, back_up, copy_database, on_database
from tests.failover.waiting import wait_for
from tests.upgrade.databases import url_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("failover")]
IN_RECOVERY = "SELECT pg_is_in_recovery()"


@pytest.fixture
def base(transactional_db, tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("t")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_promoted_standby_is_no_restore(base, stack):
    name = connection.settings_dict["NAME"]
    connection.close()
    pair = Pair(stack, base, name)
    stack.enter_context(on_database(pair.url))
    send_all()
    assert KnownDatabase.objects.get().timeline == 1

    pair.primary.kill()
    connection.close()
    pair.standby.promote()
    wait_for(lambda: not pair.standby.ask(IN_RECOVERY))
    send_all()
    assert KnownDatabase.objects.get().timeline == 2
    assert not Hold.objects.exists()


def test_restore_to_a_moment_puts_all_production_on_hold(base, stack):
    archive = base / "archive"
    archive.mkdir()
    archive.chmod(0o777)  # PostgreSQL may be another user
    name = connection.settings_dict["NAME"]
    connection.close()
    server = Server(stack, base / "1")
    server.postgres.settings |= {
        "archive_mode": "on",
        "archive_command": f"cp %p {archive}/%f",
    }
    server.start()
    server.ask(f"CREATE DATABASE {NAME}", database="postgres")
    copy_database(url_of(name), server.url)
    at = timezone.now()
    with on_database(server.url):
        assert not stop_after_restore(at=at)
    restored = Server(stack, base / "2")
    back_up(server, restored)
    moment = server.ask("SELECT now()")
    with on_database(server.url):
        KnownDatabase.objects.update(seen_at=at + timedelta(hours=1))
    segment = server.ask("SELECT pg_walfile_name(pg_switch_wal())")
    wait_for((archive / segment).exists)
    server.kill()

    (restored.postgres.data / "recovery.signal").touch()
    restored.postgres.settings |= {
        "restore_command": f"cp {archive}/%f %p",
        "recovery_target_time": moment.isoformat(),
        "recovery_target_action": "promote",
    }
    restored.start()
    wait_for(lambda: not restored.ask(IN_RECOVERY))
    with on_database(restored.url):
        send_all()
        newest = KnownDatabase.objects.latest("pk")
        assert (newest.timeline, newest.state_at) == (2, at)
        assert Hold.objects.get().by is None
        send_all()
        assert Hold.objects.count() == 1
