"""The page of probes: measured states by site and probe, and the hosts on which a probe is bad."""

from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.query import number_in
from apps.hosts.domain.probes.states import (
    bad_probes,
    measured_matrix,
    measured_states,
)
from apps.hosts.models import Probe

PAGE_SIZE = 50


@require_safe
def probes(request: AuthenticatedRequest) -> HttpResponse:
    """Show the matrix, and below it the bad probes, or all hosts of the site and probe asked for.

    The status board loads the matrix alone.
    """
    at = timezone.now()
    context = {"matrix": measured_matrix(at), "as_of": at}
    if request.htmx:
        return render(request, "hosts/_matrix.html", context)

    site = request.GET.get("site", "")
    probe = request.GET.get("probe", "")
    is_filtered = bool(site or probe)
    if is_filtered:
        states = measured_states(at, site=site, probe=probe)
        page_number = number_in(request.GET, "page") or 1
        context["page"] = Paginator(states, PAGE_SIZE).get_page(page_number)
    else:
        context["bad_probes"] = bad_probes(at)
    context |= {
        "site": site,
        "probe": probe,
        "is_filtered": is_filtered,
        "query": urlencode({"site": site, "probe": probe}) if is_filtered else "",
        "has_active_probes": Probe.objects.filter(active=True).exists(),
    }
    return render(request, "hosts/probes.html", context)
