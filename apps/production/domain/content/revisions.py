"""Revisions of a request: its content at submissions and saves, and their differences."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from apps.accounts.models import Principal, User
from apps.core.domain.events import events_of
from apps.production.domain.content.model import RequestContent, list_changes
from apps.production.domain.content.serialization import plain, read_plain
from apps.production.domain.content.stages import content_of, stored_content
from apps.production.domain.types.versions import workflow_of
from apps.production.enums import EDITABLE
from apps.production.events import DECISIONS
from apps.production.models import Request, RequestRevision

#: How many of the newest saves, and of the newest submissions, are kept for each request.
MAX_REVISIONS = 30
#: Consecutive saves by one user within this time are one revision.
MERGE_WINDOW = timedelta(minutes=10)


def keep_revision(
    *, request: Request, by: Principal, at: datetime, submitted: bool = False
) -> RequestRevision:
    """Store the current content in the caller's transaction, and delete surplus revisions."""
    content = plain(stored_content(request))
    kept = request.revisions.order_by("-id")
    last = kept.first()
    if (
        not submitted
        and last
        and not last.is_submitted
        and last.by == str(by)
        and at - last.begun_at < MERGE_WINDOW
    ):
        last.version = request.version
        last.at = at
        last.content = content
        last.save(update_fields=["version", "at", "content"])
        return last
    made = RequestRevision.objects.create(
        request=request,
        version=request.version,
        content=content,
        begun_at=at,
        at=at,
        by=str(by)[:150],
        is_submitted=submitted,
    )
    old = kept.filter(is_submitted=submitted).values_list("pk", flat=True)[
        MAX_REVISIONS : MAX_REVISIONS + 100
    ]
    RequestRevision.objects.filter(pk__in=list(old)).delete()
    return made


def own_version(request: Request, user: User) -> int:
    """Return the version at which a user last saved a request; 0 if no revision is by the user."""
    own = request.revisions.filter(by=user.username).order_by("-id")
    return own.values_list("version", flat=True).first() or 0


@dataclass(frozen=True)
class RevisionComparison:
    """The differences between two revisions. `new` is None for the current content."""

    old: RequestRevision
    new: RequestRevision | None
    changes: list[dict[str, str]]


def compare(
    request: Request, *, old: RequestRevision, new: RequestRevision | None
) -> RevisionComparison:
    if new is None:
        after = content_of(request)
    else:
        after = content_at(request, new)
    return RevisionComparison(old, new, list_changes(content_at(request, old), after))


def content_at(request: Request, revision: RequestRevision) -> RequestContent:
    return read_plain(revision.content, workflow_of(request.workflow))[0]


def last_reviewed(request: Request) -> RequestRevision | None:
    """Return the revision to compare the current one with.

    It is the newest one that was decided on before the last submission. Without a decision, it is
    the previous submission. With a single submission, it is that one, and without any, the oldest
    revision.
    """
    submitted = list(request.revisions.filter(is_submitted=True).defer("content").order_by("-id"))
    if not submitted:
        return request.revisions.order_by("id").first()
    if request.state in EDITABLE or len(submitted) == 1:
        return submitted[0]

    earlier = submitted[1:]
    decision = events_of(request).filter(kind__in=DECISIONS, at__lte=submitted[0].at).last()
    reviewed = [revision for revision in earlier if decision and revision.at <= decision.at]
    return (reviewed or earlier)[0]


def revisions_of(request: Request) -> list[RequestRevision]:
    """Return the revisions, newest first, without their content."""
    rows: Any = request.revisions.defer("content").order_by("-id")
    return list(rows)
