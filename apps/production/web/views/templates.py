"""Clones and templates of requests."""

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.errors import show_errors
from apps.core.web.query import number_in
from apps.production.domain.lineage import templates as templates_module
from apps.production.domain.lineage.clones import clone_request
from apps.production.domain.lineage.templates import (
    MAX_NAME,
    may_manage,
    save_template,
    templates_for,
)
from apps.production.models import RequestTemplate
from apps.production.web.forms.request import writable_experiments
from apps.production.web.lookup import request_or_404

#: Templates per page.
PAGE = 50


class NameForm(forms.Form):
    name = forms.CharField(
        max_length=MAX_NAME, help_text="An existing template of this name is replaced."
    )


@require_POST
def clone(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Create a draft from another request and open it.

    `names=next` also renames its output datasets.
    """
    production_request = request_or_404(request.user, key)
    renames = request.POST.get("names") == "next"
    with show_errors(request):
        made, notes = clone_request(
            request=production_request, by=request.user, at=timezone.now(), next_names=renames
        )
        renamed = " Its output datasets have new names." if renames else ""
        messages.success(request, f"Cloned {production_request} as draft {made}.{renamed}")
        for note in notes[:20]:
            messages.warning(request, note)
        return redirect("production:request-edit", key=made.key)
    return redirect(production_request)


@require_safe
def templates(request: AuthenticatedRequest) -> HttpResponse:
    """List the templates visible to the user, one page after the template `?after=`."""
    writable_pks = set(writable_experiments(request.user).values_list("pk", flat=True))
    visible = templates_for(request.user)
    last = visible.filter(pk=number_in(request.GET, "after") or 0).first()
    if last is not None:
        visible = visible.filter(
            Q(experiment__key__gt=last.experiment.key)
            | Q(experiment=last.experiment_id, name__gt=last.name)
        )

    shown = list(visible[: PAGE + 1])
    rows = []
    for template in shown[:PAGE]:
        is_writable = template.experiment_id in writable_pks
        may_manage_it = may_manage(request.user, template.experiment_id)
        rows.append((template, is_writable, may_manage_it))
    more = shown[PAGE - 1] if len(shown) > PAGE else None
    return render(
        request,
        "production/catalogue/templates.html",
        {"rows": rows, "more": more, "is_first": last is None},
    )


@require_http_methods(["GET", "HEAD", "POST"])
def make_template(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Save a request as a template."""
    production_request = request_or_404(request.user, key)
    if not may_manage(request.user, production_request.experiment_id):
        raise PermissionDenied(
            "Only liaisons of the experiment and the OPG can create its templates."
        )
    if request.method == "POST":
        form = NameForm(request.POST)
    else:
        form = NameForm(initial={"name": production_request.title[:80]})
    if form.is_valid():
        with show_errors(request, form):
            made = save_template(
                request=production_request, by=request.user, at=timezone.now(), **form.cleaned_data
            )
            messages.success(request, f"Saved the template “{made}” of {made.experiment}.")
            return redirect("production:templates")
    return _name_page(request, form, f"Save {production_request} as a template")


@require_http_methods(["GET", "HEAD", "POST"])
def rename_template(request: AuthenticatedRequest, number: int) -> HttpResponse:
    template = _template(request, number)
    if request.method == "POST":
        form = NameForm(request.POST)
    else:
        form = NameForm(initial={"name": template.name})
    form.fields["name"].help_text = ""
    if form.is_valid():
        with show_errors(request, form):
            templates_module.rename_template(
                template=template, by=request.user, at=timezone.now(), **form.cleaned_data
            )
            return redirect("production:templates")
    return _name_page(request, form, "Rename template")


@require_POST
def delete_template(request: AuthenticatedRequest, number: int) -> HttpResponse:
    template = _template(request, number)
    templates_module.delete_template(template=template, by=request.user, at=timezone.now())
    messages.success(request, f"Deleted the template “{template}”. Requests created from it stay.")
    return redirect("production:templates")


def _template(request: AuthenticatedRequest, number: int) -> RequestTemplate:
    template = get_object_or_404(templates_for(request.user), pk=number)
    if not may_manage(request.user, template.experiment_id):
        raise PermissionDenied(
            "Only liaisons of the experiment and the OPG can change its templates."
        )
    return template


def _name_page(request: AuthenticatedRequest, form: Any, title: str) -> HttpResponse:
    context = {"form": form, "title": title}
    return render(
        request,
        "production/catalogue/template_name.html",
        context,
        status=400 if form.errors else 200,
    )
