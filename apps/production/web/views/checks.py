"""The page of the rules, and checks and estimate while the user types."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.datastructures import MultiValueDict
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.models import Experiment, User
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.production.domain.actors import may
from apps.production.domain.advice import request_advice
from apps.production.domain.checks import Fix, RuleFinding, Severity
from apps.production.domain.checks.registry import rules_by_severity
from apps.production.domain.checks.report import CheckReport, check_report
from apps.production.domain.content.model import RequestContent
from apps.production.domain.estimates.figures import NO_ESTIMATE
from apps.production.domain.priority.prospects import QueueNow, read_queue
from apps.production.domain.types.declaration import Workflow
from apps.production.domain.types.versions import workflow_of
from apps.production.enums import EDITABLE, SIGNED, Actor, RequestState
from apps.production.models import Request
from apps.production.web.forms.fields import FieldPlace
from apps.production.web.forms.request import RequestForms, chosen_workflow, writable_experiments
from apps.production.web.forms.review import review_context
from apps.production.web.forms.steps import form_steps
from apps.production.web.lookup import request_or_404
from apps.production.web.templatetags.requests import lower_first

#: Sent instead of the touched fields when the problems of all fields are shown.
ALL_TOUCHED = "all"
#: How many warnings of one rule are shown at once.
MOST_ALIKE = 2


class FormProblem(NamedTuple):
    """An error in the form: the place of its field, and the message."""

    anchor: str
    label: str
    message: str


@dataclass
class _Line:
    """The findings with one message, and the place of the field of each."""

    findings: list[RuleFinding]
    places: list[FieldPlace]

    @property
    def first(self) -> RuleFinding:
        return self.findings[0]

    @property
    def named_places(self) -> list[FieldPlace]:
        return _name_field_once(self.places)

    @property
    def fixes(self) -> list[tuple[RuleFinding, str]]:
        """The findings with a fix; if there are several, with the label of the place of each."""
        fixes = []
        has_several = len(self.findings) > 1
        for finding, place in zip(self.findings, self.places, strict=True):
            if finding.fix:
                fixes.append((finding, place.label if has_several else ""))
        return fixes


@require_safe
def rule_list(request: AuthenticatedRequest) -> HttpResponse:
    return render(request, "production/catalogue/rules.html", {"groups": rules_by_severity()})


@require_POST
def check_new(request: AuthenticatedRequest) -> HttpResponse:
    """Check and estimate a new request while the user types. Nothing is saved."""
    experiments = writable_experiments(request.user)
    key = request.POST.get("experiment", "")
    if key:
        experiment = experiments.filter(key=key).first()
    else:
        experiment = experiments.first()
    if experiment is None:
        raise PermissionDenied("Only liaisons can create requests.")
    workflow = chosen_workflow(request.user, request.POST.get("workflow", ""))
    forms = RequestForms(request.POST, workflow=workflow, draft_of=request.user)
    return _panel(request, forms, experiment, None)


@require_POST
def check_typed(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Check and estimate a request while the user types. Nothing is saved."""
    production_request = request_or_404(request.user, key)
    if not may(request.user, Actor.LIAISON, production_request):
        raise PermissionDenied("Only liaisons of the experiment can edit this request.")
    data = MultiValueDict(
        {"experiment": [production_request.experiment.key]} | dict(request.POST.lists())
    )
    draft_of = None
    if production_request.state == RequestState.DRAFT:
        draft_of = request.user
    forms = RequestForms(
        data, workflow=form_workflow(request, production_request), draft_of=draft_of
    )
    return _panel(
        request,
        forms,
        chosen_experiment(forms, production_request) or production_request.experiment,
        production_request,
    )


def queue_before_approval(production_request: Request | None, *, at: datetime) -> QueueNow | None:
    """Return the queue now, on which the dates of a request depend until it is approved.

    None for other requests.
    """
    if production_request is None or production_request.state not in SIGNED:
        return read_queue(at=at)
    return None


def form_workflow(request: AuthenticatedRequest, production_request: Request) -> Workflow:
    """Return the workflow type for the form of a request: for a draft, the chosen one."""
    current = workflow_of(production_request.workflow)
    if production_request.state != RequestState.DRAFT:
        return current
    return chosen_workflow(request.user, request.POST.get("workflow", current.key), current)


def _panel(
    request: AuthenticatedRequest,
    forms: RequestForms,
    experiment: Experiment,
    production_request: Request | None,
) -> HttpResponse:
    at = timezone.now()
    queue = queue_before_approval(production_request, at=at)
    report = check_form(forms, experiment, production_request, request.user, queue=queue)
    context = panel_context(forms, report, touched_in(request.POST), experiment, request.user) | {
        "replaces": True,
        "before_submission": production_request is None or production_request.state in EDITABLE,
    }
    context |= review_context(
        forms,
        report.estimate,
        experiment,
        production_request,
        request.user,
        at=at,
        queue=queue,
    )
    return render(request, "production/form/_checked.html", context)


def touched_in(sent: Mapping[str, str]) -> Collection[str] | None:
    """Return the anchors of the fields that the user has visited; None for all fields.

    After a submission, all fields count as visited.
    """
    anchors = sent.get("touched", ALL_TOUCHED).split()
    return None if ALL_TOUCHED in anchors else anchors


def chosen_experiment(forms: RequestForms, production_request: Request | None) -> Experiment | None:
    """Return the experiment chosen in the form of a draft, or else the one of the request."""
    forms.main.is_valid()
    chosen: Experiment | None = forms.main.cleaned_data.get("experiment")
    return chosen or (production_request.experiment if production_request else None)


def check_form(
    forms: RequestForms,
    experiment: Experiment | None,
    production_request: Request | None,
    user: User,
    content: RequestContent | None = None,
    *,
    queue: QueueNow | None = None,
) -> CheckReport:
    """Return all problems of a form, including the errors of its fields, without duplicates.

    Pass `content` to check it instead of what the form holds, and `queue`, the result of
    `read_queue`, to save its queries.

    A value that cannot be read is reported as unreadable, not as missing. A form without an
    experiment or with damaged stages is not checked further.
    """
    errors = []
    for path, messages in forms.errors().items():
        errors += [RuleFinding("", Severity.INVALID, path, message) for message in messages]
    if experiment is None or forms.is_damaged:
        return CheckReport(tuple(errors), NO_ESTIMATE)

    report = check_report(
        content or forms.content,
        experiment=experiment,
        request=production_request,
        by=user,
        at=timezone.now(),
        queue=queue,
    )
    unreadable = {forms.find_place(path) for path in forms.unreadable}
    findings = []
    for finding in report.findings:
        if forms.find_place(finding.path) not in unreadable:
            findings.append(finding)
    order = list(Severity)
    unique = _one_per_place(forms, [*findings, *errors])
    return replace(
        report, findings=tuple(sorted(unique, key=lambda finding: order.index(finding.severity)))
    )


def _one_per_place(forms: RequestForms, findings: Iterable[RuleFinding]) -> Iterable[RuleFinding]:
    """Return each problem of a field once.

    A field that all stages share has one problem, whose fix applies to all of them.
    """
    unique: dict[tuple[str, FieldPlace], RuleFinding] = {}
    for finding in findings:
        key = finding.message, forms.find_place(finding.path)
        first = unique.setdefault(key, finding)
        if first.fix and finding.fix and finding.fix.label == first.fix.label:
            fix = Fix(first.fix.label, {**first.fix.values, **finding.fix.values})
            unique[key] = replace(first, fix=fix)
    return unique.values()


def without_untouched(
    forms: RequestForms, report: CheckReport, touched: Collection[str] | None
) -> CheckReport:
    """Return a report without the errors of fields that the user has not filled in yet."""
    findings = [finding for finding in report.findings if not is_untouched(forms, finding, touched)]
    return replace(report, findings=tuple(findings))


def is_untouched(
    forms: RequestForms, finding: RuleFinding, touched: Collection[str] | None
) -> bool:
    """Whether this is an error about an empty field that the user has not visited yet."""
    if touched is None or not finding.blocks or not forms.is_empty(finding.path):
        return False
    return forms.find_place(finding.path).anchor not in touched


def panel_context(
    forms: RequestForms,
    report: CheckReport | None,
    touched: Collection[str] | None,
    experiment: Experiment | None,
    user: User,
) -> dict[str, Any]:
    """Return the context of the panel, the bottom bar and the steps, with the same findings.

    The bar counts the lines of the panel, where a message about several fields is one line.
    Required fields that were not `touched` are listed as empty instead.
    """
    if report is None:
        return {"checked": None, "problems": [], "steps": form_steps(forms)}

    shown = without_untouched(forms, report, touched)
    empty = [finding for finding in report.findings if is_untouched(forms, finding, touched)]
    groups = []
    for severity in Severity:
        rows = shown.of(severity)
        if rows:
            groups.append((severity, *_folded(severity, _lines(forms, rows))))
    warnings = []
    for line in _lines(forms, shown.of(Severity.WARNING)):
        warnings.append([place.anchor for place in line.places])
    return {
        "checked": shown,
        "problems": _form_problems(forms, shown),
        "warnings": len(warnings),
        "groups": groups,
        "empty": list(dict.fromkeys(forms.find_place(finding.path) for finding in empty)),
        "estimate": report.estimate,
        "advice": request_advice(
            content=forms.content, experiment=experiment, user=user, at=timezone.now()
        ),
        "steps": form_steps(forms, shown.findings, empty, warnings),
    }


def _form_problems(forms: RequestForms, report: CheckReport) -> list[FormProblem]:
    """Return the errors in the order of the form."""
    problems = []
    for finding in report.findings:
        if finding.blocks:
            place = forms.find_place(finding.path)
            problems.append(FormProblem(place.anchor, place.label, finding.message))
    position = {anchor: number for number, anchor in enumerate(forms.anchors())}
    return sorted(problems, key=lambda problem: position[problem.anchor])


def _folded(severity: Severity, lines: list[_Line]) -> tuple[list[_Line], list[_Line]]:
    """Return the lines to show and those to fold: many warnings of one rule."""
    shown = []
    folded = []
    times: Counter[str] = Counter()
    for line in lines:
        times[line.first.rule] += 1
        if severity == Severity.WARNING and times[line.first.rule] > MOST_ALIKE:
            folded.append(line)
        else:
            shown.append(line)
    return shown, folded


def _lines(forms: RequestForms, findings: list[RuleFinding]) -> list[_Line]:
    """Return each message once, with its fields. So warnings are counted on all pages."""
    lines: dict[str, _Line] = {}
    for finding in findings:
        line = lines.setdefault(finding.message, _Line([], []))
        # A field that stages share has a single place.
        if (place := forms.find_place(finding.path)) not in line.places:
            line.findings.append(finding)
            line.places.append(place)
    return list(lines.values())


def _name_field_once(places: list[FieldPlace]) -> list[FieldPlace]:
    """Shorten the labels of places of one field, as in “Stage 1, all stages · Memory”."""
    stages = []
    fields = set()
    for place in places:
        stage, _, field = place.label.rpartition(" · ")
        stages.append(stage)
        fields.add(field)
    if len(places) < 2 or len(fields) > 1 or not all(stages):
        return places
    labels = [stages[0], *map(lower_first, stages[1:])]
    labels[-1] = f"{labels[-1]} · {fields.pop()}"
    return [place._replace(label=label) for place, label in zip(places, labels, strict=True)]
