"""Requests that tests insert equal those that the services move."""

import pytest
from django.apps import apps
from django.db import transaction

from apps.production.enums import RequestState
from apps.production.models import Request
from tests.factories.requests import request_in, request_moved_to, stage
from tests.factories.statusboard import service

#: Names of values that come from a sequence of the database, which a rollback does not reset.
COUNTED = {"id", "event_id", "request_id", "run_id", "superseded_by_id", "target_id", "tie", "arrival", "waiver"}


def uncounted(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {name: uncounted(part) for name, part in value.items() if name not in COUNTED}


def all_rows() -> dict[str, list[object]]:
    """Return the rows of each table in the order of their keys."""
    return {
        model._meta.label: [uncounted(row) for row in model._base_manager.order_by("pk").values()]
        for model in apps.get_models()
    }


@pytest.mark.parametrize("state", RequestState.values)
def test_inserted_request_equals_a_moved_one(nova, liaison, approver, state):
    """Beside one that is in the queue already."""
    people = {"by": liaison, "experiment": nova, "approver": approver}
    request_moved_to("queued", **people, title="Cosmic rays", stages=(stage("cosmics"),))
    with transaction.atomic():
        request_moved_to(state, **people)
        moved = all_rows()
        transaction.set_rollback(True)

    request = request_in(state, **people)

    inserted = all_rows()
    assert [row["state"] for row in inserted["production.Request"]][:2] == ["queued", state]
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
        moved = all_rows()
        transaction.set_rollback(True)

    request = request_in("draft", **people, **content)

    inserted = all_rows()
    first, second = request.stages.all()
    assert {needed.slug for needed in first.services.all()} == {"samweb", "cvmfs"}
    assert not second.services.exists()
    for table, rows in moved.items():
        assert inserted[table] == rows
