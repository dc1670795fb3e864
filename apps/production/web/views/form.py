"""The request form: edit, add and move stages, save and submit; works without JavaScript."""

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.defaultfilters import pluralize
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.utils.datastructures import MultiValueDict
from django.views.decorators.http import require_http_methods
from django_htmx.http import reselect, retarget

from apps.accounts.models import Experiment
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.errors import InvalidFields, InvalidTransition, StaleState
from apps.core.models import Event
from apps.core.web.query import number_in
from apps.production.domain.actors import may
from apps.production.domain.checks import Fix, Severity
from apps.production.domain.checks.fixing import apply_fixes
from apps.production.domain.checks.report import PASSING, CheckReport, messages_of
from apps.production.domain.content.changes import may_change
from apps.production.domain.content.known import COLUMNS
from apps.production.domain.content.model import (
    MAX_STAGES,
    RequestContent,
    StageContent,
    list_changes,
)
from apps.production.domain.content.revisions import own_version
from apps.production.domain.content.stages import content_of
from apps.production.domain.discussion import Thread, threads_of
from apps.production.domain.estimates.figures import NO_ESTIMATE
from apps.production.domain.estimates.past import estimate_for
from apps.production.domain.lifecycle.moves import submit_request
from apps.production.domain.lineage.clones import (
    DroppedValue,
    Refit,
    fit,
    taken_names,
    with_next_names,
)
from apps.production.domain.lineage.proposals import propose_values
from apps.production.domain.lineage.templates import content_from, templates_for
from apps.production.domain.priority.prospects import QueueNow
from apps.production.domain.requests.drafts import save_draft, save_new
from apps.production.domain.requests.returns import last_return, notes_on_fields
from apps.production.domain.types.declaration import Workflow
from apps.production.domain.types.versions import workflow_of
from apps.production.enums import CHANGEABLE, EDITABLE, Actor, RequestState
from apps.production.models import Request
from apps.production.permissions import may_edit
from apps.production.web.forms.request import (
    RequestForms,
    blank,
    chosen_workflow,
    typed,
    writable_experiments,
)
from apps.production.web.forms.review import review_context
from apps.production.web.forms.rows import change_rows
from apps.production.web.forms.spreadsheet import PASTED_COLUMNS
from apps.production.web.forms.steps import form_steps
from apps.production.web.lookup import request_or_404
from apps.production.web.views.checks import (
    ALL_TOUCHED,
    check_form,
    chosen_experiment,
    form_workflow,
    panel_context,
    queue_before_approval,
    touched_in,
    without_untouched,
)

#: The button that applies the fixes offered by the checks one after another, and how many fixes
#: its message names.
FIX_ALL = "fix-all"
MOST_NAMED = 5
#: Checks whose warnings the form shows beside their fields in another way: the bars beside memory
#: and wall time, and the ends by class below the deadline.
SHOWN_OTHERWISE = frozenset({"memory_sufficient", "wall_time_sufficient", "deadline_reachable"})
#: The button for one more stage.
ADD = "add"
#: The button that gives the outputs of a clone new names.
RENAME = "rename"
#: The buttons that switch the workflow type: the first asks before it drops input, the second does
#: not.
SWITCH = "workflow"
CONFIRM = "workflow-confirm"
SWITCHES = (SWITCH, CONFIRM)


@require_http_methods(["GET", "HEAD", "POST"])
def new_request(request: AuthenticatedRequest) -> HttpResponse:
    experiments = writable_experiments(request.user)
    first = experiments.first()
    if first is None:
        raise PermissionDenied("Only liaisons can create requests.")
    data: Any = request.POST
    key = {"form_key": get_random_string(32)}
    sent = request.POST if request.method == "POST" else request.GET
    workflow = chosen_workflow(request.user, sent.get("workflow", ""))
    number = number_in(request.GET, "template")
    if request.method != "POST" and number is not None:
        template = get_object_or_404(
            templates_for(request.user).filter(experiment__in=experiments), pk=number
        )
        from_template = content_from(template)
        for note in from_template.notes[:20]:
            messages.warning(request, note)
        workflow = from_template.content.workflow
        data = typed(from_template.content, experiment=template.experiment.key, **key)
    elif request.method != "POST":
        chosen = experiments.filter(key=request.GET.get("experiment", "")).first() or first
        data = typed(new_content_for(workflow, chosen), experiment=chosen.key, **key)
    page = FormPage(request, data, workflow)
    if request.method == "POST":
        return page.act()
    return page.show(touched=())


@require_http_methods(["GET", "HEAD", "POST"])
def edit_request(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Edit a request; `?check=1` runs the checks."""
    production_request = request_or_404(request.user, key)
    content = content_of(production_request)
    closed = not may_edit(request.user, production_request) or not may_change(
        production_request.state, content
    )
    if not may(request.user, Actor.LIAISON, production_request) or (
        request.method != "POST" and closed
    ):
        raise PermissionDenied(
            "Only liaisons of the experiment can edit this request, and only in editable states."
        )
    own = {"experiment": production_request.experiment.key, "workflow": content.workflow.key}
    if request.method == "POST":
        data = MultiValueDict(
            {name: [value] for name, value in own.items()} | dict(request.POST.lists())
        )
        return FormPage(
            request, data, form_workflow(request, production_request), production_request
        ).act()
    page = FormPage(
        request,
        typed(content, version=production_request.version, **own),
        content.workflow,
        production_request,
    )
    if "check" in request.GET:
        return page.check(touched=touched_in(request.GET))
    return page.show(touched=())


def new_content_for(workflow: Workflow, experiment: Experiment | None) -> RequestContent:
    """Return a new request of a type, with the values that the experiment will probably use."""
    content = blank(workflow)
    return propose_values(content, experiment) if experiment else content


class FormPage:
    """The form of a request and the actions of its buttons.

    Without `production_request`, the form creates a new request.
    """

    def __init__(
        self,
        request: AuthenticatedRequest,
        data: Any,
        workflow: Workflow,
        production_request: Request | None = None,
    ) -> None:
        self.request = request
        self.production_request = production_request
        self.conflict = ""
        #: What was left out of pasted rows.
        self.notes: list[str] = []
        #: The labels of the fields that prevented the last save.
        self.unsaved: list[str] = []
        #: The fixes applied by the pressed button.
        self.applied: list[Fix] = []
        #: The type to switch to and the input that would be dropped, until the user confirms the
        #: switch.
        self.switching: tuple[Workflow, list[DroppedValue]] | None = None
        is_draft = production_request is None or production_request.state == RequestState.DRAFT
        self.forms = RequestForms(
            data, workflow=workflow, draft_of=request.user if is_draft else None
        )

    def act(self) -> HttpResponse:
        """Run the action of the button."""
        action = self.request.POST.get("do", "save")
        if action == "autosave":
            return self._autosave()
        if action in SWITCHES or self._left_out():
            return self._switch(action)
        change = change_rows(self.forms, action, self._experiment())
        if change is not None:
            page = FormPage(self.request, change.data, self.forms.workflow, self.production_request)
            page.notes = change.notes
            if action == ADD and change.focus and self.request.htmx:
                return page.show_added(change.focus)
            return page.show(focus=change.focus, touched=touched_in(self.request.POST))
        return self.check() if action == "check" else self._write(action)

    @cached_property
    def _shown_workflow(self) -> Workflow:
        """The type whose fields the form shows. The user may have chosen another one."""
        current = None
        if self.production_request:
            current = workflow_of(self.production_request.workflow)
        shown = self.forms.data.get("shown_workflow", "") or self.forms.workflow.key
        return chosen_workflow(self.request.user, shown, current)

    def _left_out(self) -> list[DroppedValue]:
        """Return the input that has no place in the chosen type, without what was proposed."""
        same = self.forms.data.get("shown_workflow", "") in ("", self.forms.workflow.key)
        if same or self._shown_workflow.key == self.forms.workflow.key:
            return []
        proposed = fit(
            new_content_for(self._shown_workflow, self._experiment()), self.forms.workflow
        ).left_out
        return [value for value in self._converted.left_out if value not in proposed]

    @cached_property
    def _converted(self) -> Refit:
        return fit(
            RequestForms(self.forms.data, workflow=self._shown_workflow).content,
            self.forms.workflow,
        )

    def _switch(self, action: str) -> HttpResponse:
        """Show the input under the chosen type, but ask first if the switch drops any of it."""
        data = self.forms.data
        before = self._shown_workflow
        new = self.forms.workflow
        if action != CONFIRM and (left_out := self._left_out()):
            asking = FormPage(self.request, data, before, self.production_request)
            asking.switching = (new, left_out)
            return asking.show(touched=touched_in(self.request.POST))
        experiment = self._experiment()
        untouched = (blank(before), new_content_for(before, experiment))
        notes = list(map(str, self._left_out()))
        # Untouched stages are replaced, not converted.
        if not self.forms.has_stages_of(untouched):
            notes = [*self._converted.changed, *notes]
        for note in notes[:20]:
            messages.warning(self.request, note)
        switched = self.forms.switched(untouched, new_content_for(new, experiment))
        return FormPage(self.request, switched, new, self.production_request).show(touched=())

    def check(self, *, status: int = 200, touched: Collection[str] | None = None) -> HttpResponse:
        """Show the form with the findings of the checks: above it, at the fields, in the panel."""
        experiment = self._experiment()
        report = self._check(experiment)
        shown = without_untouched(self.forms, report, touched)
        self.forms.add_problems(
            messages_of(finding for finding in shown.findings if finding.blocks)
        )
        for finding in shown.of(Severity.WARNING):
            # Outages and downtimes are no fault of the field.
            if finding.rule not in PASSING | SHOWN_OTHERWISE:
                self.forms.add_advice(finding.path, finding.message)
        if experiment is None or self.forms.is_damaged:
            status = 400
        return self.show(status=status, report=report, touched=touched)

    def show(
        self,
        *,
        status: int = 200,
        focus: int | None = None,
        report: CheckReport | None = None,
        touched: Collection[str] | None = None,
    ) -> HttpResponse:
        forms = self.forms
        production_request = self.production_request
        if focus is not None:
            forms.stages.forms[focus].fields["name"].widget.attrs["autofocus"] = True
        elif self.request.method == "GET" and report is None:
            forms.main.fields["title"].widget.attrs["autofocus"] = True

        threads = threads_of(production_request) if production_request else []
        open_threads = [thread for thread in threads if thread.is_open]
        returned = self._mark_fields(threads)
        forms.unfold(focus)

        at = timezone.now()
        experiment = self._experiment()
        is_signed = production_request is not None and production_request.state not in EDITABLE
        if production_request and is_signed:
            own = own_version(production_request, self.request.user)
        else:
            own = 0
        if report:
            estimate = report.estimate
        elif experiment:
            estimate = estimate_for(forms.content, experiment, at)
        else:
            estimate = NO_ESTIMATE
        context = {
            "object": production_request,
            "returned": returned,
            "talk": [(forms.find_place(thread.first.field), thread) for thread in open_threads],
            "main": forms.main,
            "shared": forms.shared,
            "known": COLUMNS,
            "switching": self.switching,
            **self._rows_context(),
            "conflict": self.conflict,
            "saved_note": self._saved_note(),
            "is_unsaved": bool(self.unsaved or self.conflict),
            "signed": is_signed,
            "before_submission": not is_signed,
            "own_version": own,
            "material": production_request is not None and production_request.state in CHANGEABLE,
            "notes": self.notes,
            **panel_context(forms, report, touched, experiment, self.request.user),
            **review_context(
                forms,
                estimate,
                experiment,
                production_request,
                self.request.user,
                at=at,
                queue=self._queue if report else None,
            ),
            "touched": ALL_TOUCHED if touched is None else " ".join(touched),
            "taken": taken_names(production_request) if production_request else [],
            "threads": threads,
        }
        return render(self.request, "production/form/form.html", context, status=status)

    def show_added(self, position: int) -> HttpResponse:
        """Return the new stage alone, and what changes with it, to be put into the page.

        The checks, which run as soon as it is there, add its estimate and the review.
        """
        forms = self.forms
        form = forms.stages.forms[position]
        form.fields["name"].widget.attrs["autofocus"] = True
        threads = threads_of(self.production_request) if self.production_request else []
        self._mark_fields(threads)
        forms.unfold(position)
        # A stage whose input cannot be read is shown too.
        readable = [*forms.content.stages, *[StageContent()] * len(forms.stages.forms)]
        context = {
            "object": self.production_request,
            "form": form,
            "stage": readable[position],
            "position": position,
            "previous": forms.stages.forms[position - 1],
            "steps": form_steps(forms),
            "threads": threads,
            **self._rows_context(),
        }
        response = render(self.request, "production/form/stages/_added.html", context)
        reselect(response, "[data-stage]")
        # At once, so that nobody types between the swap and the moment that the new stage has the
        # focus.
        response["HX-Reswap"] = "beforebegin settle:0ms"
        return retarget(response, "#stages > .foot")

    def _rows_context(self) -> dict[str, Any]:
        """Return the context of the table of stages, without its rows."""
        forms = self.forms
        return {
            "stages": forms.stages.forms,
            "workflow": forms.workflow,
            "full": len(forms.stages.forms) >= MAX_STAGES,
            "max_stages": MAX_STAGES,
            "next_kind": forms.next_kind(),
            "pasted_columns": [
                forms.stages.empty_form.fields[name].label for name in PASTED_COLUMNS
            ],
        }

    def _mark_fields(self, threads: Sequence[Thread]) -> Event | None:
        """Mark fields with open threads or notes of a return. Return the event of the return."""
        returned = self._show_notes_of_return()
        for thread in threads:
            if thread.is_open:
                self.forms.mark(thread.first.field)
        return returned

    def _write(self, action: str) -> HttpResponse:
        """Save the input, apply a fix or submit.

        If the input cannot be saved, the findings of the checks are shown too. A draft may be
        incomplete, so saving a draft does not report fields that the user has not filled in yet.
        """
        if self.production_request:
            version = self.production_request.version
        else:
            version = 0
        saved = self._save(action)
        if saved is None:
            if self.conflict:
                return self.show(status=409)
            may_be_incomplete = action != "submit" and (
                self.production_request is None or self.production_request.state in EDITABLE
            )
            return self.check(
                status=400, touched=touched_in(self.request.POST) if may_be_incomplete else None
            )
        if saved.state not in EDITABLE:
            return self._report_change(saved, version)
        if action == "submit":
            return self._submit(saved)
        edit = reverse("production:request-edit", args=[saved.key])
        if action.startswith("fix"):
            self._report_fixes(saved, action)
            return redirect(f"{edit}?check=1&touched=#checks")
        renamed = ""
        if action == RENAME:
            renamed = " with new names for its output datasets"
        messages.success(
            self.request, f"Saved {saved} as a draft{renamed}. It is not submitted yet."
        )
        return redirect(edit)

    def _show_notes_of_return(self) -> Event | None:
        """Show the notes of the user who requested changes at their fields. Return the event."""
        production_request = self.production_request
        if production_request is None or production_request.state != RequestState.CHANGES_REQUESTED:
            return None
        returned = last_return(production_request)
        if returned:
            for path, note in notes_on_fields(production_request, returned.reason):
                self.forms.add_advice(path, f"{returned.actor}: {note}")
        return returned

    def _report_fixes(self, saved: Request, action: str) -> None:
        if not self.applied and action == FIX_ALL:
            messages.warning(
                self.request,
                f"Saved {saved} without a fix: each one offered leads to another problem. "
                "Choose which to apply.",
            )
            return
        if not self.applied:
            messages.warning(
                self.request, f"This fix is no longer offered. Saved {saved} without it."
            )
            return
        labels = ", ".join(fix.label for fix in self.applied[:MOST_NAMED])
        more = len(self.applied) - MOST_NAMED
        if more > 0:
            labels += f" and {more} more"
        count = f"{len(self.applied)} fix{pluralize(self.applied, 'es')}"
        messages.success(self.request, f"Saved {saved} with {count}: {labels}.")

    def _autosave(self) -> JsonResponse:
        """Save while the user types, and report the result as JSON.

        A change by another user is never overwritten.
        """
        if self._left_out():
            return JsonResponse(
                {"problem": "Not saved yet. Switch the type first, or choose the previous one."}
            )
        saved = self._save("autosave")
        if self.conflict:
            return JsonResponse({"conflict": f"{self.conflict} Your input is kept here."})
        if saved is None:
            problem = self._saved_note()
            if len(self.unsaved) == 1:
                [messages_of_field] = self.forms.errors().values()
                problem = f"Not saved yet. {self.unsaved[0]}: {messages_of_field[0]}"
            return JsonResponse({"problem": problem})
        return JsonResponse(
            {
                "saved": f"{timezone.localtime():%H:%M}",
                "key": saved.key,
                "version": saved.version,
                "created": self.production_request is None,
                "url": reverse("production:request-edit", args=[saved.key]),
            }
        )

    def _save(self, action: str) -> Request | None:
        """Save the input and return the request, or None on failure.

        After a failure, the problems are in `forms`, or the reason is in `conflict`.
        """
        if self.forms.is_valid():
            try:
                return self._saved(action)
            except InvalidFields as error:
                self.forms.add_problems(error.problems)
            except (StaleState, InvalidTransition) as error:
                self.conflict = str(error)
        self.unsaved = self._labels(self.forms.errors())
        return None

    def _labels(self, paths: Iterable[str]) -> list[str]:
        """Return the label of the field at each path, once."""
        return list(dict.fromkeys(self.forms.find_place(path).label for path in paths))

    def _saved_note(self) -> str:
        """Return whether the input is saved, and which fields prevent it."""
        faulty = self.unsaved or self._labels(self.forms.unreadable)
        if faulty:
            more = f" and {len(faulty) - MOST_NAMED} more" if len(faulty) > MOST_NAMED else ""
            return f"Not saved yet. Fix first: {', '.join(faulty[:MOST_NAMED])}{more}"
        if self.conflict:
            return "Not saved"
        production_request = self.production_request
        if production_request is None or production_request.state not in EDITABLE:
            return ""
        if self.request.method == "POST":
            stored = content_of(production_request)
            if list_changes(stored, self.forms.content):
                return "Not saved yet"
        return "Saved"

    def _saved(self, action: str) -> Request:
        experiment = self._experiment()
        content = self.forms.content
        if action.startswith("fix") and experiment is not None:
            content, self.applied = self._fixed(action, content, experiment)

        original = None
        if self.production_request:
            original = self.production_request.cloned_from
        if action == RENAME and original is not None:
            content = with_next_names(content, original)

        arguments: dict[str, Any] = {
            "content": content,
            "by": self.request.user,
            "at": timezone.now(),
            "typing": action == "autosave",
        }
        cleaned = self.forms.main.cleaned_data
        if self.production_request is None:
            return save_new(experiment=cleaned["experiment"], key=cleaned["form_key"], **arguments)
        return save_draft(
            request=self.production_request,
            version=cleaned["version"] or 0,
            experiment=experiment,
            **arguments,
        )

    def _fixed(
        self, action: str, content: RequestContent, experiment: Experiment
    ) -> tuple[RequestContent, list[Fix]]:
        """Return the content after the fixes of a button, and these fixes.

        A fix that the checks no longer offer is not applied.
        """

        def check(content: RequestContent) -> CheckReport:
            report = self._check(experiment, content)
            return without_untouched(self.forms, report, touched_in(self.request.POST))

        if action == FIX_ALL:
            return apply_fixes(content, check)
        report = self._check(experiment)
        rule, path = f"{action}::".split(":")[1:3]
        fix = report.fix_of(rule, path)
        return (fix.applied_to(content), [fix]) if fix else (content, [])

    def _check(
        self, experiment: Experiment | None, content: RequestContent | None = None
    ) -> CheckReport:
        """Return all problems of the form, or of `content` instead."""
        return check_form(
            self.forms,
            experiment,
            self.production_request,
            self.request.user,
            content,
            queue=self._queue,
        )

    @cached_property
    def _queue(self) -> QueueNow | None:
        """The queue now, read once for all checks and for the dates that the form shows."""
        return queue_before_approval(self.production_request, at=timezone.now())

    def _experiment(self) -> Experiment | None:
        return chosen_experiment(self.forms, self.production_request)

    def _report_change(self, saved: Request, version: int) -> HttpResponse:
        """Report the effect of a change to a request that is no longer a draft.

        `version` is the version before the change.
        """
        # Without a version, the form was submitted twice.
        if not version:
            messages.info(self.request, f"{saved} is already submitted.")
        elif saved.version == version:
            messages.info(self.request, f"No changes to {saved}.")
        elif saved.state == RequestState.SUBMITTED:
            messages.warning(
                self.request, f"Saved {saved}. It is checked again and needs new signatures."
            )
        else:
            messages.success(self.request, f"Saved {saved}. Its signatures stay valid.")
        return redirect(saved)

    def _submit(self, saved: Request) -> HttpResponse:
        try:
            submit_request(request=saved, by=self.request.user, at=timezone.now())
        except InvalidFields:
            messages.warning(
                self.request,
                f"Saved {saved} as a draft, but did not submit it. Fix the errors first.",
            )
            return redirect(f"{reverse('production:request-edit', args=[saved.key])}?check=1")
        except (StaleState, InvalidTransition) as error:
            messages.error(self.request, str(error))
        else:
            messages.success(self.request, f"Submitted {saved} for approval.")
        return redirect(saved)
