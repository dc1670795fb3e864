"""The list of datasets, and the page of one with its provenance."""

from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.pagination import in_order
from apps.core.web.query import number_in
from apps.core.web.sorting import field_order, read_sort
from apps.datasets.domain.answers import by_catalogue
from apps.datasets.domain.listing import (
    only_read_datasets,
    rows_of_names,
    rows_of_stages,
    written_datasets,
)
from apps.datasets.domain.parts import recoveries_among
from apps.datasets.domain.provenance import MOST_DATASETS, MOST_STEPS, provenance_of
from apps.datasets.filters import ORDERS, DatasetFilter
from apps.datasets.web.graph import draw_graph

PAGE_SIZE = 50
MOST_PAGES = 100_000
#: The orders of the datasets that requests only read: parameter, and column.
ORDERS_OF_INPUTS = {"created": "newest", "name": "input_dataset"}


@require_safe
def dataset_list(request: AuthenticatedRequest) -> HttpResponse:
    """List the datasets that requests write, or with `?made=no` those that they only read."""
    written = written_datasets(request.user)
    dataset_filter = DatasetFilter(request.GET, queryset=written, request=request)
    is_valid = dataset_filter.is_valid()
    is_filtered = not is_valid
    if is_valid:
        values = dataset_filter.form.cleaned_data.values()
        is_filtered = any(value not in (None, "", []) for value in values)
    context: dict[str, Any] = {"filter": dataset_filter, "is_filtered": is_filtered}
    if request.GET.get("made") == "no":
        return render(request, "datasets/inputs.html", context | _inputs(request, dataset_filter))

    sort = read_sort(request, ORDERS, default="-created")
    shown = dataset_filter.qs if is_valid else written.none()
    page = in_order(shown, by=field_order(sort, ORDERS), query=request.GET, size=PAGE_SIZE)
    more_open = not is_valid or bool(dataset_filter.form.cleaned_data["state"])
    context |= {
        "sort": sort,
        "page": page,
        "rows": rows_of_stages(page.rows, request.user),
        "more_open": more_open,
    }
    return render(request, "datasets/list.html", context)


def _inputs(request: AuthenticatedRequest, dataset_filter: DatasetFilter) -> dict[str, Any]:
    """Return the context of the list of datasets that no request writes."""
    sort = read_sort(request, ORDERS_OF_INPUTS, default="-created")
    names = only_read_datasets(request.user).none()
    if dataset_filter.is_valid():
        cleaned = dataset_filter.form.cleaned_data
        names = only_read_datasets(
            request.user, text=cleaned["q"], experiment=cleaned["experiment"]
        )
    ordered = names.order_by(field_order(sort, ORDERS_OF_INPUTS), "input_dataset")
    number = max(1, min(number_in(request.GET, "page") or 1, MOST_PAGES))
    start = (number - 1) * PAGE_SIZE
    # One more than is shown tells whether there is a next page, without counting all.
    listed = list(ordered.values_list("input_dataset", flat=True)[start : start + PAGE_SIZE + 1])
    return {
        "sort": sort,
        "number": number,
        "previous": number - 1,
        "next": number + 1 if len(listed) > PAGE_SIZE else 0,
        "rows": rows_of_names(listed[:PAGE_SIZE], request.user),
    }


@require_safe
def dataset(request: AuthenticatedRequest) -> HttpResponse:
    """Show the dataset `?name=` with its provenance; 404 if no visible request names it."""
    provenance = provenance_of(request.GET.get("name", ""), request.user)
    if provenance is None:
        raise Http404
    context = {
        "dataset": provenance,
        "graph": draw_graph(provenance),
        "parts": provenance.parts,
        "recoveries": recoveries_among(provenance.makers),
        "catalogues": by_catalogue(provenance.own_answers),
        "most_steps": MOST_STEPS,
        "most_datasets": MOST_DATASETS,
    }
    return render(request, "datasets/dataset.html", context)
