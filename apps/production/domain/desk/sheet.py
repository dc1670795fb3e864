"""The request that is open on the approver's desk, with everything needed to decide on it.

Reads only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime

from django.utils import timezone

from apps.accounts.models import User
from apps.core.models import Event
from apps.production.domain.approvals.requirements import Approval, approval_of
from apps.production.domain.checks.registry import rules
from apps.production.domain.checks.report import check_report
from apps.production.domain.content.model import (
    RequestContent,
    StageContent,
    list_changes,
    texts_of,
)
from apps.production.domain.content.revisions import content_at, last_reviewed
from apps.production.domain.content.stages import content_of, with_stages
from apps.production.domain.desk.desk import DeskRow
from apps.production.domain.desk.unusual_values import UnusualValue, list_outages, unusual_values
from apps.production.domain.discussion import Thread, fields_of, threads_of
from apps.production.domain.priority.moved_back import MovedBack, moved_back
from apps.production.domain.priority.prospects import (
    ApprovalCandidate,
    Prospect,
    QueueNow,
    entries_if_approved,
    prospects_if_approved,
    read_queue,
)
from apps.production.domain.requests.returns import last_return, notes_on_fields
from apps.production.domain.slack import Slack, slack_of
from apps.production.models import Comment, Request, RequestRevision
from apps.production.permissions import may_prioritise

#: Fields that are shown in the headings of the sheet.
_IN_HEADING = ("title", ".name")


@dataclass(frozen=True)
class SheetField:
    """A field of a request: its text, its threads, and its old text if it changed.

    The old text is the text at the last review.
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
    fields: list[SheetField]

    @property
    def has_open_threads(self) -> bool:
        return any(field.has_open_threads for field in self.fields)


@dataclass(frozen=True)
class ClassChoice:
    """A priority class: rank, end and slack of the request if it were approved in it now.

    `moved_back` are the queued requests that would start later. `starts_on` is the cluster that
    starts it at once. `start` is known even if the end is not: then `slack` says by how many days
    at least the request is late, if it starts after its deadline.
    """

    name: str
    rank: int
    end: date | None
    slack: Slack | None
    is_requested: bool
    moved_back: MovedBack
    starts_on: str = ""
    start: date | None = None


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
class ChangesSinceReview:
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
    changes: ChangesSinceReview
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
    def why_no_end(self) -> str:
        """The sentence on the unknown end in the requested class; empty if the end is known."""
        estimate = self.row.estimate
        if self.requested is None or self.requested.end or estimate.ends:
            return ""
        if estimate.why_no_end:
            return f"Expected end unknown: {estimate.why_no_end}."
        if self.requested.start:
            return "Expected end unknown: its running time is unknown."
        return self.prospects[self.requested.name].forecast.why_no_end

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


def read_sheet(row: DeskRow, *, user: User, at: datetime, queue: QueueNow | None = None) -> Sheet:
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
    since_review = ChangesSinceReview()
    if row.is_resubmitted:
        since_review = _changes_since_review(request, content, labels, threads)

    sets_priority = may_prioritise(user, request)
    prospects = {}
    choices = []
    if sets_priority:
        candidate = ApprovalCandidate(request, content, row.estimate)
        prospects = prospects_if_approved(candidate, at=at, queue=queue)
        moved = _moved_back_by_class(candidate, list(prospects), user=user, at=at, queue=queue)
        choices = _choices(request, prospects, moved, today=timezone.localdate(at))
    return Sheet(
        row=row,
        groups=_field_groups(request, texts, since_review, threads),
        changes=since_review,
        general=[thread for thread in threads if not thread.first.field],
        approval=approval_of(request, user, at),
        unusual=unusual_values(report, content, labels=labels, texts=texts),
        outages=list_outages(report),
        passed=len(rules()) - len({finding.rule for finding in report.findings}),
        filled=len(list(filter(None, texts.values()))),
        services=_service_names(request),
        prospects=prospects,
        choices=choices,
        may_prioritise=sets_priority,
    )


def _moved_back_by_class(
    candidate: ApprovalCandidate,
    classes: Sequence[str],
    *,
    user: User,
    at: datetime,
    queue: QueueNow,
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
    for (name, prospect), moved_in_class in zip(prospects.items(), moved, strict=True):
        forecast = prospect.forecast
        end = None
        slack = None
        # An end that assumes a start today would look the same in every class.
        if forecast.start:
            end = forecast.end.likely if forecast.end else None
            slack = slack_of(request.deadline, forecast, today=today)
        choice = ClassChoice(
            name=name,
            rank=prospect.rank,
            end=end,
            slack=slack,
            is_requested=name == request.requested_priority,
            moved_back=moved_in_class,
            starts_on=prospect.starts_on,
            start=forecast.start.likely if forecast.start else None,
        )
        choices.append(choice)
    return choices


def _changes_since_review(
    request: Request,
    content: RequestContent,
    labels: Mapping[str, str],
    threads: Sequence[Thread],
) -> ChangesSinceReview:
    """Return the changes since the last review, with the notes and comments that they answer."""
    reviewed = last_reviewed(request)
    if reviewed is None:
        return ChangesSinceReview()
    returned = last_return(request)
    answers = {}
    for thread in threads:
        answers[thread.first.field] = thread.first.text
    if returned:
        answers |= dict(notes_on_fields(request, returned.reason))

    fields = []
    for change in list_changes(content_at(request, reviewed), content):
        path = change["path"]
        field = ChangedField(
            path=path,
            label=labels.get(path, change["old"]),
            old=change["old"],
            text=change["new"],
            answer=answers.get(path, ""),
        )
        fields.append(field)
    return ChangesSinceReview(reviewed, returned, tuple(fields))


def _service_names(request: Request) -> list[str]:
    names: set[str] = set()
    for stage in request.stages.all():
        names.update(service.name for service in stage.services.all())
    return sorted(names)


def _field_groups(
    request: Request,
    texts: Mapping[str, str],
    since_review: ChangesSinceReview,
    threads: Sequence[Thread],
) -> list[FieldGroup]:
    """Return the fields that have a value, changed or have comments, in the order of the form."""
    old = {field.path: field.old for field in since_review.fields}
    stages = list(request.stages.all())
    groups = [FieldGroup("", "Request", [])]
    for path, label in fields_of(request)[1:]:
        title = label.rpartition(" › ")[2]
        text = texts.get(path, "")
        has_value = text and not path.endswith(_IN_HEADING)
        is_stage = path.startswith("stages.") and path.count(".") == 1
        if is_stage:
            groups.append(FieldGroup(path, label, []))
            title = "Stage"
            text = stages[int(path.split(".")[1])].name
        threads_of_field = tuple(thread for thread in threads if thread.first.field == path)
        if threads_of_field or path in old or has_value:
            field = SheetField(path, title, text, old.get(path), threads_of_field)
            groups[-1].fields.append(field)
    return groups
