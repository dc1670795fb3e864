"""The page of exit codes: their meanings, and how many jobs end with each."""

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.diagnosis.domain.known_errors.exit_codes import failures_by_code
from apps.diagnosis.filters import ExitCodes
from apps.diagnosis.models import ExitCodeMeaning

PAGE_SIZE = 50


@require_safe
def exit_codes(request: AuthenticatedRequest) -> HttpResponse:
    """List the failures of 30 days by exit code, and all known meanings."""
    at = timezone.now()
    chosen = ExitCodes(request.GET, ExitCodeMeaning.objects.filter(enabled=True))
    context = {
        "filter": chosen,
        "page": Paginator(chosen.qs, PAGE_SIZE).get_page(request.GET.get("page")),
        "figures": failures_by_code(request.user, at=at),
        "may_edit": request.user.has_perm("diagnosis.change_exitcodemeaning"),
        "at": at,
    }
    return render(request, "diagnosis/known_errors/exit_codes.html", context)
