"""Select the lines of a job's log that show why it failed, as an example for its failure group."""

from collections.abc import Iterable
from dataclasses import dataclass

from apps.diagnosis.engine.evidence.catalogue import text_of
from apps.diagnosis.engine.formats.chunks import newlines
from apps.diagnosis.engine.formats.plain_lines import clean
from apps.diagnosis.enums import ReasonKind, Stream
from apps.diagnosis.models import Evidence, LogExcerpt, Verdict
from apps.statusboard.domain.board.names import service_names

MOST_LINES = 6
LINE_BYTES = 1_000

#: Stream and byte offset of a line.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ExampleLine:
    """A line of a log: a known error with its role, or a novel line, which has no role.

    `service` is named as on the status board.
    """

    stream: str
    offset: int
    number: int | None
    text: str
    pattern: str = ""
    role: str = ""
    service: str = ""


def list_example_lines(verdict: Verdict) -> list[ExampleLine]:
    """Return lines in log order.

    The lines of the reasons are chosen first, in order of the reasons, then other known errors.
    """
    reasons = {place: rank for rank, place in enumerate(_places(verdict, set(ReasonKind)))}
    lines = lines_by_place(verdict)
    chosen = sorted(lines, key=lambda place: (reasons.get(place, len(reasons)), place))[:MOST_LINES]
    return [lines[place] for place in sorted(chosen)]


def lines_by_place(verdict: Verdict) -> dict[Place, ExampleLine]:
    """Return the known errors and the novel lines of a job's log by their place.

    Of several known errors in one line, the one that decided is returned.
    """
    known_errors: dict[Place, ExampleLine] = {}
    evidence_of_job = list(
        Evidence.objects.filter(harvest__job=verdict.job_id).order_by("offset", "pk")
    )
    names = service_names(evidence.service for evidence in evidence_of_job)
    for evidence in evidence_of_job:
        place = evidence.stream, evidence.offset
        if evidence.pattern == verdict.cause or place not in known_errors:
            known_errors[place] = ExampleLine(
                evidence.stream,
                evidence.offset,
                evidence.line,
                evidence.text,
                evidence.pattern,
                evidence.role,
                names.get(evidence.service, evidence.service),
            )
    return _novel_lines(verdict) | known_errors


def place_in(target: str) -> Place | None:
    """Return the line that a reason refers to; None if it refers to something else."""
    stream, _, offset = target.partition(":")
    if stream in list(Stream) and offset.isdigit():
        return stream, int(offset)
    return None


def _places(verdict: Verdict, kinds: Iterable[ReasonKind]) -> list[Place]:
    """Return the lines that reasons of these kinds refer to."""
    places = []
    for reason in verdict.reasons:
        place = place_in(reason.get("target", ""))
        if place and reason.get("kind") in kinds:
            places.append(place)
    return places


def _novel_lines(verdict: Verdict) -> dict[Place, ExampleLine]:
    """Return the novel lines among the reasons, read from the stored excerpt."""
    places = _places(verdict, {ReasonKind.NOVEL})
    if places:
        excerpts = {}
        for stored in LogExcerpt.objects.filter(harvest__job=verdict.job_id):
            excerpts[stored.stream] = stored
    else:
        excerpts = {}
    lines: dict[Place, ExampleLine] = {}
    for stream, offset in places:
        excerpt = excerpts.get(stream)
        if excerpt is None or offset < excerpt.first_offset:
            continue
        data = excerpt.data
        begin = offset - excerpt.first_offset
        text = text_of(clean(data[begin : begin + LINE_BYTES].partition(b"\n")[0]).strip())
        number = None
        if excerpt.first_line_number is not None:
            number = excerpt.first_line_number + newlines(data, 0, begin)
        lines[stream, offset] = ExampleLine(stream, offset, number, text)
    return lines
