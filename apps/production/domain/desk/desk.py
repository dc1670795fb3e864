"""The approver's desk: the requests that wait for a user's signature, and bulk approval.

Reads only. `sheet` has the request that is open.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, F
from django.utils import timezone

from apps.accounts.models import User
from apps.production.domain.approvals.inbox import rights_to_sign
from apps.production.domain.checks.report import MessageGroup, Warnings, warnings_at_submissions
from apps.production.domain.content.model import RequestContent
from apps.production.domain.desk.unusual_values import desk_label
from apps.production.domain.discussion import fields_of
from apps.production.domain.estimates.figures import Estimate, Size
from apps.production.domain.priority.moved_back import MovedBack, moved_back
from apps.production.domain.priority.prospects import (
    ApprovalCandidate,
    QueueNow,
    entries_if_approved,
    read_queue,
)
from apps.production.domain.priority.shown_forecasts import estimates_if_approved
from apps.production.domain.slack import Slack, slack_of
from apps.production.models import Request, RequestRevision

#: How many requests a desk shows at most.
MOST_ROWS = 25


@dataclass(frozen=True)
class DeskRow:
    """A request to decide on, with its estimate.

    End and slack assume that it is approved now.
    """

    request: Request
    content: RequestContent
    estimate: Estimate
    slack: Slack | None
    is_resubmitted: bool

    @property
    def jobs(self) -> int:
        return sum(stage.jobs or 0 for stage in self.content.stages)

    @property
    def memory_bytes(self) -> int:
        """The memory of the stage whose jobs need most."""
        return max((stage.memory_bytes or 0 for stage in self.content.stages), default=0)


class _SizedRows:
    """Rows of a desk, with their size together."""

    rows: list[DeskRow]

    @property
    def size(self) -> Size | None:
        """The size of all rows together, without those whose size is unknown."""
        sizes = [row.estimate.size for row in self.rows]
        known = [size for size in sizes if size]
        if not known:
            return None
        core_seconds = sum(size.core_seconds for size in known)
        return Size(core_seconds, any(size.by_limit for size in known), "the sizes of the requests")

    @property
    def unsized(self) -> int:
        """The number of requests whose size is unknown."""
        return len([row for row in self.rows if not row.estimate.size])


@dataclass(frozen=True)
class Desk(_SizedRows):
    """The rows of a desk, earliest deadline first, and the number of further requests.

    `queue` is the queue that the ends of the rows were computed with; None without rows.
    """

    rows: list[DeskRow]
    more: int = 0
    queue: QueueNow | None = None


@dataclass(frozen=True)
class BulkApproval(_SizedRows):
    """Requests to approve together, and the warnings that each was submitted with.

    `starts` has the cluster that starts a request at once, by primary key; `moved_back` are the
    queued requests that start later because of all of them.
    """

    rows: list[DeskRow]
    warnings: Mapping[int, Warnings]
    starts: Mapping[int, str]
    moved_back: MovedBack

    @property
    def jobs(self) -> int:
        return sum(row.jobs for row in self.rows)

    @property
    def late(self) -> int:
        """The number of requests that are expected to miss their deadline."""
        return len([row for row in self.rows if row.slack and row.slack.is_late])

    @property
    def warned(self) -> int:
        """The number of requests with warnings."""
        return len([row for row in self.rows if self.warnings_for(row)])

    def warnings_for(self, row: DeskRow) -> list[MessageGroup]:
        """Return the warnings of a request, each message once, with names of fields for paths.

        Fields have the names of the desk: `simulation › Memory`.
        """
        warnings = self.warnings.get(row.request.pk)
        if not warnings:
            return []
        labels = dict(fields_of(row.request))
        named = []
        for severity, message, paths in warnings.groups:
            names = [desk_label(path, labels.get(path, ""), row.content) for path in paths]
            named.append(MessageGroup(severity, message, names))
        return named

    def __iter__(self) -> Iterator[tuple[DeskRow, list[MessageGroup]]]:
        for row in self.rows:
            yield row, self.warnings_for(row)


def bulk_approval(
    rows: list[DeskRow], queue: QueueNow, *, user: User, at: datetime
) -> BulkApproval:
    """Return these requests of a desk with their warnings and effects, in two queries."""
    candidates = [ApprovalCandidate(row.request, row.content, row.estimate) for row in rows]
    entries = entries_if_approved(candidates, at=at, queue=queue)
    starts = {entry.candidate.request.pk: entry.starts_on for entry in entries if entry.starts_on}
    [moved] = moved_back([entries], user=user, at=at, queue=queue)
    warnings = warnings_at_submissions([row.request for row in rows])
    return BulkApproval(rows, warnings, starts, moved)


def read_desk(user: User, *, at: datetime) -> Desk:
    """Return the requests that this user can sign, in a fixed number of queries."""
    pks = rights_to_sign(user, at)
    to_sign = Request.objects.filter(pk__in=pks).select_related("experiment", "workflow__type")
    requests = list(to_sign.order_by(F("deadline").asc(nulls_last=True), "pk")[:MOST_ROWS])
    if not requests:
        return Desk([])

    # A separate query: grouping would sort whole requests, most of which are not listed.
    revisions = RequestRevision.objects.filter(request__in=requests, is_submitted=True).order_by()
    submissions = revisions.values("request").annotate(times=Count("pk"))
    again = set(submissions.filter(times__gt=1).values_list("request", flat=True))

    queue = read_queue(at=at)
    today = timezone.localdate(at)
    desk_rows = []
    # Only the open request is read completely.
    for estimated in estimates_if_approved(requests, at=at, queue=queue):
        request = estimated.request
        row = DeskRow(
            request=request,
            content=estimated.content,
            estimate=estimated.estimate.with_forecast(estimated.forecast),
            slack=slack_of(request.deadline, estimated.forecast, today=today),
            is_resubmitted=request.pk in again,
        )
        desk_rows.append(row)
    return Desk(desk_rows, len(pks) - len(desk_rows), queue)
