"""The start of a new request: a workflow type, a template, an earlier request, or YAML."""

from django.core.exceptions import PermissionDenied
from django.db.models import Case, Count, IntegerField, QuerySet, Value, When
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.production.domain.checks.facts import file_list_fault
from apps.production.domain.lineage.templates import templates_for
from apps.production.domain.types.versions import newest_versions, visible_types, workflow_of
from apps.production.enums import RequestState
from apps.production.filters import RequestFilter
from apps.production.models import Request
from apps.production.web.forms.request import workflow_choices, writable_experiments
from apps.production.web.views.exchange import ImportForm

#: How many earlier requests and templates the page shows.
MOST_REQUESTS = 8
MOST_TEMPLATES = 12


@require_safe
def start(request: AuthenticatedRequest) -> HttpResponse:
    """Offer the starting points for a new request. `?text=` searches the earlier requests."""
    experiments = writable_experiments(request.user)
    if not experiments.exists():
        raise PermissionDenied("Only liaisons can create requests.")
    writable = dict(workflow_choices(request.user))
    workflows = [workflow_of(version) for version in newest_versions(visible_types(request.user))]
    types = [workflow for workflow in workflows if workflow.key in writable]
    importing = ImportForm(auto_id="id_yaml_%s")
    importing.fields["text"].widget.attrs["rows"] = 4
    context = {
        "earlier": _earlier(request)[:MOST_REQUESTS],
        "text": request.GET.get("text", ""),
        "types": types,
        "file_list_fault": file_list_fault()
        if any(workflow.takes_files for workflow in types)
        else "",
        "templates": templates_for(request.user).filter(experiment__in=experiments)[
            :MOST_TEMPLATES
        ],
        "importing": importing,
    }
    return render(request, "production/form/start.html", context)


def _earlier(request: AuthenticatedRequest) -> QuerySet[Request]:
    """Return the matching submitted requests of the user's experiments, the user's own first.

    Within each group, the newest come first.
    """
    mine = Case(
        When(created_by=request.user, then=Value(0)), default=Value(1), output_field=IntegerField()
    )
    of_experiments = Request.objects.visible_to(request.user).filter(
        experiment__in=writable_experiments(request.user)
    )
    request_filter = RequestFilter(
        {"text": request.GET.get("text", "")}, queryset=of_experiments, request=request
    )
    matching = of_experiments.none()
    if request_filter.is_valid():
        matching = request_filter.qs
    return (
        matching.exclude(state=RequestState.DRAFT)
        .select_related("experiment", "created_by", "workflow")
        .annotate(stage_count=Count("stages"))
        .order_by(mine, "-created_at", "-pk")
    )
