"""The list of requests. The page of one is in `portal`, its form in `form`."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.pagination import newest_first
from apps.production.filters import RequestFilter
from apps.production.models import Request
from apps.production.web.forms.request import writable_experiments


@require_safe
def request_list(request: AuthenticatedRequest) -> HttpResponse:
    visible = Request.objects.visible_to(request.user).select_related("experiment", "created_by")
    found = RequestFilter(request.GET, queryset=visible, request=request)
    shown = found.qs if found.is_valid() else visible.none()
    context = {
        "filter": found,
        "filtered": not found.is_valid() or any(value not in (None, "") for value in found.form.cleaned_data.values()),
        "page": newest_first(shown, by="created_at", query=request.GET),
        "may_write": writable_experiments(request.user).exists(),
    }
    return render(request, "production/request_list.html", context)
