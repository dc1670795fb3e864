"""What changed in a request between two of its kept versions."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.production.domain.content.revisions import compare, last_submission, revisions_of
from apps.production.models import RequestRevision
from apps.production.web.lookup import request_or_404


@require_safe
def changes(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Compare `?old=` with `?new=`; unless given, the last submission or oldest version with what is there now."""
    wanted = request_or_404(request.user, key)
    kept = revisions_of(wanted)
    old = _chosen(kept, request.GET.get("old", "")) or last_submission(wanted) or (kept[-1] if kept else None)
    new = _chosen(kept, request.GET.get("new", ""))
    context = {
        "object": wanted,
        "revisions": kept,
        "comparison": compare(wanted, old=old, new=new) if old else None,
    }
    return render(request, "production/changes.html", context)


def _chosen(kept: list[RequestRevision], sent: str) -> RequestRevision | None:
    return next((revision for revision in kept if str(revision.pk) == sent), None)
