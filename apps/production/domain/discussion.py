"""The discussion of a request: threads about it or one of its fields, with mentions of people who may see it."""

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
#: Comments of one request.
MAX_COMMENTS = 1_000
#: Comments of one person within `RATE_TIME`.
RATE, RATE_TIME = 30, timedelta(minutes=10)
MAX_MENTIONS = 20
_MENTION = re.compile(r"(?<![\w@./+-])@([\w.@+-]{1,150})")


@dataclass
class Thread:
    """A comment with what was answered to it."""

    first: Comment
    answers: list[Comment] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Tell whether it waits for somebody: what was withdrawn and not answered does not."""
        return self.first.resolved_at is None and (self.first.withdrawn_at is None or bool(self.answers))

    @property
    def comments(self) -> list[Comment]:
        return [self.first, *self.answers]


def threads_of(request: Request) -> list[Thread]:
    """Return all threads, the oldest first, in one query."""
    threads: dict[int, Thread] = {}
    for comment in request.comments.select_related("by", "resolved_by").order_by("id"):
        if comment.thread_id is None:
            threads[comment.pk] = Thread(comment)
        else:
            threads[comment.thread_id].answers.append(comment)
    return list(threads.values())


def fields_of(request: Request) -> list[tuple[str, str]]:
    """Return path and words of every field that can be talked about, the request as a whole first."""
    workflow = workflow_of(request.workflow)
    found = [("", "The request as a whole")]
    found += [(name, name.replace("_", " ").capitalize()) for name in FIELDS]
    found += [(f"arguments.{argument.name}", argument.title) for argument in workflow.arguments]
    for stage in request.stages.all():
        path, words = f"stages.{stage.position}", f"Stage {stage.position + 1}{f' {stage.name}' if stage.name else ''}"
        found.append((path, words))
        for argument in workflow.stage(stage.kind).arguments:
            inner = argument.name if argument.name in CORE else f"arguments.{argument.name}"
            found.append((f"{path}.{inner}", f"{words} › {argument.title}"))
    return found


def people_for(request: Request, names: Iterable[str]) -> list[User]:
    """Return who of these usernames may see the request."""
    sees = Q(memberships__experiment=request.experiment_id)
    sees |= Q(memberships__experiment=None, memberships__role__in=OPG_ROLES)
    return list(User.objects.filter(sees, username__in=list(names), is_active=True).distinct().order_by("username"))


def mentions_in(text: str) -> list[str]:
    """Return the names that a text mentions as `@name`, each once."""
    return list(dict.fromkeys(name.rstrip(".@+-") for name in _MENTION.findall(text)))[:MAX_MENTIONS]


@transaction.atomic
def write_comment(
    *, request: Request, text: str, by: User, at: datetime, path: str = "", thread: Comment | None = None
) -> Comment:
    """Say something about a request or one of its fields, or answer in a thread, which opens it again.

    The event names who is mentioned and may see the request. Raises `NotAllowed`, `InvalidFields`.
    """
    _may_see(request, by)
    words = dict(fields_of(request)).get(path)
    problems = _problems(text)
    if thread is not None:
        thread = Comment.objects.select_for_update(of=("self",)).get(pk=thread.thread_id or thread.pk)
        path, words = thread.field, thread.place
    if words is None or (thread is not None and thread.request_id != request.pk):
        problems["field"] = ["There is no such field in this request."]
    Request.objects.select_for_update().get(pk=request.pk)  # so that the bounds hold when many write at once
    if request.comments.count() >= MAX_COMMENTS:
        problems.setdefault("text", []).append(f"A request takes {MAX_COMMENTS:,} comments, and this one has them.")
    if Comment.objects.filter(by=by, at__gt=at - RATE_TIME).count() >= RATE:
        problems.setdefault("text", []).append(f"You wrote {RATE} comments within ten minutes. Wait a little.")
    if problems:
        raise InvalidFields(problems)
    made = Comment.objects.create(
        request=request, thread=thread, field=path, place=(words or "")[:200], text=text.strip(), by=by, at=at
    )
    if thread is not None and thread.resolved_at is not None:
        _resolve(thread, by=None, at=None)
    _tell("request.commented", made, by, at, mentioned=mentions_in(text))
    return made


@transaction.atomic
def edit_comment(*, comment: Comment, text: str, by: User, at: datetime) -> Comment:
    """Change one's own comment; who is mentioned only now is told. Raises `NotAllowed`, `InvalidFields`."""
    comment = _own(comment, by)
    if problems := _problems(text):
        raise InvalidFields(problems)
    before, comment.text, comment.edited_at = mentions_in(comment.text), text.strip(), at
    comment.save(update_fields=["text", "edited_at"])
    _tell("request.comment_edited", comment, by, at, mentioned=[n for n in mentions_in(text) if n not in before])
    return comment


@transaction.atomic
def withdraw_comment(*, comment: Comment, by: User, at: datetime) -> Comment:
    """Take back one's own comment: its text is gone, its place stays. Raises `NotAllowed`, `InvalidTransition`."""
    comment = _own(comment, by)
    comment.text, comment.withdrawn_at = "", at
    comment.save(update_fields=["text", "withdrawn_at"])
    _tell("request.comment_withdrawn", comment, by, at)
    return comment


@transaction.atomic
def resolve_thread(*, comment: Comment, by: User, at: datetime, resolved: bool = True) -> Comment:
    """Say that a thread needs nothing more, or that it does again. Raises `NotAllowed`, `InvalidTransition`."""
    first = Comment.objects.select_for_update(of=("self",)).get(pk=comment.thread_id or comment.pk)
    _may_see(first.request, by)
    if (first.resolved_at is not None) == resolved:
        raise InvalidTransition(f"This is {'resolved' if resolved else 'open'} already.")
    _resolve(first, by=by if resolved else None, at=at if resolved else None)
    _tell("request.comment_resolved" if resolved else "request.comment_reopened", first, by, at)
    return first


def _resolve(first: Comment, *, by: User | None, at: datetime | None) -> None:
    first.resolved_by, first.resolved_at = by, at
    first.save(update_fields=["resolved_by", "resolved_at"])


def _own(comment: Comment, by: User) -> Comment:
    found: Comment = Comment.objects.select_for_update(of=("self",)).select_related("request").get(pk=comment.pk)
    _may_see(found.request, by)
    if found.by_id != by.pk:
        raise NotAllowed("Only who wrote this may change it.")
    if found.withdrawn_at is not None:
        raise InvalidTransition("This comment was withdrawn.")
    return found


def _may_see(request: Request, by: Any) -> None:
    if not scope_of(by).sees(request.experiment_id):
        raise NotAllowed("Only who sees the request may take part in its discussion.")


def _problems(text: str) -> dict[str, list[str]]:
    if not text.strip():
        return {"text": ["Write something."]}
    if len(text) > MAX_TEXT:
        return {"text": [f"At most {MAX_TEXT:,} characters; this has {len(text):,}."]}
    return {"text": ["Text cannot hold the character NUL."]} if "\0" in text else {}


def _tell(kind: str, comment: Comment, by: User, at: datetime, mentioned: Iterable[str] = ()) -> None:
    """Publish what happened. The text is not in the event, which stays for ever, so that it can be withdrawn."""
    request = comment.request
    data = {
        "comment": comment.pk,
        "thread": comment.thread_id or comment.pk,
        "field": comment.field,
        "place": comment.place,
        "mentioned": [person.username for person in people_for(request, mentioned)],
    }
    publish(kind=kind, target=request, by=by, at=at, data=data)
