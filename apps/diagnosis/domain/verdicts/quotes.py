"""Quote the log lines behind a verdict: what decides, what also holds, what did not matter."""

from collections.abc import Container, Mapping
from dataclasses import dataclass

from apps.diagnosis.domain.groups.example_log import ExampleLine, Place, lines_by_place, place_in
from apps.diagnosis.domain.log_page.outline import list_levels
from apps.diagnosis.domain.reading.success_samples import baseline_for
from apps.diagnosis.engine.evidence.catalogue import text_of
from apps.diagnosis.engine.evidence.novelty import (
    LINE_BYTES,
    Baseline,
    Templates,
    start_of_tail,
)
from apps.diagnosis.engine.evidence.secrets import starred
from apps.diagnosis.engine.formats.chunks import newlines
from apps.diagnosis.engine.formats.plain_lines import clean
from apps.diagnosis.enums import ReasonKind, Role
from apps.diagnosis.models import KnownError, LogExcerpt, Verdict
from apps.jobs.models import Job

#: Quoted lines beside the one that decides; the others are among the reasons.
FURTHER = 1
_MEANINGS = {
    Role.CAUSE: "another cause",
    Role.GENERIC: "a general error",
    Role.SYMPTOM: "a symptom",
    Role.CONSEQUENCE: "a consequence",
}
#: Share of the successful logs that contain a line which means nothing.
HARMLESS_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Quote:
    """A quoted line, or a reason without a line, and what it means.

    `known_error` is linked: it is in the catalogue.
    """

    line: ExampleLine | None
    note: str = ""
    known_error: str = ""


@dataclass(frozen=True, slots=True)
class Quotes:
    """The evidence of a verdict.

    `decides` is None if a user has overridden the verdict. `outage` says when a service that the
    job needed was out.
    """

    decides: Quote | None = None
    further: tuple[Quote, ...] = ()
    ignored: tuple[Quote, ...] = ()
    outage: str = ""


def quote_evidence(job: Job, verdict: Verdict) -> Quotes:
    """Return the lines of a job's log that show why it failed, at most five."""
    lines = lines_by_place(verdict)
    ids = {line.pattern for line in lines.values() if line.pattern}
    # Known errors that have been deleted are quoted without a link.
    catalogue = frozenset(KnownError.objects.filter(pk__in=ids).values_list("pk", flat=True))
    reasons = list(verdict.reasons)
    decides = None
    if reasons and not verdict.is_overridden:
        first = reasons.pop(0)
        decides = _quote_of(_line_of(first, lines), catalogue, note=first.get("text", ""))

    further: list[ExampleLine] = []
    outage = ""
    for reason in reasons:
        line = _line_of(reason, lines)
        if line and line.role != Role.NOISE:
            further.append(line)
        if reason.get("kind") == ReasonKind.OUTAGE and not outage:
            outage = reason.get("text", "")
    # What follows from a failure explains less than any other line, such as a novel one.
    further.sort(key=lambda line: line.role == Role.CONSEQUENCE)
    quotes = [_quote_of(line, catalogue) for line in further[:FURTHER]]
    return Quotes(decides, tuple(quotes), _ignored(job, lines), outage)


def _line_of(reason: Mapping[str, str], lines: Mapping[Place, ExampleLine]) -> ExampleLine | None:
    """Return the line that a reason refers to."""
    place = place_in(reason.get("target", ""))
    return lines.get(place) if place else None


def _quote_of(line: ExampleLine | None, catalogue: frozenset[str], note: str = "") -> Quote:
    if line is None:
        return Quote(None, note)
    if not line.pattern:
        return Quote(line, "No successful job of this stage writes this line.")
    meaning = f"of {line.service}" if line.service else ""
    if not note:
        meaning += f": {_MEANINGS.get(Role(line.role), line.role)}"
    known_error = line.pattern if line.pattern in catalogue else ""
    return Quote(line, meaning, known_error)


def _ignored(job: Job, lines: Mapping[Place, ExampleLine]) -> tuple[Quote, ...]:
    """Return the line that looks most like an error but means nothing, if there is one."""
    for line in lines.values():
        if line.role == Role.NOISE:
            return (Quote(line, f"It is noise: known error {line.pattern}."),)
    baseline = baseline_for(job) if job.is_failed else None
    if baseline is None:
        return ()
    best_quote = None
    best_count = HARMLESS_SHARE * baseline.logs
    for excerpt in LogExcerpt.objects.filter(harvest__job=job):
        common_line, count = _most_common_error(excerpt, baseline, lines)
        if common_line and count > best_count:
            best_count = count
            best_quote = Quote(
                common_line,
                f"It is in {count} of {baseline.logs} successful logs of {baseline.name}.",
            )
    return (best_quote,) if best_quote else ()


def _most_common_error(
    excerpt: LogExcerpt, baseline: Baseline, marked: Container[Place]
) -> tuple[ExampleLine | None, int]:
    """Return the error or warning that most successful logs contain, and how many do.

    Only the end of the excerpt is searched.
    """
    data = starred(excerpt.data)
    cut = start_of_tail(data)
    templates = Templates()
    highest = 0
    begin = 0
    for level_line in list_levels(data[cut:], cut):
        place = (excerpt.stream, excerpt.first_offset + level_line.offset)
        if level_line.level == "debug" or place in marked:
            continue
        raw = data[level_line.offset : level_line.offset + LINE_BYTES].partition(b"\n")[0]
        count = baseline.count_of(templates.hash_of(clean(raw)))
        if count > highest:
            highest = count
            begin = level_line.offset
    if not highest:
        return None, 0

    text = text_of(clean(data[begin : begin + LINE_BYTES].partition(b"\n")[0]).strip())
    number = None
    if excerpt.first_line_number is not None:
        number = excerpt.first_line_number + newlines(data, 0, begin)
    return ExampleLine(excerpt.stream, excerpt.first_offset + begin, number, text), highest
