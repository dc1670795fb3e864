"""Whether a view has read a parameter of its address: otherwise a search gets the same answer."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpResponse, QueryDict
from django.utils.functional import cached_property

#: The field of the search in the header, which repeats `q` on every page.
HEADER = b'<input id="find"'


class CountingQuery(QueryDict):
    """The parameters of an address, which count how often anything asks for one."""

    reads = 0


def _counted(name: str) -> Callable[..., Any]:
    """Return the method of a query with this name, which counts its calls."""
    method = getattr(QueryDict, name)

    def call(query: CountingQuery, *args: Any, **options: Any) -> Any:
        query.reads += 1
        return method(query, *args, **options)

    return call


for _name in (
    *("__contains__", "__getitem__", "__iter__", "__len__", "copy", "dict", "getlist", "items"),
    *("keys", "lists", "urlencode", "values"),
):
    setattr(CountingQuery, _name, _counted(_name))


def count_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each request of the test a `CountingQuery`."""
    query = cached_property(lambda request: CountingQuery(request.META.get("QUERY_STRING", "")))
    query.__set_name__(WSGIRequest, "GET")
    monkeypatch.setattr(WSGIRequest, "GET", query)


def reads_parameters(response: HttpResponse) -> bool:
    """Return whether more than the header of the page has asked for a parameter."""
    is_page = HEADER in response.getvalue()
    return response.wsgi_request.GET.reads > int(is_page)
