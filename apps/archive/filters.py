"""Filters in the address of the archive's pages and API; an invalid value finds nothing."""

from datetime import date, datetime, time
from functools import partial
from typing import Any

import django_filters
from django import forms
from django.db.models import QuerySet
from django.http import QueryDict
from django.utils import timezone

from apps.archive.domain.search.search import ScriptSearch, find
from apps.archive.domain.store.contents import jobs_with_keys
from apps.archive.models import ArchivedJob
from apps.clusters.models import Cluster
from apps.core.domain.pagination import Page, in_order, newest_first
from apps.core.web.moments import DayFilter
from apps.core.web.query import AnyOf
from apps.jobs.enums import ANY_FAILURE, FAILED_STATES, STATE_CHOICES
from apps.jobs.filters import ProbeJobsFilter

#: How many of the newest jobs are sorted by a column without an index.
MOST_SORTED = 10_000
LONGEST_LINE = 2000  # an address holds no more than 4,000 characters
_DAY = forms.DateInput(attrs={"type": "date"})


def _moment(day: date, clock: time) -> datetime:
    """Return a time of the reader's day, as the index knows it."""
    return timezone.make_aware(datetime.combine(day, clock))


def _hint(text: str) -> forms.TextInput:
    return forms.TextInput(
        attrs={"placeholder": text, "autocomplete": "off", "spellcheck": "false"}
    )


class SearchForm(forms.Form):
    """Requires searches to be narrow enough to finish within the time limit of a page."""

    NARROW = ("user", "request", "since", "until", "job", "script")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("text") and not any(cleaned.get(name) for name in self.NARROW):
            self.add_error("text", "Name a user, a request or a day as well.")
        if cleaned.get("words") and not ScriptSearch(words=cleaned["words"]).terms:
            self.add_error("words", "No word is in this: look for it as any text.")
        return cleaned


class ArchivedJobs(AnyOf):
    """Filter archived jobs by their fields and by the contents of their scripts."""

    words = django_filters.CharFilter(
        method="in_script",
        label="Words in script",
        max_length=200,
        widget=_hint("gromacs/2023.3 --mem=4G"),
        help_text="Matches all whole words. Use * for a prefix: gromacs/20*.",
    )
    cluster = django_filters.ModelChoiceFilter(
        queryset=Cluster.objects.all(), to_field_name="name", empty_label="All"
    )
    job = django_filters.CharFilter(field_name="job_id", label="Job ID", max_length=64)
    user = django_filters.CharFilter(max_length=64)
    request = django_filters.CharFilter(
        field_name="request_key", lookup_expr="iexact", label="Request", max_length=64
    )
    stage = django_filters.CharFilter(max_length=64)
    since = DayFilter(method="from_day", label="Submitted from", widget=_DAY)
    until = DayFilter(method="to_day", label="Submitted until", widget=_DAY)
    state = django_filters.ChoiceFilter(
        method="ended",
        label="State",
        choices=[(ANY_FAILURE, "Any failure"), *STATE_CHOICES],
        empty_label="Any state",
    )
    account = django_filters.CharFilter(max_length=64)
    name = django_filters.CharFilter(max_length=200, label="Job name")
    module = django_filters.CharFilter(
        method="in_script",
        label="Loads module",
        max_length=100,
        widget=_hint("gromacs or gromacs/2023.3"),
    )
    text = django_filters.CharFilter(
        method="in_script",
        label="Text in script",
        max_length=200,
        strip=False,
        help_text=(
            "Requires a user, request or day filter. Searches the newest jobs first, within a "
            "time limit."
        ),
    )
    line = django_filters.CharFilter(
        method="in_script",
        label="Line of script",
        max_length=LONGEST_LINE,
        widget=_hint("the whole line"),
    )
    script = django_filters.CharFilter(
        method="with_script", label="Script", widget=forms.HiddenInput
    )
    probes = ProbeJobsFilter()

    ONCE = frozenset({"words", "module", "text", "line"})
    #: Shown at once; the others behind "More filters".
    FIRST = ("words", "user", "request", "stage", "since", "until", "probes")

    class Meta:
        model = ArchivedJob
        fields: list[str] = []
        form = SearchForm

    @property
    def search(self) -> ScriptSearch:
        """Return the search in the scripts."""
        values = self.form.cleaned_data
        return ScriptSearch(
            **{name: values.get(name) or "" for name in ("words", "line", "module", "text")}
        )

    def page(self, query: QueryDict, *, size: int = 50) -> Page[ArchivedJob]:
        """Return the page that `query` asks for, newest submission first. Raises `TooWide`."""
        rows = self.qs if self.is_valid() else ArchivedJob.objects.none()
        search = partial(find, search=self.search)
        return newest_first(rows, by="submitted_at", query=query, size=size, find=search)

    @property
    def can_sort(self) -> bool:
        """Whether the jobs can be ordered: a search in scripts finds the newest first."""
        return self.is_valid() and not any(self.form.cleaned_data.get(name) for name in self.ONCE)

    def sorted_page(self, query: QueryDict, *, by: str, size: int = 50) -> Page[ArchivedJob]:
        """Return the page that `query` asks for, ordered by a field.

        Other fields than `submitted_at` order the `MOST_SORTED` newest jobs.
        """
        rows = self.qs
        if by.removeprefix("-") != "submitted_at":
            newest = rows.order_by("-submitted_at", "-pk").values("pk")[:MOST_SORTED]
            rows = jobs_with_keys(newest)
        return in_order(rows, by=by, query=query, size=size)

    def in_script(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Leave it to `find`, which knows in which order to look."""
        return rows

    def ended(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(state__in=sorted(FAILED_STATES) if value == ANY_FAILURE else [value])

    def from_day(self, rows: QuerySet[Any], name: str, value: date) -> QuerySet[Any]:
        return rows.filter(submitted_at__gte=_moment(value, time.min))

    def to_day(self, rows: QuerySet[Any], name: str, value: date) -> QuerySet[Any]:
        return rows.filter(submitted_at__lte=_moment(value, time.max))

    def with_script(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Keep the jobs whose script has this SHA-256, in hexadecimal."""
        try:
            return rows.filter(script__sha256=bytes.fromhex(value))
        except ValueError:
            return rows.none()
