"""Requests that tests insert equal those that the services move."""

import pytest
from django.apps import apps
from django.db import connection, transaction

from apps.production.enums import RequestState
from apps.production.models import Request
from tests.factories.requests import request_in, request_moved_to, stage
from tests.factories.statusboard import service

#: Names of values that come from a sequence of the database, which a rollback does not reset.
COUNTED = {
    "id",
    "event_id",
    "request_id",
    "run_id",
    "superseded_by_id",
    "target_id",
    "tie",
    "arrival",
    "waiver",
}


def uncounted(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {name: uncounted(part) for name, part in value.items() if name not in COUNTED}


def written_tables() -> dict[str, list[object]]:
    """Return all rows of each table to which this test wrote, in the order of their keys."""
    written = "n_tup_ins + n_tup_upd + n_tup_del > 0"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT relname FROM pg_stat_xact_user_tables WHERE {written}")
        tables = {table for (table,) in cursor.fetchall()}
    return {
        model._meta.label: [uncounted(row) for row in model._base_manager.order_by("pk").values()]
        for model in apps.get_models()
        if model._meta.db_table in tables
    }


@pytest.mark.parametrize("state", RequestState.values)
def test_inserted_request_equals_a_moved_one(nova, liaison, approver, state):
    """Beside one that is in the queue already."""
    people = {"by": liaison, "experiment": nova, "approver": approver}
    request_in("queued", **people, title="Cosmic rays", stages=(stage("cosmics"),))
    with transaction.atomic():
        request_moved_to(state, **people)
        moved = written_tables()
        transaction.set_rollback(True)

    request = request_in(state, **people)

    inserted = written_tables()
    assert [row["state"] for row in inserted["production.Request"]][:2] == ["queued", state]
    assert inserted.keys() == moved.keys()
    for table, rows in moved.items():
        assert inserted[table] == rows
    stored = Request.objects.get(pk=request.pk)
    for field in Request._meta.concrete_fields:
        assert getattr(request, field.attname) == getattr(stored, field.attname)


def test_inserted_stages_have_the_services_of_moved_ones(nova, liaison, approver, at):
    service("samweb", at)
    service("cvmfs", at)
    stages = (stage("generation", services=("samweb", "cvmfs")), stage("simulation"))
    content = {"stages": stages}
    people = {"by": liaison, "experiment": nova, "approver": approver}
    with transaction.atomic():
        request_moved_to("draft", **people, **content)
        moved = written_tables()
        transaction.set_rollback(True)

    request = request_in("draft", **people, **content)

    inserted = written_tables()
    first, second = request.stages.all()
    assert {needed.slug for needed in first.services.all()} == {"samweb", "cvmfs"}
    assert not second.services.exists()
    assert inserted.keys() == moved.keys()
    for table, rows in moved.items():
        assert inserted[table] == rows
