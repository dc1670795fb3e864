"""The request form: write, add and move stages, save and submit; works without JavaScript."""

from typing import Any, cast

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from apps.accounts.models import Experiment, User
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.production import services
from apps.production.checks import Problems, check_content
from apps.production.content import MAX_STAGES, RequestContent
from apps.production.enums import Who
from apps.production.forms import RequestForms, blank, typed, workflow_choices, writable_experiments
from apps.production.gathering import facts_for
from apps.production.models import Request
from apps.production.permissions import may, may_edit
from apps.production.selectors import content_of, with_stages
from apps.production.workflow_types import newest_version, workflow_of
from apps.production.workflows.builtin import general
from apps.production.workflows.declaration import Workflow
from apps.services.models import Service


@require_http_methods(["GET", "HEAD", "POST"])
def new_request(request: HttpRequest) -> HttpResponse:
    experiments = writable_experiments(request.user)
    first = experiments.first()
    if first is None:
        raise PermissionDenied("Only a liaison may write requests.")
    data: Any = request.POST
    workflow = _chosen_workflow(request)
    if request.method != "POST":
        chosen = experiments.filter(key=request.GET.get("experiment", "")).first() or first
        data = typed(blank(workflow), experiment=chosen.key, workflow=workflow.key)
    return _form(request, _forms(data, workflow=workflow, new_for=request.user), None)


def _chosen_workflow(request: HttpRequest) -> Workflow:
    """Return the newest version of the type that is asked for; the general one where it may not be had."""
    sent = request.POST if request.method == "POST" else request.GET
    key = sent.get("workflow", "")
    known = dict(workflow_choices(request.user))
    version = newest_version(key)
    return workflow_of(version) if version and key in known else general()


@require_http_methods(["GET", "HEAD", "POST"])
def edit_request(request: HttpRequest, key: str) -> HttpResponse:
    """Change a draft; `?check=1` shows at once what stands between it and its submission."""
    wanted: Request = get_object_or_404(with_stages(Request.objects.visible_to(request.user)), key=key)
    if not may(request.user, Who.LIAISON, wanted) or (request.method != "POST" and not may_edit(request.user, wanted)):
        raise PermissionDenied("Only a liaison of the experiment may write this, while it is a draft.")
    if request.method == "POST":
        return _form(request, _forms(request.POST, workflow=workflow_of(wanted.workflow)), wanted)
    content = content_of(wanted)
    forms = _forms(typed(content, version=wanted.version), workflow=content.workflow)
    if "check" in request.GET and forms.is_valid():
        forms.add_problems(_blocking(content, wanted.experiment, wanted))
    return _render(request, forms, wanted)


def _forms(data: Any, **more: Any) -> RequestForms:
    return RequestForms(data, services=list(Service.objects.values_list("slug", "name")), **more)


def _form(request: HttpRequest, forms: RequestForms, wanted: Request | None) -> HttpResponse:
    """Do what the pressed button says."""
    if request.method != "POST":
        return _render(request, forms, wanted)
    action = request.POST.get("do", "save")
    new_for = request.user if wanted is None else None
    moved = forms.move_rows(action)
    if moved is not None:
        again = _forms(moved.data, workflow=forms.workflow, new_for=new_for)
        return _render(request, again, wanted, focus=moved.focus)
    if not forms.is_valid():
        return _refused(request, forms, wanted, action)
    try:
        saved = _save(request, forms, wanted)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from None
    except InvalidFields as error:
        forms.add_problems(error.problems)
        return _refused(request, forms, wanted, action)
    except (StaleState, InvalidTransition) as error:
        return _render(request, forms, wanted, status=409, conflict=str(error))
    return _submit(request, forms, saved) if action == "submit" else _saved(request, saved)


def _refused(request: HttpRequest, forms: RequestForms, wanted: Request | None, action: str) -> HttpResponse:
    """Show what cannot be saved; who wanted to submit sees everything else that is wrong as well."""
    experiment = forms.main.cleaned_data.get("experiment") if wanted is None else wanted.experiment
    if action == "submit" and experiment is not None:
        forms.add_problems(_blocking(forms.content(), experiment, wanted))
    return _render(request, forms, wanted, status=400)


def _blocking(content: RequestContent, experiment: Experiment, wanted: Request | None) -> Problems:
    return check_content(content, facts_for(content, experiment=experiment, request=wanted, at=timezone.now()))


def _save(request: HttpRequest, forms: RequestForms, wanted: Request | None) -> Request:
    by, at, content = cast(User, request.user), timezone.now(), forms.content()
    if wanted is None:
        return services.create_draft(experiment=forms.main.cleaned_data["experiment"], content=content, by=by, at=at)
    version = forms.main.cleaned_data["version"] or 0
    return services.save_draft(request=wanted, content=content, version=version, by=by, at=at)


def _saved(request: HttpRequest, saved: Request) -> HttpResponse:
    messages.success(request, f"{saved} is saved as a draft. Nobody is asked to approve it yet.")
    return redirect("production:request-edit", key=saved.key)


def _submit(request: HttpRequest, forms: RequestForms, saved: Request) -> HttpResponse:
    try:
        services.submit_request(request=saved, by=cast(User, request.user), at=timezone.now())
    except InvalidFields:
        messages.warning(request, f"{saved} is saved as a draft but not submitted: some things must be mended first.")
        return redirect(f"{reverse('production:request-edit', args=[saved.key])}?check=1")
    except (StaleState, InvalidTransition) as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"{saved} is sent for approval.")
    return redirect("production:request-detail", key=saved.key)


def _render(
    request: HttpRequest,
    forms: RequestForms,
    wanted: Request | None,
    *,
    status: int = 200,
    focus: int | None = None,
    conflict: str = "",
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
        "full": len(forms.stages.forms) >= MAX_STAGES,
        "max_stages": MAX_STAGES,
    }
    return render(request, "production/request_form.html", context, status=status)
