"""Saved views of lists: save, rename, share and delete."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from apps.accounts.domain import saved_views
from apps.accounts.domain.experiments import visible_experiments
from apps.accounts.domain.saved_views import (
    MOST_QUERY,
    is_list_path,
    kept_query,
    normal_query,
    views_for,
)
from apps.accounts.models import Experiment, SavedView, User
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.errors import show_errors


class ViewForm(forms.Form):
    """The name and sharing of a view, and the list with its query."""

    path = forms.CharField(max_length=100, validators=[is_list_path])
    name = forms.CharField(max_length=60)
    query = forms.CharField(
        max_length=MOST_QUERY,
        required=False,
        error_messages={"max_length": "These filters are too long to be kept."},
    )
    experiment = forms.ModelChoiceField(
        queryset=Experiment.objects.none(), to_field_name="key", required=False
    )

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        experiments = visible_experiments(user)
        self.fields["experiment"].queryset = experiments  # type: ignore[attr-defined]

    def clean_query(self) -> str:
        """Return the query with sorted parameters, so that equal views have equal queries."""
        return kept_query(self.cleaned_data["query"])


def views_context(request: AuthenticatedRequest) -> dict[str, Any]:
    """Return the context of `accounts/_saved_views.html` for the requested list."""
    shown = normal_query(request.META.get("QUERY_STRING", ""))
    views = list(views_for(request.user).filter(path=request.path))
    current = next((view for view in views if view.query == shown), None)
    return {
        "saved_views": views,
        "current_view": current,
        "view_query": shown,
        "view_groups": visible_experiments(request.user),
    }


@require_POST
def save_view(request: AuthenticatedRequest) -> HttpResponse:
    form = ViewForm(request.POST, user=request.user)
    if not form.is_valid():
        return _refused(request, form)
    with show_errors(request):
        made = saved_views.save_view(owner=request.user, **form.cleaned_data)
        messages.success(request, f"Saved the view “{made.name}”.")
    return _back(form.cleaned_data["path"], form.cleaned_data["query"])


@require_POST
def change_view(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Rename, share or delete (`do=delete`) a view of the user."""
    view = get_object_or_404(SavedView, pk=pk, owner=request.user)
    if request.POST.get("do") == "delete":
        view.delete()
        messages.success(request, f"Deleted the view “{view.name}”.")
        return redirect(view.path)
    form = ViewForm(
        {"path": view.path, "query": view.query, **request.POST.dict()}, user=request.user
    )
    if not form.is_valid():
        return _refused(request, form)
    with show_errors(request):
        saved_views.save_view(owner=request.user, view=view, **form.cleaned_data)
        messages.success(request, f"Saved the view “{form.cleaned_data['name']}”.")
    return _back(view.path, form.cleaned_data["query"])


def _refused(request: AuthenticatedRequest, form: ViewForm) -> HttpResponse:
    problems = [*form.errors.get("name", []), *form.errors.get("query", [])]
    reasons = " ".join(map(str, problems or ["Reload the page."]))
    messages.error(request, f"The view was not saved. {reasons}")
    path = form.cleaned_data.get("path", "/")
    return _back(path, normal_query(form.data.get("query", "")))


def _back(path: str, query: str) -> HttpResponse:
    return redirect(f"{path}?{query}" if query else path)
