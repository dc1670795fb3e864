"""Tables that are sorted by `?sort=`."""

from operator import attrgetter
from types import SimpleNamespace

from django.contrib.messages.storage.fallback import FallbackStorage
from django.template import Context, Template

from apps.core.web.sorting import read_sort, sort_rows

COLUMNS = {"size": attrgetter("size"), "name": attrgetter("name")}
ROWS = [SimpleNamespace(name=name, size=size) for name, size in (("b", 2), ("a", None), ("c", 3))]


def request_of(rf, address):
    request = rf.get(address)
    request.session = {}
    request._messages = FallbackStorage(request)
    return request


def test_rows_without_a_value_come_last_in_both_directions():
    assert [row.name for row in sort_rows(ROWS, COLUMNS, "size")] == ["b", "c", "a"]
    assert [row.name for row in sort_rows(ROWS, COLUMNS, "-size")] == ["c", "b", "a"]


def test_an_unknown_column_is_reported_and_the_default_order_shown(rf):
    request = request_of(rf, "/?sort=-nothing")
    assert read_sort(request, COLUMNS, default="-size") == "-size"
    assert "expected one of size, name" in str(next(iter(request._messages)))
    assert read_sort(request_of(rf, "/?sort=name"), COLUMNS, default="-size") == "name"


def heads(rf, sort):
    text = '{% sort_head "size" "Size" "number" %}{% sort_head "name" "Name" %}'
    context = {"request": rf.get("/?after=x&page=2&q=1"), "sort": sort}
    return Template(text).render(Context(context))


def test_numbers_sort_the_largest_first_and_texts_from_a(rf):
    assert 'href="?q=1&amp;sort=-size"' in heads(rf, "")
    assert 'href="?q=1&amp;sort=name"' in heads(rf, "")
    assert "aria-sort" not in heads(rf, "")


def test_the_sorted_column_says_so_and_its_link_reverses_the_order(rf):
    assert '<th class="number sorted" aria-sort="descending">' in heads(rf, "-size")
    assert 'href="?q=1&amp;sort=size"' in heads(rf, "-size")
    assert 'aria-sort="ascending"' in heads(rf, "name")
    assert 'href="?q=1&amp;sort=-name"' in heads(rf, "name")
