"""The approver's desk: requests that wait for a user's signature, with the facts to decide on.

Reads only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import Count, F, Prefetch
from django.utils import timezone

from apps.accounts.models import User
from apps.production.domain.approvals.inbox import signable
from apps.production.domain.approvals.requirements import Approval, approval_of
from apps.production.domain.checks.report import Warnings, check_report, warnings_in
from apps.production.domain.content.model import RequestContent, changes, texts_of
from apps.production.domain.content.revisions import content_at, last_reviewed
from apps.production.domain.content.stages import content_of, with_stages
from apps.production.domain.discussion import Thread, fields_of, threads_of
from apps.production.domain.estimates.figures import Estimate
from apps.production.domain.estimates.past import estimates_of
from apps.production.domain.priority.shares import (
    Prospect,
    forecasts_if_approved,
    prospects_if_approved,
)
from apps.production.domain.slack import Slack, slack_of
from apps.production.models import Request, RequestRevision, Stage
from apps.production.permissions import may_prioritise

#: How many requests a desk shows at most.
MOST_ROWS = 25
#: Fields that are shown in the headings of the sheet.
_IN_HEADING = ("title", ".name")


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


@dataclass(frozen=True)
class Desk:
    """The rows of a desk, earliest deadline first, and the number of further requests."""

    rows: list[DeskRow]
    more: int = 0


def desk_of(user: User, *, at: datetime) -> Desk:
    """Return the requests that this user can sign, in a fixed number of queries."""
    pks = signable(user, at)
    # Estimates need no services. Only the open request is read completely.
    stages = Prefetch("stages", Stage.objects.order_by("position"))
    rows = (
        Request.objects.filter(pk__in=pks)
        .select_related("experiment", "workflow__type")
        .prefetch_related(stages)
    )
    requests = list(rows.order_by(F("deadline").asc(nulls_last=True), "pk")[:MOST_ROWS])

    # A separate query: grouping would sort whole requests, most of which are not listed.
    revisions = RequestRevision.objects.filter(request__in=requests, is_submitted=True).order_by()
    submissions = revisions.values("request").annotate(times=Count("pk"))
    again = set(submissions.filter(times__gt=1).values_list("request", flat=True))

    contents = {request.pk: content_of(request, services=False) for request in requests}
    estimates = estimates_of(
        {request.pk: (contents[request.pk], request.experiment_id) for request in requests}, at
    )
    forecasts = forecasts_if_approved(
        [(request, estimates[request.pk]) for request in requests], at=at
    )
    today = timezone.localdate(at)
    desk_rows = []
    for request, forecast in zip(requests, forecasts, strict=True):
        estimate = estimates[request.pk].with_forecast(forecast)
        slack = slack_of(request.deadline, forecast, today=today)
        desk_rows.append(
            DeskRow(request, contents[request.pk], estimate, slack, request.pk in again)
        )
    return Desk(desk_rows, len(pks) - len(desk_rows))


@dataclass(frozen=True)
class Field:
    """A field of a request: its text, its threads, and its old text if it changed.

    The old text is that of the last review.
    """

    path: str
    label: str
    text: str
    old: str | None
    threads: tuple[Thread, ...]

    @property
    def is_changed(self) -> bool:
        return self.old is not None

    @property
    def has_open_threads(self) -> bool:
        return any(thread.is_open for thread in self.threads)


@dataclass(frozen=True)
class FieldGroup:
    """The fields of the request, or of one of its stages."""

    path: str
    title: str
    fields: list[Field]


@dataclass(frozen=True)
class Sheet:
    """A request on the desk, with everything that the user needs to decide.

    `reviewed` is the version that the changes are counted from, None if nobody has reviewed the
    request yet. `prospects` has, by class, rank and end if the request were approved now. `removed`
    are the names of removed stages.
    """

    row: DeskRow
    groups: list[FieldGroup]
    reviewed: RequestRevision | None
    changed: int
    removed: list[str]
    general: list[Thread]
    approval: Approval
    warnings: Warnings
    prospects: dict[str, Prospect]
    may_prioritise: bool

    @property
    def commented(self) -> list[str]:
        """The labels of the fields with open threads."""
        labels = []
        for group in self.groups:
            prefix = f"{group.title} › " if group.path else ""
            for field in group.fields:
                if field.has_open_threads:
                    labels.append(prefix + field.label)
        return labels


def sheet_of(row: DeskRow, *, user: User, at: datetime) -> Sheet:
    """Return the sheet of a request on the desk."""
    request = with_stages(Request.objects.all()).get(pk=row.request.pk)
    content = content_of(request)
    report = check_report(content, experiment=request.experiment, at=at, request=request)
    row = replace(row, request=request, content=content, estimate=report.estimate)
    reviewed = last_reviewed(request) if row.is_resubmitted else None
    if reviewed:
        differences = changes(content_at(request, reviewed), content)
    else:
        differences = []
    old = {}
    removed = []
    for change in differences:
        old[change["path"]] = change["old"]
        if not change["new"] and change["path"].count(".") == 1:
            removed.append(change["old"])
    threads = threads_of(request)
    sets_priority = may_prioritise(user, request)
    return Sheet(
        row,
        _groups(request, content, old, threads),
        reviewed,
        len(differences),
        removed,
        [thread for thread in threads if not thread.first.field],
        approval_of(request, user, at),
        warnings_in(report, at=at),
        prospects_if_approved(request, row.estimate, at=at) if sets_priority else {},
        sets_priority,
    )


def _groups(
    request: Request, content: RequestContent, old: dict[str, str], threads: Sequence[Thread]
) -> list[FieldGroup]:
    """Return the fields that have a value, changed or have comments, in the order of the form."""
    texts = texts_of(content)
    groups = [FieldGroup("", "Request", [])]
    for path, label in fields_of(request)[1:]:
        talk = tuple(thread for thread in threads if thread.first.field == path)
        is_stage = path.startswith("stages.") and path.count(".") == 1
        if is_stage:
            groups.append(FieldGroup(path, label, []))
        if talk or path in old or (texts.get(path) and not path.endswith(_IN_HEADING)):
            title = "Stage" if is_stage else label.rpartition(" › ")[2]
            if is_stage:
                text = content.stages[int(path.split(".")[1])].name
            else:
                text = texts.get(path, "")
            groups[-1].fields.append(Field(path, title, text, old.get(path), talk))
    return groups
