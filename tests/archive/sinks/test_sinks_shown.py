"""Sinks on the health page, in the metrics, in the admin and by `manage.py archive sinks`."""

import io
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from apps.archive.models import RefusedJob, SinkState
from tests.archive.sinks.test_delivery import accept_each, clock, sinks, state, work

__all__ = ["clock", "sinks", "work"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def troubled(sinks, work):
    """One sink is away and lacks three jobs, the other has refused one."""
    away, picky = sinks
    away.away, picky.refuses = True, {"2"}
    accept_each([1, 2], [3])
    work(most=1)
    return sinks


def run(*arguments):
    out = io.StringIO()
    call_command("archive", "sinks", *arguments, stdout=out)
    return out.getvalue().splitlines()


def test_command_lists_sinks_and_what_they_refused(troubled):
    away, picky = run()
    assert away.startswith("memory:a\tunreachable\t3 jobs behind, ")
    assert away.endswith(" s\t0 refused\tconnection refused")
    assert picky == "memory:b\tup to date\t0 jobs behind\t1 refused"
    [refused] = run("--refused")
    assert refused.startswith("memory:b\t2\t2026-11-20")
    assert refused.endswith("\tnot this one")


def test_command_retries_drops_and_forgets(troubled, settings, work):
    assert run("--retry", "memory:b") == ["memory:b: 1 refused jobs will be retried"]
    work()
    assert run("--drop", "memory:b", "--job", "7") == ["memory:b: 0 refused jobs dropped"]
    assert run("--drop", "memory:b") == ["memory:b: 1 refused jobs dropped"]
    assert not RefusedJob.objects.exists()
    for arguments, problem in (
        (["--forget", "memory:a"], "still in ARCHIVE_SINKS"),
        (["--retry", "x"], "not found"),
    ):
        with pytest.raises(CommandError, match=problem):
            run(*arguments)
    settings.ARCHIVE_SINKS = ["memory:b"]
    assert run("--forget", "memory:a") == ["memory:a: removed"]
    assert len(run()) == 1


def test_health_page_shows_lag_error_and_refused_jobs(client, admin, troubled):
    SinkState.objects.filter(failures=1).update(retry_at=timezone.now() + timedelta(minutes=1))
    client.force_login(admin)
    page = client.get("/health/").content.decode()
    for text in (
        "memory:a",
        "connection refused",
        "unreachable",
        "retrying in",
        "rejects job 2 of alps: not this one",
    ):
        assert text in page
    assert "3 jobs (" in page


def test_metrics_count_what_sinks_lack(client, admin, troubled):
    client.force_login(admin)
    lines = client.get("/metrics").content.decode().splitlines()
    assert 'opsportal_sink_behind{sink="memory:a"} 3.0' in lines
    assert 'opsportal_sink_written_total{sink="memory:b"} 2.0' in lines
    assert 'opsportal_sink_refused{sink="memory:b"} 1.0' in lines
    assert "opsportal_intake_jobs 3.0" in lines


def test_queries_of_the_health_page_do_not_grow_with_jobs(
    client, admin, sinks, work, django_assert_max_num_queries
):
    sinks[0].refuses = {str(n) for n in range(1, 30)}
    accept_each(*([n] for n in range(1, 40)))
    work()
    client.force_login(admin)
    client.get("/health/")
    with django_assert_max_num_queries(30):
        client.get("/health/")


def test_admin_retries_and_drops_for_those_who_may(client, admin, shifter, troubled):
    def act(action, *names):
        keys = SinkState.objects.filter(name__in=names).values_list("pk", flat=True)
        data = {"action": action, "_selected_action": [*keys], "confirmed": "yes"}
        page = client.post("/admin/archive/sinkstate/", data, follow=True)
        return [str(message) for message in page.context["messages"]]

    client.force_login(admin)
    assert "not this one" in client.get("/admin/archive/refusedjob/").content.decode()
    assert act("retry", "memory:b") == ["memory:b: 1 rejected jobs will be retried."]
    assert act("forget", "memory:a")[0].startswith("The sink memory:a is still in ARCHIVE_SINKS.")
    assert act("drop", "memory:b") == ["memory:b: 0 rejected jobs dropped."]
    assert state(troubled[1]).deliveries.count() == 1
    client.force_login(shifter)
    client.post("/admin/archive/sinkstate/", {"action": "forget"}, follow=True)
    assert client.get("/admin/archive/sinkstate/").status_code in {302, 403}
