"""What a filled portal of the first version holds arrives in this one: all migrations, over rows.

The other tests migrate an empty database, where a migration that cannot change a table with rows goes well.
"""

from datetime import UTC, date, datetime

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from apps.jobs.models import DirtyHour, Job
from apps.production.domain.requests.stages import content_of
from apps.production.models import Comment, Hold, Request, RequestRevision, RequestTemplate, Signature, Stage

AT = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)
FIRST = [("production", "0001_initial"), ("jobs", "0001_initial")]
BEFORE_PRIORITY = [("production", "0011_form_keys")]
#: The states of the first version, what each is called now, and the priority from 0 to 1000 that a request of it had.
STATES = {
    "draft": ("draft", None),
    "submitted": ("awaiting_approval", None),
    "changes_asked": ("changes_asked", None),
    "approved": ("queued", 1000),
    "rejected": ("rejected", None),
    "withdrawn": ("cancelled", 50),
    "done": ("done", 0),
}


@pytest.fixture
def earlier(django_db_setup, django_db_blocker):
    """An empty database stands in the place of that of the tests; returns a function that migrates it."""
    own = connection.settings_dict["NAME"]
    name = f"{own}_earlier"
    with django_db_blocker.unblock():
        _execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)', f'CREATE DATABASE "{name}"')
        connection.close()
        connection.settings_dict["NAME"] = name
        try:
            yield _migrate
        finally:
            connection.close()
            connection.settings_dict["NAME"] = own
            _execute(f'DROP DATABASE "{name}" WITH (FORCE)')
            connection.close()


def _execute(*statements):
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _migrate(targets=None):
    """Migrate to these, or these apps all the way; return the models as they are there."""
    executor = MigrationExecutor(connection)
    newest = [node for node in executor.loader.graph.leaf_nodes() if node[0] in ("production", "jobs")]
    return executor.migrate(targets or newest).apps.get_model


def _fill_first_version(model):
    """Write a request in each state with two stages, and two attempts at a job of one of them."""
    nova = model("accounts", "Experiment").objects.create(key="NOVA", name="NOvA")
    users = model("accounts", "User").objects
    writer, signer = users.create(username="writer"), users.create(username="signer")
    samweb = model("statusboard", "Service").objects.create(slug="samweb", name="SAM web")
    model("production", "RequestCounter").objects.create(experiment=nova, last=len(STATES))
    requests = {}
    for number, (state, (_, priority)) in enumerate(STATES.items(), start=1):
        sent, signed = state != "draft", state in ("approved", "done", "withdrawn")
        closed = state in ("rejected", "withdrawn", "done")
        requests[state] = request = model("production", "Request").objects.create(
            key=f"NOVA-{number:04d}",
            experiment=nova,
            title=f"It is {state}",
            purpose="For the freeze.",
            deadline=date(2026, 12, number),
            state=state,
            priority=priority,
            version=number,
            created_at=AT,
            created_by=writer,
            submitted_at=AT if sent else None,
            submitted_by=writer if sent else None,
            approved_at=AT if signed else None,
            approved_by=signer if signed else None,
            closed_at=AT if closed else None,
            closed_by=signer if closed else None,
        )
        for position, name in enumerate(("gen", "reco")):
            stage = model("production", "Stage").objects.create(
                request=request, position=position, name=name, release="v1", events=10**9, memory_bytes=4 * 10**9
            )
            stage.services.add(samweb)
    cluster = model("clusters", "Cluster").objects.create(name="alps", scheduler="slurm")
    same = {"cluster": cluster, "experiment": nova, "request": requests["done"], "request_key": requests["done"].key}
    for attempt, state in ((1, "failed"), (2, "completed")):
        model("jobs", "Job").objects.create(
            **same, stage="gen", job_id="7", raw_id=7, spool_id="7", attempt=attempt, state=state,
            submitted_at=AT, ended_at=AT, collected_at=AT,
        )  # fmt: skip


def _fill_before_priority(model):
    """Write what was added since to the request that is queued: said, kept, signed, and held."""
    request = model("production", "Request").objects.get(state="queued")
    signer = request.approved_by
    model("production", "Comment").objects.create(request=request, by=signer, at=AT, text="Why so few?")
    model("production", "RequestRevision").objects.create(
        request=request, version=1, content={"title": "Before"}, begun_at=AT, at=AT, by="writer"
    )
    model("production", "Signature").objects.create(
        request=request, group_name="OPG", by=signer, made_by=request.created_by, at=AT, version=1, content={}
    )
    model("production", "Hold").objects.create(
        experiment=request.experiment, by=signer, at=AT, reason="Disks are full."
    )
    model("production", "RequestTemplate").objects.create(
        experiment=request.experiment, name="Muons", workflow_key="general", workflow_number=1, content={},
        saved_at=AT, saved_by="writer",
    )  # fmt: skip


def test_rows_of_the_first_version_arrive_in_this_one(earlier):
    _fill_first_version(earlier(FIRST))
    _fill_before_priority(earlier(BEFORE_PRIORITY))
    earlier()

    requests = {request.title.removeprefix("It is "): request for request in Request.objects.order_by("key")}
    assert {state: request.state for state, request in requests.items()} == {
        old: new for old, (new, _) in STATES.items()
    }
    assert {request.key: request.version for request in requests.values()} == {f"NOVA-000{n}": n for n in range(1, 8)}
    assert {request.workflow.type.key for request in requests.values()} == {"general"}
    priorities = {state: request.priority for state, request in requests.items() if request.priority is not None}
    assert priorities == {"done": 1, "withdrawn": 5, "approved": 9}
    for request in requests.values():
        request.full_clean()  # it holds what this version's own constraints ask for
        first, second = content_of(request).stages
        assert (first.name, first.events, first.memory_bytes, first.services) == ("gen", 10**9, 4 * 10**9, ("samweb",))
        assert second.name == "reco"
    assert requests["done"].deadline == date(2026, 12, 7)

    queued = requests["approved"]
    assert Comment.objects.get(request=queued).text == "Why so few?"
    assert RequestRevision.objects.get(request=queued).content == {"title": "Before"}
    assert Signature.objects.get(request=queued).by.username == "signer"
    assert Hold.objects.get().reason == "Disks are full."
    assert RequestTemplate.objects.get().name == "Muons"

    assert list(Job.objects.order_by("attempt").values_list("state", "request__key", "stage")) == [
        ("failed", "NOVA-0007", "gen"),
        ("completed", "NOVA-0007", "gen"),
    ]
    assert AT.replace(minute=0) in DirtyHour.objects.values_list("hour", flat=True)  # its retries are counted anew
    assert Stage.objects.count() == 2 * len(STATES)
