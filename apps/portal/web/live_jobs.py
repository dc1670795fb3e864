"""The page of queued, running and held arrays, a row each."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.permissions import is_opg
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.clusters.schedulers.base import CurrentState
from apps.core.domain.pagination import in_order
from apps.core.web.query import read_query_or_warn
from apps.jobs.domain.live.arrays import live_arrays
from apps.jobs.domain.live.queue import queue_known
from apps.jobs.web.views import LIVE_TABS, live_tabs
from apps.portal.pages.live_jobs import live_rows


@require_safe
def live_jobs(request: AuthenticatedRequest) -> HttpResponse:
    """List the arrays of a state, those that were submitted first at the top."""
    states = {str(state): state for state in LIVE_TABS}
    state = read_query_or_warn(request, "state", states.get, expected=f"one of {', '.join(states)}")
    state = state or CurrentState.HELD
    reason = request.GET.get("reason", "")[:200].replace("\0", "")
    arrays = live_arrays(request.user, state=state, reason=reason)
    page = in_order(arrays, by="submitted_at", query=request.GET)
    read_at, missing = queue_known()
    context = {
        "state": state.value,
        "reason": reason,
        "page": page,
        "rows": live_rows(page.rows, state=state, user=request.user),
        "tabs": live_tabs(request, state.value),
        "read_at": read_at,
        "missing": missing,
        "sees_errors": is_opg(request.user),
    }
    return render(request, "portal/live_jobs.html", context)
