"""`manage.py events export`: the audit trail for other systems."""

import io
import json
import stat
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from apps.core.domain.events import publish
from apps.core.models import Event

pytestmark = pytest.mark.django_db


@pytest.fixture
def trail(nova, approver):
    """Four events of NOvA: two by the approver, one of them a moment ago, and two by the portal."""
    now = timezone.now()
    for by, minutes in ((approver, 90), ("opsportal", 80), ("opsportal", 70), (approver, 1)):
        publish(
            kind="share.set",
            target=nova,
            by=by,
            at=now - timedelta(minutes=minutes),
            data={"minutes": minutes},
        )
    return list(Event.objects.order_by("pk"))[-4:]


def exported(*options):
    output = io.StringIO()
    call_command("events", "export", *options, stdout=output)
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_settled_events_are_written_oldest_first(trail, nova):
    rows = exported("--after", str(trail[0].pk - 1))
    assert [row["id"] for row in rows] == [event.pk for event in trail[:3]]
    assert rows[0] == {
        "id": trail[0].pk,
        "at": trail[0].at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "actor": "opg-one",
        "kind": "share.set",
        "did": "set the share:  → ",
        "target_type": "accounts.experiment",
        "target_id": str(nova.pk),
        "target": str(nova),
        "old": "",
        "new": "",
        "reason": "",
        "data": {"minutes": 90},
    }


def test_an_export_goes_on_after_an_id_without_what_the_portal_did(trail):
    first = trail[0].pk
    assert [row["id"] for row in exported("--people", "--after", str(first - 1))] == [first]
    assert exported("--people", "--after", str(first)) == []


def test_times_limit_an_export(trail):
    since = trail[1].at.isoformat()
    until = trail[2].at.isoformat()
    assert [row["id"] for row in exported("--since", since, "--until", until)] == [trail[1].pk]
    assert exported("--until", "2020-01-01") == []


def test_kinds_limit_an_export(trail):
    assert exported("--kind", "request.late") == []
    assert len(exported("--kind", "share.set", "--kind", "request.late")) == 3
    with pytest.raises(CommandError, match="no kind of events named x"):
        exported("--kind", "x")


def test_time_that_is_none_is_named():
    with pytest.raises(CommandError, match="yesterday is no time"):
        exported("--since", "yesterday")


def test_file_is_new_and_only_its_owners(trail, tmp_path):
    path = tmp_path / "events.jsonl"
    output = io.StringIO()
    call_command("events", "export", "--file", str(path), stdout=output)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert output.getvalue() == f"{len(rows)} events are in {path}.\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(CommandError, match="File exists"):
        call_command("events", "export", "--file", str(path), stdout=output)
