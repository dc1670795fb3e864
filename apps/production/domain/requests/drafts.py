"""Create and save requests. Each function publishes an event."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import transaction

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import is_liaison
from apps.core.domain.background import enqueue
from apps.core.domain.events import events_of, publish
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.production.domain.actors import may
from apps.production.domain.approvals import signatures
from apps.production.domain.checks.facts import basic_facts
from apps.production.domain.checks.report import check_shape, messages_of
from apps.production.domain.content.changes import (
    ChangeReview,
    may_change,
    review_changes,
    review_postponement,
)
from apps.production.domain.content.model import (
    FIELDS,
    STAGE_FIELDS,
    RequestContent,
    list_changes,
    values_of,
)
from apps.production.domain.content.revisions import MERGE_WINDOW, keep_revision
from apps.production.domain.content.stages import content_of
from apps.production.domain.lifecycle.steps import (
    MAX_CHANGES,
    apply_move,
    lock_request,
    run_request_checks,
    state_text,
)
from apps.production.domain.priority import rescoring
from apps.production.domain.types.versions import version_of
from apps.production.enums import EDITABLE, SCORED, SIGNED, Actor, RequestState, Verb
from apps.production.models import FormKey, Request, RequestCounter, Stage
from apps.statusboard.models import Service

#: The key that identifies the draft in the form of a new request.
_FORM_KEY = re.compile(r"[A-Za-z0-9]{16,64}")


@transaction.atomic
def create_draft(
    *,
    experiment: Experiment,
    content: RequestContent,
    by: User,
    at: datetime,
    origin: dict[str, Any] | None = None,
    editor_ids: Iterable[int] = (),
) -> Request:
    """Create a draft with the experiment's next key.

    `origin` is event data that names the requests it was made from; the caller has checked the
    permissions for these. `editor_ids` are the users who wrote their content.

    Raises `NotAllowed`, `InvalidFields`.
    """
    if origin is None and not is_liaison(by, experiment.pk):
        raise NotAllowed(f"Only liaisons of {experiment} can create its requests.")
    _check_shape(content, at)
    request = Request.objects.create(
        key=_next_key(experiment),
        experiment=experiment,
        workflow=version_of(content.workflow, experiment=experiment, at=at),
        arguments=dict(content.arguments),
        created_by=by,
        created_at=at,
        editor_ids=sorted({by.pk, *editor_ids}),
        **values_of(content, FIELDS),
    )
    write_stages(request, content)
    keep_revision(request=request, by=by, at=at)
    publish(kind="request.created", target=request, by=by, at=at, new=request.state, data=origin)
    return request


@transaction.atomic
def save_draft(
    *,
    request: Request,
    content: RequestContent,
    version: int,
    by: User,
    at: datetime,
    reason: str = "",
    typing: bool = False,
    experiment: Experiment | None = None,
) -> Request:
    """Save the content of a request that the user saw at `version`, if it changed.

    A draft that was never submitted can change its workflow type, and its experiment, which changes
    its key. A material change after submission withdraws all signatures and starts the checks
    again. With a reason, the deadline alone can be postponed until the request is closed. With
    `typing`, consecutive saves of a draft by one user make one event; only drafts can be saved this
    way.

    Raises `NotAllowed`, `InvalidTransition` if the request is no longer editable, `InvalidFields`,
    and `StaleState` if it changed since that version.
    """
    if not may(by, Actor.LIAISON, request):
        raise NotAllowed(f"Only liaisons of {request.experiment} can edit its requests.")
    lock_request(request, version)
    old = content_of(request)
    postponement = None
    if reason.strip():
        postponement = review_postponement(request.state, old, content)
    if postponement is None:
        _check_editable(request, old, typing)
    _check_shape(content, at)
    review = postponement or review_changes(request.state, old, content)
    placed = _change_experiment_and_type(request, content, experiment or request.experiment, by, at)
    changes = [*placed, *review.changes]
    if not changes:
        return request
    if request.state not in EDITABLE:
        _check_change(request, review, content, by, at)

    data: dict[str, Any] = {
        "changes": [_shortened(change) for change in changes[:MAX_CHANGES]],
        "count": len(changes),
    }
    _write_content(request, content)
    if review.material:
        data["withdrawn"] = signatures.withdraw_all(
            request=request, by=by, at=at, reason="The request was changed."
        )
    else:
        signatures.withdraw_of_requester(
            request=request, by=by, at=at, reason=f"{by} edited the request."
        )
    if review.material and request.state not in EDITABLE:
        _submit_change(request, by, at, reason, data)
        return request

    _store_edit(request, by, at)
    is_same_edit = typing and request.state == RequestState.DRAFT
    if not (is_same_edit and _edited_just_now(request, by, at)):
        publish(
            kind="request.edited", target=request, by=by, at=at, reason=reason.strip(), data=data
        )
    return request


def _submit_change(
    request: Request, by: User, at: datetime, reason: str, data: dict[str, Any]
) -> None:
    """Submit a request again after a material change, and start its checks."""
    # One statement sets the editors and clears the approver, who may be an editor now.
    apply_move(
        request,
        Verb.CHANGE,
        by=by,
        at=at,
        reason=reason,
        data=data,
        submitted_at=at,
        submitted_by=by,
        approved_at=None,
        approved_by=None,
        editor_ids=_editors_with(request, by),
    )
    keep_revision(request=request, by=by, at=at, submitted=True)
    enqueue("production.check_request", request_id=request.pk)


def _store_edit(request: Request, by: User, at: datetime) -> None:
    """Store the new version of a request that keeps its state."""
    request.version = request.version + 1
    request.editor_ids = _editors_with(request, by)
    request.save(update_fields=["version", "editor_ids"])
    if request.state in SCORED:
        rescoring.update_entry(request=request, at=at)
    keep_revision(request=request, by=by, at=at)


def _editors_with(request: Request, by: User) -> list[int]:
    return sorted({*request.editor_ids, by.pk})


@transaction.atomic
def save_new(
    *,
    experiment: Experiment,
    content: RequestContent,
    key: str,
    by: User,
    at: datetime,
    typing: bool = False,
) -> Request:
    """Create the draft of a new form, or update the draft that the same form created.

    A draft saved by a button is not updated: the user went back to the form. Sending the same
    content again returns that draft; other content creates a new draft.

    Raises the errors of `create_draft` and `save_draft`.
    """
    if not _FORM_KEY.fullmatch(key):
        return create_draft(experiment=experiment, content=content, by=by, at=at)
    FormKey.objects.get_or_create(author=by, key=key)
    form = FormKey.objects.select_for_update().get(author=by, key=key)
    made = form.request
    if made is not None:
        now = content_of(made)
        is_alike = made.experiment_id == experiment.pk and now.workflow == content.workflow
        if is_alike and not list_changes(now, content):
            return made
        if not form.by_button and made.version != form.version:
            raise StaleState(
                f"This form was saved as {made}, which changed since. Your change was not saved."
            )
    if made is None or form.by_button:
        made = create_draft(experiment=experiment, content=content, by=by, at=at)
    else:
        made = save_draft(
            request=made,
            content=content,
            version=form.version,
            by=by,
            at=at,
            typing=typing,
            experiment=experiment,
        )
    form.request = made
    form.version = made.version
    form.by_button = not typing
    form.save(update_fields=["request", "version", "by_button"])
    return made


def _next_key(experiment: Experiment) -> str:
    # Other transactions wait for the locked row. A rollback releases the number.
    counter, _ = RequestCounter.objects.select_for_update().get_or_create(experiment=experiment)
    counter.last += 1
    counter.save(update_fields=["last"])
    return f"{experiment.key}-{counter.last:04d}"


def _change_experiment_and_type(
    request: Request, content: RequestContent, experiment: Experiment, by: User, at: datetime
) -> list[dict[str, str]]:
    """Apply a new experiment, with a new key, and a new type to a draft; return the changes."""
    old_workflow = content_of(request).workflow
    is_moved = experiment.pk != request.experiment_id
    is_retyped = old_workflow.key != content.workflow.key
    if not (is_moved or is_retyped):
        return []
    if request.state != RequestState.DRAFT:
        raise InvalidTransition(
            f"{request} was submitted, so its experiment and workflow type are fixed."
        )

    changes = []
    if is_moved:
        changes.append(_change_experiment(request, experiment, by))
    request.workflow = version_of(content.workflow, experiment=experiment, at=at)
    if is_retyped:
        new_title = content.workflow.title
        changes.append({"path": "workflow", "old": old_workflow.title, "new": new_title})
    return changes


def _change_experiment(request: Request, experiment: Experiment, by: User) -> dict[str, str]:
    """Move a draft to another experiment, with a new key; return the change.

    The newest number of the old experiment is released, unless other users edited the draft under
    its old key: their open forms could overwrite the next request.
    """
    if not is_liaison(by, experiment.pk):
        raise NotAllowed(f"Only liaisons of {experiment} can create its requests.")
    old_experiment = request.experiment
    if request.cloned_from_id or request.links_back.exists():
        problem = (
            f"{request} was made from a request of {old_experiment}. Create a new request for "
            f"{experiment}."
        )
        raise InvalidFields({"experiment": [problem]})

    # Lock both rows in a fixed order, so that opposite moves do not deadlock.
    counters = RequestCounter.objects.filter(experiment__in=[old_experiment, experiment])
    list(counters.select_for_update().order_by("pk"))
    old_key = request.key
    if request.editor_ids == [by.pk]:
        number = int(old_key.rpartition("-")[2])
        newest = RequestCounter.objects.filter(experiment=old_experiment, last=number)
        newest.update(last=number - 1)
    request.experiment = experiment
    request.key = _next_key(experiment)
    return {
        "path": "experiment",
        "old": f"{old_experiment.key} ({old_key})",
        "new": f"{experiment.key} ({request.key})",
    }


def _edited_just_now(request: Request, by: User, at: datetime) -> bool:
    last = events_of(request).last()
    return (
        last is not None
        and last.kind == "request.edited"
        and last.actor == str(by)
        and at - last.at < MERGE_WINDOW
    )


def _check_editable(request: Request, content: RequestContent, typing: bool) -> None:
    if request.state not in EDITABLE and (typing or not may_change(request.state, content)):
        raise InvalidTransition(f"{request} is {state_text(request)} and can no longer be edited.")


def _shortened(change: dict[str, str]) -> dict[str, str]:
    return {name: text[:200] for name, text in change.items()}


def _check_change(
    request: Request, review: ChangeReview, content: RequestContent, by: User, at: datetime
) -> None:
    if review.refused:
        raise InvalidFields(review.refused)
    if request.state in SIGNED and not review.material and signatures.has_signed(request, by):
        raise NotAllowed(
            f"You signed {request}. Another liaison must make changes that need no new signatures."
        )
    touched = {change["path"] for change in review.changes}
    findings = [finding for finding in run_request_checks(request, at, content) if finding.blocks]
    if not review.material:
        findings = [finding for finding in findings if finding.path in touched]
    if problems := messages_of(findings):
        raise InvalidFields(problems)


def _check_shape(content: RequestContent, at: datetime) -> None:
    problems = check_shape(content, basic_facts(at))
    if problems:
        raise InvalidFields(problems)


def _write_content(request: Request, content: RequestContent) -> None:
    for name in FIELDS:
        setattr(request, name, getattr(content, name))
    request.arguments = dict(content.arguments)
    request.save(update_fields=[*FIELDS, "arguments", "experiment", "key", "workflow"])
    request.stages.filter(position__gte=len(content.stages)).delete()
    Stage.services.through.objects.filter(stage__request=request).delete()
    write_stages(request, content)


def write_stages(request: Request, content: RequestContent) -> None:
    """Write the stages of `content`, which have no services yet.

    A stage keeps the row of its position.
    """
    stored_stages = []
    for position, stage in enumerate(content.stages):
        stored_stage = Stage(
            request=request,
            position=position,
            kind=stage.kind,
            arguments=dict(stage.arguments),
            **values_of(stage, STAGE_FIELDS),
        )
        stored_stages.append(stored_stage)
    Stage.objects.bulk_create(
        stored_stages,
        update_conflicts=True,
        unique_fields=["request", "position"],
        update_fields=[*STAGE_FIELDS, "kind", "arguments"],
    )
    ids = dict(Service.objects.values_list("slug", "pk"))
    through = Stage.services.through
    needs = []
    for stored_stage, stage in zip(stored_stages, content.stages, strict=True):
        for slug in dict.fromkeys(stage.services):
            needs.append(through(stage_id=stored_stage.pk, service_id=ids[slug]))
    through.objects.bulk_create(needs)
    getattr(request, "_prefetched_objects_cache", {}).clear()
