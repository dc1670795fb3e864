"""Versions of what a request holds: kept at its submission and at each save, within bounds, and compared."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from apps.accounts.models import Principal
from apps.production.domain.content.model import RequestContent, changes
from apps.production.domain.content.serialization import plain, read_plain
from apps.production.domain.content.stages import content_of, with_stages
from apps.production.domain.types.versions import workflow_of
from apps.production.enums import EDITABLE
from apps.production.models import Request, RequestRevision

#: Saves and submissions of one request that are kept, the latest of each.
MAX_REVISIONS = 30
#: Saves of one person that follow each other within this time are one.
MERGE_WINDOW = timedelta(minutes=10)


def keep_revision(*, request: Request, by: Principal, at: datetime, submitted: bool = False) -> RequestRevision:
    """Keep what the request holds now, in the caller's transaction; drop what is beyond the bounds."""
    content = content_of(with_stages(Request.objects.all()).get(pk=request.pk))
    kept = request.revisions.order_by("-id")
    last = kept.first()
    if not submitted and last and not last.is_submitted and last.by == str(by) and at - last.begun_at < MERGE_WINDOW:
        last.version, last.at, last.content = request.version, at, plain(content)
        last.save(update_fields=["version", "at", "content"])
        return last
    made = RequestRevision.objects.create(
        request=request,
        version=request.version,
        content=plain(content),
        begun_at=at,
        at=at,
        by=str(by)[:150],
        is_submitted=submitted,
    )
    old = kept.filter(is_submitted=submitted).values_list("pk", flat=True)[MAX_REVISIONS : MAX_REVISIONS + 100]
    RequestRevision.objects.filter(pk__in=list(old)).delete()
    return made


@dataclass(frozen=True)
class Comparison:
    """What differs between two versions; `new` is None for the request as it is now."""

    old: RequestRevision
    new: RequestRevision | None
    changes: list[dict[str, str]]


def compare(request: Request, *, old: RequestRevision, new: RequestRevision | None) -> Comparison:
    """Return what differs between a kept version and another, or the request as it is now."""
    after = content_of(request) if new is None else content_at(request, new)
    return Comparison(old, new, changes(content_at(request, old), after))


def content_at(request: Request, revision: RequestRevision) -> RequestContent:
    """Return what the request held at a kept version."""
    return read_plain(revision.content, workflow_of(request.workflow))[0]


def last_submission(request: Request) -> RequestRevision | None:
    return request.revisions.filter(is_submitted=True).order_by("-id").first()


def changed_since_submission(request: Request) -> Comparison | None:
    """Return what changed since the last submission, while a liaison may change it; None where nothing did."""
    last = last_submission(request) if request.state in EDITABLE else None
    found = compare(request, old=last, new=None) if last else None
    return found if found and found.changes else None


def revisions_of(request: Request) -> list[RequestRevision]:
    """Return the kept versions, the latest first, without their content."""
    rows: Any = request.revisions.defer("content").order_by("-id")
    return list(rows)
