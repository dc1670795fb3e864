"""The matching lines of hits, and how the hits divide by what a search may be narrowed to."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from apps.accounts.models import Experiment, User
from apps.archive.domain.search.search import LinePart
from apps.archive.domain.shown_contents import SHOWN_BYTES, escape_unprintable
from apps.archive.domain.store.contents import DamagedContent
from apps.archive.models import ArchivedJob
from apps.core.domain.expressions.runs import TooCostly
from apps.jobs.domain.records.jobs import jobs_for_list
from apps.jobs.models import Job
from apps.search.domain.engine.base import SearchHit
from apps.search.domain.engine.contents import content_of
from apps.search.domain.engine.expressions import expression_spans
from apps.search.domain.logs.kept_texts import KeptText, texts_of
from apps.search.domain.query.clauses import Field, FieldValue, Query, Source
from apps.search.domain.query.matcher import (
    QueryMatcher,
    Span,
    decode_text,
    in_lower_case,
    merge_spans,
)

#: Matching lines that are shown of each text, and letters of a line.
LINES = 3
LETTERS = 300
#: How many lines of one text are searched for expressions.
EXPRESSION_LINES = 2_000
#: Values of each field that are offered.
VALUES = 8


@dataclass(frozen=True, slots=True)
class MatchingLine:
    """A line that the query asks for.

    `number` counts from 1, None if it is unknown; `offset` is its place in the log, in bytes;
    `stream` is empty for scripts and environments.
    """

    parts: tuple[LinePart, ...]
    number: int | None
    offset: int = 0
    stream: str = ""

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A hit with its job, or with the archived job of a script or environment."""

    hit: SearchHit
    row: Job | ArchivedJob
    lines: tuple[MatchingLine, ...]

    @property
    def job(self) -> Job | None:
        return self.row if isinstance(self.row, Job) else None

    @property
    def archived(self) -> ArchivedJob | None:
        return self.row if isinstance(self.row, ArchivedJob) else None


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A condition that some of the hits fulfil, and how many of them."""

    clause: FieldValue
    count: int
    #: What a page calls the value.
    name: str


def results_of(hits: Sequence[SearchHit], query: Query, user: User) -> list[SearchResult]:
    """Return the hits with their jobs and matching lines, without deleted jobs."""
    job_keys = [hit.key for hit in hits if hit.source is Source.LOG]
    archived_keys = [hit.key for hit in hits if hit.source is not Source.LOG]
    jobs = jobs_for_list(user).in_bulk(job_keys)
    texts = texts_of(job_keys)
    with_content = ArchivedJob.objects.visible_to(user).select_related(
        "cluster", "experiment", "script", "environment"
    )
    archived = with_content.in_bulk(archived_keys)
    marker = _Marker(query, user)
    results = []
    for hit in hits:
        if hit.source is Source.LOG and hit.key in jobs:
            lines = marker.lines(texts.get(hit.key, ()))
            results.append(SearchResult(hit, jobs[hit.key], tuple(lines)))
        elif hit.source is not Source.LOG and hit.key in archived:
            row = archived[hit.key]
            lines = marker.lines(_shown(row, hit.source))
            results.append(SearchResult(hit, row, tuple(lines)))
    return results


def _shown(row: ArchivedJob, source: Source) -> Sequence[KeptText]:
    """Return as much of a script or an environment as its page shows."""
    blob = row.script if source is Source.SCRIPT else row.environment
    with suppress(DamagedContent):
        return [KeptText("", content_of(blob, source, SHOWN_BYTES), 0, 1)]
    return ()


class _Marker:
    """Finds the lines of texts that a query asks for."""

    def __init__(self, query: Query, user: User) -> None:
        self._query = query
        self._user = user
        self._matcher = QueryMatcher(query)

    def lines(self, texts: Sequence[KeptText]) -> list[MatchingLine]:
        """Return the first matching lines."""
        lines: list[MatchingLine] = []
        for text in texts:
            lines += self._lines_of(text)
            if len(lines) >= LINES:
                break
        return lines[:LINES]

    def _lines_of(self, text: KeptText) -> list[MatchingLine]:
        raw_lines = text.data.split(b"\n")
        expression_places = self._expression_places(raw_lines)
        lines: list[MatchingLine] = []
        offset = text.first_offset
        for index, raw in enumerate(raw_lines):
            spans = self._spans(raw)
            if index in expression_places:
                spans = merge_spans([*spans, *expression_places[index]])
            if spans:
                number = None if text.first_line is None else text.first_line + index
                lines.append(
                    MatchingLine(_parts(decode_text(raw), spans), number, offset, text.stream)
                )
                if len(lines) == LINES:
                    break
            offset += len(raw) + 1
        return lines

    def _spans(self, raw: bytes) -> list[Span]:
        line = decode_text(raw)
        lowered = in_lower_case(line)
        # A few letters are longer in lower case: then there is no telling where they are.
        return self._matcher.spans(lowered if len(lowered) == len(line) else line)

    def _expression_places(self, raw_lines: Sequence[bytes]) -> Mapping[int, list[Span]]:
        """Return which letters the expressions match, by line; none if they take too long."""
        shown = raw_lines[-EXPRESSION_LINES:]
        first = len(raw_lines) - len(shown)
        places = {}
        with suppress(TooCostly):
            for index, spans in enumerate(expression_spans(self._query, self._user, shown)):
                if spans:
                    raw = shown[index]
                    places[first + index] = [
                        (len(decode_text(raw[:start])), len(decode_text(raw[:end])))
                        for start, end in spans
                    ]
        return places


def _parts(line: str, spans: Sequence[Span]) -> tuple[LinePart, ...]:
    """Cut a line into what is marked and what is not; of a long one, around the first mark."""
    start = max(0, spans[0][0] - LETTERS // 4) if len(line) > LETTERS else 0
    end = start + LETTERS
    parts = [LinePart("…")] if start else []
    position = start
    for first, last in spans:
        if first >= end:
            break
        parts.append(LinePart(line[position:first]))
        parts.append(LinePart(line[first : min(last, end)], hit=True))
        position = min(last, end)
    parts.append(LinePart(line[position:end] + ("…" if end < len(line) else "")))
    return tuple(
        LinePart(escape_unprintable(part.text.encode()), part.hit) for part in parts if part.text
    )


def facets_of(hits: Sequence[SearchHit], user: User) -> dict[str, list[FacetValue]]:
    """Return how hits divide by field, most frequent value first.

    Only values of hits are there, which the user may see.
    """
    counts: dict[Field, Counter[str]] = {field: Counter() for field in _FACETS}
    for hit in hits:
        counts[Field.IN][hit.source] += 1
    # The fields ignore case, so values that differ in case alone are one.
    spellings: dict[tuple[Field, str], str] = {}
    for field, value in _values(hits, user):
        if value:
            counts[field][spellings.setdefault((field, value.lower()), value)] += 1
    experiments = Experiment.objects.filter(key__in=counts[Field.EXPERIMENT])
    names = dict(experiments.values_list("key", "name"))
    facets = {}
    for field, title in _FACETS.items():
        values = []
        for value, count in counts[field].most_common(VALUES):
            name = names.get(value, value) if field is Field.EXPERIMENT else value
            values.append(FacetValue(FieldValue(field, value), count, name))
        facets[title] = values
    return facets


_FACETS = {
    Field.IN: "Found in",
    Field.STATE: "Outcome",
    Field.VERDICT: "Verdict",
    Field.SITE: "Site",
    Field.EXPERIMENT: "Experiment",
    Field.STAGE: "Stage",
}
_OF_JOBS = {
    Field.STATE: "state",
    Field.VERDICT: "verdict__verdict",
    Field.SITE: "site__name",
    Field.EXPERIMENT: "experiment__key",
    Field.STAGE: "stage",
}


def _values(hits: Sequence[SearchHit], user: User) -> Iterator[tuple[Field, str | None]]:
    """Yield what is known of the job of each hit, one field at a time."""
    jobs = [hit.key for hit in hits if hit.source is Source.LOG]
    rows = Job.objects.visible_to(user).filter(pk__in=jobs).values_list(*_OF_JOBS.values())
    for values in rows:
        yield from zip(_OF_JOBS, values, strict=True)
    archived = Counter(hit.key for hit in hits if hit.source is not Source.LOG)
    fields = (Field.STATE, Field.EXPERIMENT, Field.STAGE)
    submissions = ArchivedJob.objects.visible_to(user).filter(pk__in=archived)
    for key, *values in submissions.values_list("pk", *[_OF_JOBS[field] for field in fields]):
        for _ in range(archived[key]):
            yield from zip(fields, values, strict=True)
