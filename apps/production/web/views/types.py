"""Workflow types and their arguments."""

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.production.domain.types.versions import newest_versions, visible_types, workflow_of
from apps.production.web.forms.request import workflow_choices, writable_experiments


@require_safe
def workflow_list(request: AuthenticatedRequest) -> HttpResponse:
    types = []
    for version in newest_versions(visible_types(request.user)):
        types.append((version, workflow_of(version)))
    writable = {}
    if writable_experiments(request.user).exists():
        writable = dict(workflow_choices(request.user))
    context = {"types": types, "writable": writable}
    return render(request, "production/catalogue/workflows.html", context)


@require_safe
def workflow_page(request: AuthenticatedRequest, key: str) -> HttpResponse:
    version = get_object_or_404(newest_versions(visible_types(request.user)), type__key=key)
    may_write = writable_experiments(request.user).exists() and key in dict(
        workflow_choices(request.user)
    )
    context = {"version": version, "workflow": workflow_of(version), "may_write": may_write}
    return render(request, "production/catalogue/workflow.html", context)
