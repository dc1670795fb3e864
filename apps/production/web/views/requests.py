"""The list of requests, and the changes of one. Its page is in `portal`, its form in `form`."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.pagination import newest_first
from apps.production.domain.content.revisions import compare, last_reviewed, revisions_of
from apps.production.filters import RequestFilter
from apps.production.models import Request, RequestRevision
from apps.production.web.forms.request import writable_experiments
from apps.production.web.lookup import request_or_404


@require_safe
def request_list(request: AuthenticatedRequest) -> HttpResponse:
    visible = (
        Request.objects.visible_to(request.user)
        .select_related("experiment", "created_by")
        .prefetch_related("attention")
    )
    found = RequestFilter(request.GET, queryset=visible, request=request)
    shown = found.qs if found.is_valid() else visible.none()
    context = {
        "filter": found,
        "filtered": not found.is_valid() or any(value not in (None, "") for value in found.form.cleaned_data.values()),
        "page": newest_first(shown, by="created_at", query=request.GET),
        "may_write": writable_experiments(request.user).exists(),
    }
    return render(request, "production/request_list.html", context)


@require_safe
def changes(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Compare version `?old=` (default: the last reviewed) with `?new=` (default: current)."""
    wanted = request_or_404(request.user, key)
    kept = revisions_of(wanted)
    old = _chosen(kept, request.GET.get("old", "")) or last_reviewed(wanted)
    new = _chosen(kept, request.GET.get("new", ""))
    context = {
        "object": wanted,
        "revisions": kept,
        "comparison": compare(wanted, old=old, new=new) if old else None,
    }
    return render(request, "production/changes.html", context)


def _chosen(kept: list[RequestRevision], sent: str) -> RequestRevision | None:
    return next((revision for revision in kept if str(revision.pk) == sent), None)
