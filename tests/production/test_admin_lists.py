"""The back office over requests, submissions and notifications: everything is there, found,
and cheap to list.
"""

from datetime import timedelta

from django.apps import apps
from django.contrib import admin as back_office
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.accounts.models import Experiment
from apps.core.domain.events import publish
from apps.core.models import Event
from apps.datasets.models import FileTotals, InputFile, OutputFile
from apps.notifications.models import Follow, Message, Notification, Preferences, Rule, Webhook
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS, set_priority
from apps.production.enums import Verb
from apps.production.models import (
    ApprovalGroup,
    ApprovalRule,
    Attention,
    Comment,
    DatasetPart,
    Delegation,
    ExperimentShare,
    FormKey,
    Hold,
    OutputReport,
    QueueEntry,
    QueueState,
    Reminder,
    Request,
    RequestCounter,
    RequestLink,
    RequestRevision,
    RequestTemplate,
    ShareUse,
    Signature,
    Stage,
    StageAcceptance,
    StageCounts,
    StageHistory,
    StageLocation,
    WorkflowType,
    WorkflowVersion,
)
from apps.submission.models import (
    Assignment,
    DebugProfile,
    FilesCheck,
    KnownDatabase,
    RetryBatch,
    RetryJob,
    StageScouts,
    Submission,
    UnknownArray,
)
from tests.factories import approvals, clusters, jobs
from tests.factories.people import person
from tests.factories.requests import AT, draft, request_in

MODELS = [
    model
    for label in ("production", "submission", "notifications")
    for model in apps.get_app_config(label).get_models()
    if not model._meta.auto_created
]
#: Models of which there is one row, or none that anybody would look for.
ALONE = {QueueState}


def of_production(number: int, request: Request, by, other) -> None:
    stage, experiment = request.stages.get(position=0), request.experiment
    kind = WorkflowType.objects.create(key=f"kind_{number}", experiment=experiment)
    WorkflowVersion.objects.create(
        type=kind, number=1, title="Kind", declaration="x", created_at=AT, created_by="x"
    )
    group = approvals.group(f"Group {number}", experiment=experiment)
    approvals.rule(group, workflow=kind, experiment=experiment)
    Delegation.objects.create(
        from_user=by,
        to_user=other,
        group=group,
        from_at=AT,
        until_at=AT + timedelta(days=1),
        created_at=AT,
    )
    Reminder.objects.create(request=request, state="queued", since=AT, at=AT)
    later = draft(by, experiment)
    share = {"first": 0, "last": 1, "total": 2}
    DatasetPart.objects.create(
        request=later, split_from=request, name="n", whole="w", due_at=AT, **share
    )
    RequestLink.objects.create(kind="split", earlier=request, later=later, at=AT, by="x")
    FormKey.objects.create(author=by, key="k", request=request)
    Comment.objects.create(request=request, place="x", text="x", by=by, at=AT)
    RequestTemplate.objects.create(
        name="T",
        experiment=experiment,
        workflow_key="general",
        workflow_number=1,
        content={},
        saved_at=AT,
        saved_by="x",
    )
    StageHistory.objects.create(
        request=request,
        experiment=experiment,
        name="a",
        attempts=1,
        completed=1,
        core_seconds=1,
        completed_wall_seconds=1,
        wall_seconds=[],
        memory_bytes=[],
        per_day=[],
        last_ended_at=AT,
    )
    Attention.objects.create(request=request, kind="late", since=AT, words="x")
    Hold.objects.create(stage=stage, reason="x", at=AT, by=other)
    OutputReport.objects.create(stage=stage, key="k", by="x", at=AT)
    StageCounts.objects.get_or_create(stage=stage)
    StageLocation.objects.create(stage=stage, at=AT, by="x")
    second = request.stages.get(position=1)
    StageAcceptance.objects.create(
        stage=second, jobs_asked=2, jobs_completed=1, reason="x", at=AT, by="x"
    )
    QueueEntry.objects.get_or_create(
        request=request,
        defaults={
            "is_queued": True,
            "points": 0,
            "sort_key": 0,
            "tie": 0,
            "sized_at": AT,
            "sized_version": 1,
        },
    )
    ExperimentShare.objects.create(experiment=experiment, weight=1, by="x", at=AT)
    ShareUse.objects.create(experiment=experiment, core_seconds=1, days=1, as_of=AT)


def of_submission(number: int, request: Request) -> None:
    cluster = clusters.cluster(f"c{number}")
    FilesCheck.objects.create(request=request, version=1, error="x", checked_at=AT)
    Assignment.objects.create(request=request, cluster=cluster, assigned_at=AT, assigned_by="x")
    Submission.objects.create(
        request=request,
        cluster=cluster,
        number=1,
        position=0,
        stage_name="generation",
        first=0,
        tasks=1,
        state="failed",
        due_at=AT,
        created_at=AT,
        created_by="x",
    )
    StageScouts.objects.create(
        request=request, position=0, allowed=10, usual_rate=0.2, started_at=AT
    )
    KnownDatabase.objects.create(identity=f"1/{number}", noticed_at=AT, seen_at=AT)
    UnknownArray.objects.create(
        cluster=cluster,
        spool_id="4711",
        request=request,
        position=0,
        submitted_at=AT,
        noticed_at=AT,
    )
    stage = request.stages.all()[0]
    InputFile.objects.create(stage=stage, name="a.root", number=0, changed_at=AT)
    OutputFile.objects.create(stage=stage, key="1_0", name="b.root", size_bytes=1, at=AT)
    FileTotals.objects.create(stage=stage, files=1, waiting=1)
    DebugProfile.objects.create(name=f"profile {request.pk}")
    batch = RetryBatch.objects.create(
        title="x", step=1, pause_minutes=1, created_at=AT, created_by="x", due_at=AT
    )
    RetryJob.objects.create(batch=batch, job=jobs.row(cluster, at=AT))


def of_notifications(request: Request, by) -> None:
    event = publish(kind="request.hold", target=request, by="x", at=AT)
    Preferences.objects.create(user=by)
    Rule.objects.create(user=by, group="turn", channel="mail", when="never")
    Follow.objects.create(user=by, request=request, level="watching")
    hook = Webhook.objects.create(
        user=by, url="https://example.org/x", created_at=AT, created_by=by
    )
    message = Message.objects.create(
        channel="webhook", webhook=hook, event=event, created_at=AT, due_at=AT
    )
    Notification.objects.create(
        user=by, event=event, request=request, group="turn", at=AT, message=message
    )


def one_of_each(number: int) -> Request:
    """Make a row of each model, each with an experiment, a request and people of its own."""
    experiment = Experiment.objects.create(key=f"EXP{number}", name=f"Experiment {number}")
    by, other = (
        person(f"liaison-{number}", ("liaison", experiment)),
        person(f"opg-{number}", ("approver", None)),
    )
    request = request_in("queued", by=by, experiment=experiment, approver=other)
    of_production(number, request, by, other)
    of_submission(number, request)
    of_notifications(request, by)
    return request


def queries(client, address: str) -> int:
    with CaptureQueriesContext(connection) as asked:
        answer = client.get(address)
    assert answer.status_code == 200, address
    return len(asked)


def test_every_model_is_there_with_search_and_filters():
    registered = back_office.site._registry
    lacking = [
        model.__name__
        for model in MODELS
        if model not in registered or (model not in ALONE and not registered[model].search_fields)
    ]
    assert lacking == []
    assert registered[Signature].list_filter
    assert registered[RequestCounter].search_fields


def test_lists_and_pages_ask_no_more_for_more_rows(admin, browse, monkeypatch):
    monkeypatch.setattr(back_office.site, "enable_nav_sidebar", True)
    client = browse(admin)
    one_of_each(1)
    lists = {
        model: reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        for model in MODELS
    }
    client.get(lists[Request])
    few = {model: queries(client, address) for model, address in lists.items()}
    empty = {model.__name__ for model in MODELS if not model.objects.exists()} - {"QueueState"}
    assert empty == set()

    for number in (2, 3):
        one_of_each(number)

    more = {model: queries(client, address) for model, address in lists.items()}
    assert {
        model.__name__: (few[model], more[model]) for model in MODELS if more[model] > few[model]
    } == {}


def test_pages_and_searches_of_every_model_open_and_change_nothing(admin, browse):
    client, editable = (
        browse(admin),
        {WorkflowType, ApprovalGroup, ApprovalRule, ExperimentShare, DebugProfile},
    )
    one_of_each(1)
    for model in MODELS:
        row, name = (
            model.objects.order_by("pk").last(),
            f"admin:{model._meta.app_label}_{model._meta.model_name}",
        )
        assert client.get(reverse(f"{name}_changelist"), {"q": "EXP1 liaison"}).status_code == 200
        if row is None:
            continue
        page = client.get(reverse(f"{name}_change", args=[row.pk]))
        assert (page.status_code, "_save" in page.content.decode()) == (200, model in editable), (
            model
        )
        if model not in editable:
            assert client.post(reverse(f"{name}_change", args=[row.pk]), {}).status_code == 403
            assert client.get(reverse(f"{name}_add")).status_code == 403
        if model not in {ApprovalRule, DebugProfile}:
            # Of a group that somebody has handed over, the page says what to do instead.
            code = 200 if model is ApprovalGroup else 403
            assert (
                client.post(reverse(f"{name}_delete", args=[row.pk]), {"post": "yes"}).status_code
                == code
            ), model
            assert model.objects.filter(pk=row.pk).exists()


def test_who_must_sign_is_changed_with_an_event(admin, browse, nova):
    client = browse(admin)
    client.post("/admin/production/approvalgroup/add/", {"name": "Physics", "role": "approver"})
    rule = approvals.rule(experiment=nova)
    client.post(f"/admin/production/approvalrule/{rule.pk}/delete/", {"post": "yes"})
    assert not ApprovalRule.objects.exists()
    events = Event.objects.filter(kind__startswith="approval_").order_by("pk")
    assert list(events.values_list("kind", "actor")) == [
        ("approval_group.saved", "admin-one"),
        ("approval_rule.deleted", "admin-one"),
    ]


def test_reason_page_says_what_each_would_become_and_leaves_out_what_is_not_possible(
    admin, browse, nova, liaison
):
    from apps.accounts.domain.roles import grant_role

    grant_role(user=admin, role="approver", experiment=None, by="test", at=AT)
    opg = person("opg-x", ("approver", None))
    waiting = request_in("awaiting_approval", by=liaison, experiment=nova, approver=opg)
    running = request_in("running", by=liaison, experiment=nova, approver=opg)
    both = {"_selected_action": [waiting.pk, running.pk]}
    page = (
        browse(admin)
        .post("/admin/production/request/", {"action": "approve", **both})
        .content.decode()
    )
    assert "“awaiting approval” becomes “approved”." in page
    assert "<b>not possible:</b> its state is “running”." in page
    assert f'value="{running.pk}"' not in page

    page = (
        browse(admin)
        .post("/admin/production/request/", {"action": "hold", **both})
        .content.decode()
    )
    assert "becomes “on hold”, with a reason." in page


def test_person_without_the_role_is_told_before_anything_is_asked(
    admin, browse, nova, liaison, approver
):
    waiting = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    sent = {"action": "reject", "_selected_action": [waiting.pk]}
    page = browse(admin).post("/admin/production/request/", sent).content.decode()
    assert "<b>not possible:</b> required role: " in page
    assert "This action is not possible for any of them" in page
    assert "<textarea" not in page


def test_action_on_what_somebody_changed_meanwhile_is_refused(
    admin, browse, nova, liaison, approver
):
    from apps.accounts.domain.roles import grant_role

    grant_role(user=admin, role="approver", experiment=None, by="test", at=AT)
    queued = request_in("queued", by=liaison, experiment=nova, approver=approver)
    seen = queued.version
    set_priority(request=Request.objects.get(), priority=9, by=approver, at=AT, reason="soon")
    sent = {
        "action": "hold",
        "_selected_action": [queued.pk],
        "reason": "x",
        f"version-{queued.pk}": seen,
    }
    page = browse(admin).post("/admin/production/request/", sent, follow=True).content.decode()
    assert "was changed by opg-one in the meantime" in page
    assert Request.objects.get().state == "queued"


def test_supersede_names_the_successor(admin, browse, nova, liaison, approver):
    from apps.accounts.domain.roles import grant_role

    grant_role(user=admin, role="approver", experiment=None, by="test", at=AT)
    queued, other = (
        request_in("queued", by=liaison, experiment=nova, approver=approver),
        draft(liaison, nova),
    )
    sent = {"action": "supersede", "_selected_action": [queued.pk]}
    assert (
        "Key of the request"
        in browse(admin).post("/admin/production/request/", sent).content.decode()
    )
    sent |= {"reason": "twice", "extra": other.key}
    browse(admin).post("/admin/production/request/", sent, follow=True)
    assert Request.objects.get(pk=queued.pk).superseded_by == other


def test_hold_is_lifted_and_refused_jobs_are_sent_again_by_their_services(admin, browse):
    from apps.accounts.domain.roles import grant_role

    request = one_of_each(1)
    MOVE_FUNCTIONS[Verb.START](request=request, by=person("opg-y", ("approver", None)), at=AT)
    hold, jobs = Hold.objects.get(), Submission.objects.get()
    acts = [("production/hold", "lift", hold), ("submission/submission", "send_again", jobs)]
    for path, action, row in acts:
        sent = {"action": action, "_selected_action": [row.pk], "reason": "it is mended"}
        page = browse(admin).post(f"/admin/{path}/", sent, follow=True).content.decode()
        assert "Only approvers and shifters" in page
    grant_role(user=admin, role="shifter", experiment=None, by="test", at=AT)
    for path, action, row in acts:
        sent = {"action": action, "_selected_action": [row.pk]}
        page = (
            browse(type(admin).objects.get(pk=admin.pk))
            .post(f"/admin/{path}/", sent)
            .content.decode()
        )
        assert "<textarea" in page
        browse(type(admin).objects.get(pk=admin.pk)).post(
            f"/admin/{path}/", sent | {"reason": "it is mended"}
        )
    assert Hold.objects.get().lifted_by == admin
    assert Submission.objects.get().state == "planned"


def test_people_without_the_back_office_are_not_let_in(browse, approver):
    for model in (Request, Stage, RequestRevision, RequestTemplate):
        address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        assert browse(approver).get(address).status_code == 302
