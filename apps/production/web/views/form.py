"""The request form: write, add and move stages, save and submit; works without JavaScript."""

import re
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.views.decorators.http import require_http_methods

from apps.accounts.models import Experiment
from apps.accounts.web.request import AuthenticatedRequest
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.production.domain.actors import may
from apps.production.domain.checks import Severity, messages_of
from apps.production.domain.checks.report import CheckReport
from apps.production.domain.content.changes import may_change
from apps.production.domain.content.model import MAX_STAGES
from apps.production.domain.content.stages import content_of
from apps.production.domain.discussion import threads_of
from apps.production.domain.lifecycle.moves import submit_request
from apps.production.domain.lineage.clones import taken_names
from apps.production.domain.lineage.templates import content_from, templates_for
from apps.production.domain.requests.drafts import save_draft
from apps.production.domain.requests.form_keys import save_new
from apps.production.domain.types.versions import workflow_of
from apps.production.enums import CHANGEABLE, EDITABLE, Actor, RequestState
from apps.production.models import Request
from apps.production.permissions import may_edit
from apps.production.web.forms.request import RequestForms, blank, chosen_workflow, typed, writable_experiments
from apps.production.web.lookup import request_or_404
from apps.production.web.views.checks import check_form, panel_context
from apps.statusboard.models import Service


@require_http_methods(["GET", "HEAD", "POST"])
def new_request(request: AuthenticatedRequest) -> HttpResponse:
    experiments = writable_experiments(request.user)
    first = experiments.first()
    if first is None:
        raise PermissionDenied("Only a liaison may write requests.")
    data: Any = request.POST
    key = {"form_key": get_random_string(32)}
    sent = request.POST if request.method == "POST" else request.GET
    workflow = chosen_workflow(request.user, sent.get("workflow", ""))
    number = request.GET.get("template", "")
    if request.method != "POST" and re.fullmatch("[0-9]{1,9}", number):
        template = get_object_or_404(templates_for(request.user).filter(experiment__in=experiments), pk=number)
        begun = content_from(template)
        for note in begun.notes[:20]:
            messages.warning(request, note)
        workflow = begun.content.workflow
        data = typed(begun.content, experiment=template.experiment.key, workflow=workflow.key, **key)
    elif request.method != "POST":
        chosen = experiments.filter(key=request.GET.get("experiment", "")).first() or first
        data = typed(blank(workflow), experiment=chosen.key, workflow=workflow.key, **key)
    return _form(request, _forms(data, workflow=workflow, new_for=request.user), None)


@require_http_methods(["GET", "HEAD", "POST"])
def edit_request(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Change a draft; `?check=1` shows at once what stands between it and its submission."""
    wanted = request_or_404(request.user, key)
    content = content_of(wanted)
    closed = not may_edit(request.user, wanted) or not may_change(wanted.state, content)
    if not may(request.user, Actor.LIAISON, wanted) or (request.method != "POST" and closed):
        raise PermissionDenied("Only a liaison of the experiment may write this, while its state allows it.")
    if request.method == "POST":
        return _form(request, _forms(request.POST, workflow=workflow_of(wanted.workflow)), wanted)
    forms = _forms(typed(content, version=wanted.version), workflow=content.workflow)
    if "check" in request.GET and forms.is_valid():
        return _checked(request, forms, wanted)
    return _render(request, forms, wanted)


def _forms(data: Any, **more: Any) -> RequestForms:
    return RequestForms(data, services=list(Service.objects.values_list("slug", "name")), **more)


def _form(request: AuthenticatedRequest, forms: RequestForms, wanted: Request | None) -> HttpResponse:
    if request.method != "POST":
        return _render(request, forms, wanted)
    action = request.POST.get("do", "save")
    if action == "autosave":
        return _autosave(request, forms, wanted)
    return _pressed(request, forms, wanted, action)


def _pressed(request: AuthenticatedRequest, forms: RequestForms, wanted: Request | None, action: str) -> HttpResponse:
    """Do what the pressed button says."""
    new_for = request.user if wanted is None else None
    moved = forms.move_rows(action)
    if moved is not None:
        again = _forms(moved.data, workflow=forms.workflow, new_for=new_for)
        return _render(request, again, wanted, focus=moved.focus)
    return _checked(request, forms, wanted) if action == "check" else _write(request, forms, wanted, action)


def _write(request: AuthenticatedRequest, forms: RequestForms, wanted: Request | None, action: str) -> HttpResponse:
    """Save what was typed, with the mend whose button was pressed, and submit it if that was asked for."""
    if not forms.is_valid():
        return _refused(request, forms, wanted, action)
    version = wanted.version if wanted is not None else 0
    try:
        saved = _save(request, forms, wanted, action)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from None
    except InvalidFields as error:
        forms.add_problems(error.problems)
        return _refused(request, forms, wanted, action)
    except (StaleState, InvalidTransition) as error:
        return _render(request, forms, wanted, status=409, conflict=str(error))
    return _after(request, forms, saved, action, version)


def _after(
    request: AuthenticatedRequest, forms: RequestForms, saved: Request, action: str, version: int
) -> HttpResponse:
    """Go on after a save of what was at `version`."""
    if saved.state not in EDITABLE:
        return _changed(request, saved, version)
    if action.startswith("fix:"):
        messages.success(request, f"{saved} is saved with this change.")
        return redirect(f"{reverse('production:request-edit', args=[saved.key])}?check=1#checks")
    return _submit(request, forms, saved) if action == "submit" else _saved(request, saved)


def _autosave(request: AuthenticatedRequest, forms: RequestForms, wanted: Request | None) -> JsonResponse:
    """Save while somebody types, and say how it went; nothing of anybody else is ever overwritten."""
    if not forms.is_valid():
        return _not_saved(forms)
    try:
        saved = _save(request, forms, wanted, "autosave")
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from None
    except InvalidFields as error:
        forms.add_problems(error.problems)
        return _not_saved(forms)
    except (StaleState, InvalidTransition) as error:
        return JsonResponse({"conflict": f"Not saved: {error} What you typed is still here."})
    return JsonResponse(
        {
            "saved": f"{timezone.localtime():%H:%M}",
            "key": saved.key,
            "version": saved.version,
            "created": wanted is None,
            "url": reverse("production:request-edit", args=[saved.key]),
        }
    )


def _not_saved(forms: RequestForms) -> JsonResponse:
    _, place, message = forms.problems()[0]
    return JsonResponse({"problem": f"Not saved yet. {place}: {message}"})


def _refused(request: AuthenticatedRequest, forms: RequestForms, wanted: Request | None, action: str) -> HttpResponse:
    """Show what cannot be saved; who wanted to submit sees everything else that is wrong as well."""
    if action == "submit":
        return _checked(request, forms, wanted, status=400)
    return _render(request, forms, wanted, status=400)


def _experiment(forms: RequestForms, wanted: Request | None) -> Experiment | None:
    forms.main.is_valid()
    return forms.main.cleaned_data.get("experiment") if wanted is None else wanted.experiment


def _checked(
    request: AuthenticatedRequest, forms: RequestForms, wanted: Request | None, status: int = 200
) -> HttpResponse:
    """Show the form with what the checks say of it, beside the fields and in whole."""
    experiment = _experiment(forms, wanted)
    if experiment is None or forms.is_damaged:
        return _render(request, forms, wanted, status=400)
    found = check_form(forms, experiment, wanted, request.user)
    forms.is_valid()
    forms.add_problems(messages_of(finding for finding in found.findings if finding.blocks))
    for finding in found.of(Severity.WARNING):
        forms.add_advice(finding.path, finding.message)
    return _render(request, forms, wanted, status=status, found=found)


def _save(request: AuthenticatedRequest, forms: RequestForms, wanted: Request | None, action: str) -> Request:
    by, at, content = request.user, timezone.now(), forms.content
    experiment = _experiment(forms, wanted)
    if action.startswith("fix:") and experiment is not None:
        rule, path = f"{action}::".split(":")[1:3]
        content = check_form(forms, experiment, wanted, by).apply_fix(content, rule, path) or content
    given, typing = forms.main.cleaned_data, action == "autosave"
    if wanted is None:
        key = given["form_key"]
        return save_new(experiment=given["experiment"], content=content, key=key, by=by, at=at, typing=typing)
    return save_draft(request=wanted, content=content, version=given["version"] or 0, by=by, at=at, typing=typing)


def _saved(request: AuthenticatedRequest, saved: Request) -> HttpResponse:
    messages.success(request, f"{saved} is saved as a draft. Nobody is asked to approve it yet.")
    return redirect("production:request-edit", key=saved.key)


def _changed(request: AuthenticatedRequest, saved: Request, version: int) -> HttpResponse:
    """Say what a change of a request past its draft came to."""
    if not version:  # the form was sent twice
        messages.info(request, f"{saved} was submitted already.")
    elif saved.version == version:
        messages.info(request, f"Nothing of {saved} was changed.")
    elif saved.state == RequestState.SUBMITTED:
        messages.warning(request, f"{saved} is changed: it is checked again and needs its signatures anew.")
    else:
        messages.success(request, f"{saved} is changed. What was signed still holds.")
    return redirect(saved)


def _submit(request: AuthenticatedRequest, forms: RequestForms, saved: Request) -> HttpResponse:
    try:
        submit_request(request=saved, by=request.user, at=timezone.now())
    except InvalidFields:
        messages.warning(request, f"{saved} is saved as a draft but not submitted: some things must be mended first.")
        return redirect(f"{reverse('production:request-edit', args=[saved.key])}?check=1")
    except (StaleState, InvalidTransition) as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"{saved} is sent for approval.")
    return redirect(saved)


def _render(
    request: AuthenticatedRequest,
    forms: RequestForms,
    wanted: Request | None,
    *,
    status: int = 200,
    focus: int | None = None,
    conflict: str = "",
    found: CheckReport | None = None,
) -> HttpResponse:
    if focus is not None:
        forms.stages.forms[focus].fields["name"].widget.attrs["autofocus"] = True
    context = {
        "object": wanted,
        "main": forms.main,
        "stages": forms.stages.forms,
        "workflow": forms.workflow,
        "problems": forms.problems(),
        "conflict": conflict,
        "signed": wanted is not None and wanted.state not in EDITABLE,
        "material": wanted is not None and wanted.state in CHANGEABLE,
        "full": len(forms.stages.forms) >= MAX_STAGES,
        "max_stages": MAX_STAGES,
        **panel_context(forms, found),
        "taken": taken_names(wanted) if wanted else [],
        "threads": threads_of(wanted) if wanted else [],
    }
    return render(request, "production/request_form.html", context, status=status)
