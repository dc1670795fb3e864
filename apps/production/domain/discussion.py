"""Discussion of a request: threads about it or one of its fields, with mentions."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from apps.accounts.enums import OPG_ROLES
from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.production.domain.content.model import FIELDS
from apps.production.domain.types.fields import CORE
from apps.production.domain.types.versions import workflow_of
from apps.production.models import Comment, Request

MAX_TEXT = 5_000
#: The maximum number of comments per request.
MAX_COMMENTS = 1_000
#: The maximum number of comments per user within `RATE_TIME`.
RATE = 30
RATE_TIME = timedelta(minutes=10)
MAX_MENTIONS = 20
_MENTION = re.compile(r"(?<![\w@./+-])@([\w.@+-]{1,150})")


@dataclass
class Thread:
    first: Comment
    answers: list[Comment] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether the thread is unresolved. A withdrawn comment without replies is not open."""
        return self.first.resolved_at is None and (
            self.first.withdrawn_at is None or bool(self.answers)
        )

    @property
    def comments(self) -> list[Comment]:
        return [self.first, *self.answers]


def threads_of(request: Request) -> list[Thread]:
    """Return all threads, oldest first, in one query."""
    threads: dict[int, Thread] = {}
    for comment in request.comments.select_related("by", "resolved_by").order_by("id"):
        if comment.thread_id is None:
            threads[comment.pk] = Thread(comment)
        else:
            threads[comment.thread_id].answers.append(comment)
    return list(threads.values())


def fields_of(request: Request) -> list[tuple[str, str]]:
    """Return path and label of every field that can have comments, the request as a whole first."""
    workflow = workflow_of(request.workflow)
    fields = [("", "The request as a whole")]
    fields += [(name, name.replace("_", " ").capitalize()) for name in FIELDS]
    fields += [(f"arguments.{argument.name}", argument.title) for argument in workflow.arguments]

    for stage in request.stages.all():
        path = f"stages.{stage.position}"
        label = f"Stage {stage.position + 1}"
        if stage.name:
            label += f" {stage.name}"
        fields.append((path, label))
        for argument in workflow.stage(stage.kind).arguments:
            if argument.name in CORE:
                inner = argument.name
            else:
                inner = f"arguments.{argument.name}"
            fields.append((f"{path}.{inner}", f"{label} › {argument.title}"))
    return fields


def people_for(request: Request, names: Iterable[str]) -> list[User]:
    """Return the users among these usernames who can see the request."""
    sees = Q(memberships__experiment=request.experiment_id)
    sees |= Q(memberships__experiment=None, memberships__role__in=OPG_ROLES)
    return list(
        User.objects.filter(sees, username__in=list(names), is_active=True)
        .distinct()
        .order_by("username")
    )


def mentions_in(text: str) -> list[str]:
    """Return the names mentioned as `@name` in a text, without duplicates."""
    return list(dict.fromkeys(name.rstrip(".@+-") for name in _MENTION.findall(text)))[
        :MAX_MENTIONS
    ]


@transaction.atomic
def write_comment(
    *,
    request: Request,
    text: str,
    by: User,
    at: datetime,
    path: str = "",
    thread: Comment | None = None,
) -> Comment:
    """Comment on a request or one of its fields, or reply in a thread, which reopens it.

    The event names the mentioned users who can see the request. Raises `NotAllowed`,
    `InvalidFields`.
    """
    _check_sees(request, by)
    label = dict(fields_of(request)).get(path)
    problems = _problems(text)
    if thread is not None:
        thread = Comment.objects.select_for_update(of=("self",)).get(
            pk=thread.thread_id or thread.pk
        )
        path = thread.field
        label = thread.place
    if label is None or (thread is not None and thread.request_id != request.pk):
        problems["field"] = ["This request has no such field."]

    # Lock the request, so that the limits hold under concurrent writes.
    Request.objects.select_for_update().get(pk=request.pk)
    if request.comments.count() >= MAX_COMMENTS:
        problems.setdefault("text", []).append(
            f"This request has reached the maximum of {MAX_COMMENTS:,} comments."
        )
    if Comment.objects.filter(by=by, at__gt=at - RATE_TIME).count() >= RATE:
        problems.setdefault("text", []).append(
            f"You wrote {RATE} comments within ten minutes. Try again later."
        )
    if problems:
        raise InvalidFields(problems)

    comment = Comment.objects.create(
        request=request,
        thread=thread,
        field=path,
        place=(label or "")[:200],
        text=text.strip(),
        by=by,
        at=at,
    )
    if thread is not None and thread.resolved_at is not None:
        Comment.objects.filter(pk=thread.pk).update(resolved_by=None, resolved_at=None)
    _publish("request.commented", comment, by, at, mentioned=mentions_in(text))
    return comment


@transaction.atomic
def edit_comment(*, comment: Comment, text: str, by: User, at: datetime) -> Comment:
    """Edit the user's own comment. Newly mentioned users are notified.

    Raises `NotAllowed`, `InvalidFields`, `InvalidTransition` if it is withdrawn.
    """
    comment = _lock_own_comment(comment, by)
    if problems := _problems(text):
        raise InvalidFields(problems)
    before = mentions_in(comment.text)
    comment.text = text.strip()
    comment.edited_at = at
    comment.save(update_fields=["text", "edited_at"])
    _publish(
        "request.comment_edited",
        comment,
        by,
        at,
        mentioned=[name for name in mentions_in(text) if name not in before],
    )
    return comment


@transaction.atomic
def withdraw_comment(*, comment: Comment, by: User, at: datetime) -> Comment:
    """Withdraw the user's own comment: its text is deleted, its place in the thread remains.

    Raises `NotAllowed`, `InvalidTransition`.
    """
    comment = _lock_own_comment(comment, by)
    comment.text = ""
    comment.withdrawn_at = at
    comment.save(update_fields=["text", "withdrawn_at"])
    _publish("request.comment_withdrawn", comment, by, at)
    return comment


@transaction.atomic
def resolve_thread(*, comment: Comment, by: User, at: datetime, resolved: bool = True) -> Comment:
    """Resolve or reopen a thread. Raises `NotAllowed`, `InvalidTransition`."""
    first = Comment.objects.select_for_update(of=("self",)).get(pk=comment.thread_id or comment.pk)
    _check_sees(first.request, by)
    if (first.resolved_at is not None) == resolved:
        raise InvalidTransition(f"This thread is already {'resolved' if resolved else 'open'}.")
    first.resolved_by, first.resolved_at = (by, at) if resolved else (None, None)
    first.save(update_fields=["resolved_by", "resolved_at"])
    _publish("request.comment_resolved" if resolved else "request.comment_reopened", first, by, at)
    return first


def _lock_own_comment(comment: Comment, by: User) -> Comment:
    current: Comment = (
        Comment.objects.select_for_update(of=("self",)).select_related("request").get(pk=comment.pk)
    )
    _check_sees(current.request, by)
    if current.by_id != by.pk:
        raise NotAllowed("Only the author can change a comment.")
    if current.withdrawn_at is not None:
        raise InvalidTransition("This comment is withdrawn.")
    return current


def _check_sees(request: Request, by: Any) -> None:
    if not scope_of(by).sees(request.experiment_id):
        raise NotAllowed("You do not have access to this request.")


def _problems(text: str) -> dict[str, list[str]]:
    if not text.strip():
        return {"text": ["Enter a comment."]}
    if len(text) > MAX_TEXT:
        return {"text": [f"Use at most {MAX_TEXT:,} characters. This text has {len(text):,}."]}
    return {"text": ["Remove the NUL character."]} if "\0" in text else {}


def _publish(
    kind: str, comment: Comment, by: User, at: datetime, mentioned: Iterable[str] = ()
) -> None:
    """Publish an event without the text, because events are permanent and comments are not."""
    data = {
        "comment": comment.pk,
        "thread": comment.thread_id or comment.pk,
        "field": comment.field,
        "place": comment.place,
        "mentioned": [person.username for person in people_for(comment.request, mentioned)],
    }
    publish(kind=kind, target=comment.request, by=by, at=at, data=data)
