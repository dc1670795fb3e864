"""The approver's desk: requests that wait for a user's signature, with the facts to decide on.

Reads only.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime

from django.db.models import Count, F
from django.utils import timezone

from apps.accounts.models import User
from apps.core.models import Event
from apps.production.domain.approvals.inbox import signable
from apps.production.domain.approvals.requirements import Approval, approval_of
from apps.production.domain.checks.registry import rules
from apps.production.domain.checks.report import Warnings, check_report, warnings_at_submissions
from apps.production.domain.content.model import RequestContent, StageContent, changes, texts_of
from apps.production.domain.content.revisions import content_at, last_reviewed
from apps.production.domain.content.stages import content_of, with_stages
from apps.production.domain.discussion import Thread, fields_of, threads_of
from apps.production.domain.estimates.figures import Estimate, Size
from apps.production.domain.priority.moved_back import MovedBack, moved_back
from apps.production.domain.priority.prospects import (
    Candidate,
    Prospect,
    QueueNow,
    entries_if_approved,
    prospects_if_approved,
    read_queue,
)
from apps.production.domain.priority.shown_forecasts import estimates_if_approved
from apps.production.domain.requests.returns import last_return, notes_on_fields
from apps.production.domain.slack import Slack, slack_of
from apps.production.domain.unusual_values import UnusualValue, outages, unusual_values
from apps.production.models import Comment, Request, RequestRevision
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

    @property
    def jobs(self) -> int:
        return sum(stage.jobs or 0 for stage in self.content.stages)

    @property
    def memory_bytes(self) -> int:
        """The memory of the stage whose jobs need most."""
        return max((stage.memory_bytes or 0 for stage in self.content.stages), default=0)


@dataclass(frozen=True)
class Desk:
    """The rows of a desk, earliest deadline first, and the number of further requests.

    `queue` is the queue that the ends of the rows were computed with; None without rows.
    """

    rows: list[DeskRow]
    more: int = 0
    queue: QueueNow | None = None

    @property
    def size(self) -> Size | None:
        """The size of all rows together, without those whose size is unknown."""
        return total_size(self.rows)

    @property
    def unsized(self) -> int:
        """The number of requests whose size is unknown."""
        return unsized(self.rows)


@dataclass(frozen=True)
class BulkApproval:
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
    def size(self) -> Size | None:
        """The size of all rows together, without those whose size is unknown."""
        return total_size(self.rows)

    @property
    def unsized(self) -> int:
        """The number of requests whose size is unknown."""
        return unsized(self.rows)

    @property
    def late(self) -> int:
        """The number of requests that are expected to miss their deadline."""
        return len([row for row in self.rows if row.slack and row.slack.is_late])

    @property
    def warned(self) -> int:
        """The number of requests with warnings."""
        return len([row for row in self.rows if self.warnings_of(row)])

    def warnings_of(self, row: DeskRow) -> list[tuple[str, str, list[str]]]:
        """Return the warnings of a request, each message once."""
        warnings = self.warnings.get(row.request.pk)
        return warnings.groups if warnings else []

    def __iter__(self) -> Iterator[tuple[DeskRow, list[tuple[str, str, list[str]]]]]:
        for row in self.rows:
            yield row, self.warnings_of(row)


def bulk_approval(
    rows: list[DeskRow], queue: QueueNow, *, user: User, at: datetime
) -> BulkApproval:
    """Return these requests of a desk with their warnings and effects, in two queries."""
    candidates = [Candidate(row.request, row.content, row.estimate) for row in rows]
    entries = entries_if_approved(candidates, at=at, queue=queue)
    starts = {entry.candidate.request.pk: entry.starts_on for entry in entries if entry.starts_on}
    [moved] = moved_back([entries], user=user, at=at, queue=queue)
    warnings = warnings_at_submissions([row.request for row in rows])
    return BulkApproval(rows, warnings, starts, moved)


def unsized(rows: Iterable[DeskRow]) -> int:
    """Return how many of these requests have an unknown size."""
    return len([row for row in rows if not row.estimate.size])


def total_size(rows: Iterable[DeskRow]) -> Size | None:
    """Return the sum of the known sizes of these requests; None if none is known."""
    sizes = [row.estimate.size for row in rows]
    known = [size for size in sizes if size]
    if not known:
        return None
    core_seconds = sum(size.core_seconds for size in known)
    return Size(core_seconds, any(size.by_limit for size in known), "the sizes of the requests")


def desk_of(user: User, *, at: datetime) -> Desk:
    """Return the requests that this user can sign, in a fixed number of queries."""
    pks = signable(user, at)
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

    @property
    def has_open_threads(self) -> bool:
        return any(field.has_open_threads for field in self.fields)


@dataclass(frozen=True)
class ClassChoice:
    """A priority class: rank, end and slack of the request if it were approved in it now.

    `moved_back` are the queued requests that would start later. `starts_on` is the cluster that
    starts it at once.
    """

    name: str
    rank: int
    end: date | None
    slack: Slack | None
    is_requested: bool
    moved_back: MovedBack
    starts_on: str = ""


@dataclass(frozen=True)
class ChangedField:
    """A field that changed since the last review, with its old and its new text.

    `answer` is the note or comment that asked for the change, or empty.
    """

    path: str
    label: str
    old: str
    text: str
    answer: str


@dataclass(frozen=True)
class Changes:
    """What changed since the last review.

    `reviewed` is the version that was reviewed, None if nobody has reviewed the request yet;
    `returned` is the event that returned it with a reason, if any.
    """

    reviewed: RequestRevision | None = None
    returned: Event | None = None
    fields: tuple[ChangedField, ...] = ()

    @property
    def names_no_fields(self) -> bool:
        """Whether the request was returned with a reason, but with no note on a changed field."""
        return self.returned is not None and not any(field.answer for field in self.fields)


@dataclass(frozen=True)
class Sheet:
    """A request on the desk, with everything that the user needs to decide.

    `outages` are the findings of the checks about services that are down now or will be,
    `unusual` all others. `passed` is the number of checks without findings, `filled` the number of
    fields with a value. `prospects` and `choices` have, by class, rank and end if the
    request were approved now; they are empty for a user who does not set the priority.
    """

    row: DeskRow
    groups: list[FieldGroup]
    changes: Changes
    general: list[Thread]
    approval: Approval
    unusual: list[UnusualValue]
    outages: list[str]
    passed: int
    filled: int
    services: list[str]
    prospects: dict[str, Prospect]
    choices: list[ClassChoice]
    may_prioritise: bool

    @property
    def stages(self) -> list[FieldGroup]:
        return self.groups[1:]

    @property
    def stages_have_threads(self) -> bool:
        return any(stage.has_open_threads for stage in self.stages)

    @property
    def outputs(self) -> list[StageContent]:
        """The stages that write a dataset."""
        return [stage for stage in self.row.content.stages if stage.output_dataset]

    @property
    def newest_comment(self) -> Comment | None:
        """The newest comment on the request as a whole."""
        comments: list[Comment] = []
        for thread in self.general:
            comments += thread.comments
        return max(comments, key=lambda comment: comment.at, default=None)

    @property
    def errors(self) -> list[UnusualValue]:
        return [value for value in self.unusual if value.is_error]

    @property
    def unusual_fields(self) -> int:
        """The number of fields with a finding."""
        more = sum(value.more for value in self.unusual)
        return len({value.path for value in self.unusual}) + more

    @property
    def is_compared(self) -> bool:
        """Whether an unusual value stands beside past jobs."""
        return any(value.most for value in self.unusual)

    @property
    def unusual_memory(self) -> bool:
        """Whether the memory of a stage is among the unusual values."""
        return any(value.is_memory for value in self.unusual)

    @property
    def requested(self) -> ClassChoice | None:
        return next((choice for choice in self.choices if choice.is_requested), None)

    @property
    def compared(self) -> ClassChoice | None:
        """The next lower class than the requested one; the next higher one of the lowest."""
        if self.requested is None:
            return None
        place = self.choices.index(self.requested)
        return self.choices[place - 1 if place else 1]

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


def sheet_of(row: DeskRow, *, user: User, at: datetime, queue: QueueNow | None = None) -> Sheet:
    """Return the sheet of a request on the desk. Pass the desk's `queue` to save its queries."""
    request = with_stages(Request.objects.all()).get(pk=row.request.pk)
    content = content_of(request)
    queue = queue or read_queue(at=at)
    report = check_report(
        content, experiment=request.experiment, at=at, request=request, queue=queue
    )
    row = replace(row, request=request, content=content, estimate=report.estimate)
    threads = threads_of(request)
    labels = dict(fields_of(request))
    texts = texts_of(content)
    changes_since = Changes()
    if row.is_resubmitted:
        changes_since = _changes(request, content, labels, threads)

    sets_priority = may_prioritise(user, request)
    prospects = {}
    choices = []
    if sets_priority:
        candidate = Candidate(request, content, row.estimate)
        prospects = prospects_if_approved(candidate, at=at, queue=queue)
        moved = _moved_back(candidate, list(prospects), user=user, at=at, queue=queue)
        choices = _choices(request, prospects, moved, today=timezone.localdate(at))
    return Sheet(
        row=row,
        groups=_groups(request, texts, changes_since, threads),
        changes=changes_since,
        general=[thread for thread in threads if not thread.first.field],
        approval=approval_of(request, user, at),
        unusual=unusual_values(report, content, labels=labels, texts=texts),
        outages=outages(report),
        passed=len(rules()) - len({finding.rule for finding in report.findings}),
        filled=len(list(filter(None, texts.values()))),
        services=_service_names(request),
        prospects=prospects,
        choices=choices,
        may_prioritise=sets_priority,
    )


def _moved_back(
    candidate: Candidate, classes: Sequence[str], *, user: User, at: datetime, queue: QueueNow
) -> list[MovedBack]:
    """Return what the approval of a request in each of these classes moves back."""
    alternatives = []
    for name in classes:
        alternatives.append(
            entries_if_approved([candidate], at=at, queue=queue, priority_class=name)
        )
    return moved_back(alternatives, user=user, at=at, queue=queue)


def _choices(
    request: Request,
    prospects: Mapping[str, Prospect],
    moved: Sequence[MovedBack],
    *,
    today: date,
) -> list[ClassChoice]:
    choices = []
    for (name, prospect), moved_by_class in zip(prospects.items(), moved, strict=True):
        forecast = prospect.forecast
        end = None
        slack = None
        # An end that assumes a start today would look the same in every class.
        if forecast.start and forecast.end:
            end = forecast.end.likely
            slack = slack_of(request.deadline, forecast, today=today)
        is_requested = name == request.requested_priority
        choices.append(
            ClassChoice(
                name,
                prospect.rank,
                end,
                slack,
                is_requested,
                moved_by_class,
                prospect.starts_on,
            )
        )
    return choices


def _changes(
    request: Request,
    content: RequestContent,
    labels: Mapping[str, str],
    threads: Sequence[Thread],
) -> Changes:
    """Return the changes since the last review, with the notes and comments that they answer."""
    reviewed = last_reviewed(request)
    if reviewed is None:
        return Changes()
    returned = last_return(request)
    answers = {}
    for thread in threads:
        answers[thread.first.field] = thread.first.text
    if returned:
        answers |= dict(notes_on_fields(request, returned.reason))

    fields = []
    for change in changes(content_at(request, reviewed), content):
        path = change["path"]
        field = ChangedField(
            path,
            labels.get(path, change["old"]),
            change["old"],
            change["new"],
            answers.get(path, ""),
        )
        fields.append(field)
    return Changes(reviewed, returned, tuple(fields))


def _service_names(request: Request) -> list[str]:
    names: set[str] = set()
    for stage in request.stages.all():
        names.update(service.name for service in stage.services.all())
    return sorted(names)


def _groups(
    request: Request, texts: Mapping[str, str], since: Changes, threads: Sequence[Thread]
) -> list[FieldGroup]:
    """Return the fields that have a value, changed or have comments, in the order of the form."""
    old = {field.path: field.old for field in since.fields}
    stages = list(request.stages.all())
    groups = [FieldGroup("", "Request", [])]
    for path, label in fields_of(request)[1:]:
        talk = tuple(thread for thread in threads if thread.first.field == path)
        is_stage = path.startswith("stages.") and path.count(".") == 1
        if is_stage:
            groups.append(FieldGroup(path, label, []))
        if talk or path in old or (texts.get(path) and not path.endswith(_IN_HEADING)):
            title = "Stage" if is_stage else label.rpartition(" › ")[2]
            if is_stage:
                text = stages[int(path.split(".")[1])].name
            else:
                text = texts.get(path, "")
            groups[-1].fields.append(Field(path, title, text, old.get(path), talk))
    return groups
