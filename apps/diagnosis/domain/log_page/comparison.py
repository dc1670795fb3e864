"""Compare the log of a failed job with the log of a successful job of the same kind."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from django.db.models import Q

from apps.accounts.models import User
from apps.archive.domain.comparison import DiffRow
from apps.clusters.schedulers.base import JobState
from apps.core.bounded_pool import POOL, BudgetExceeded, PoolBusy
from apps.diagnosis.domain.log_page.alignment import align
from apps.diagnosis.domain.log_page.outline import find_pack_marks, list_phases
from apps.diagnosis.domain.log_page.rows import LINE_BYTES, RawLine, split_lines
from apps.diagnosis.domain.packs.current import markers_of
from apps.diagnosis.domain.reading.log_texts import LogText, NoLog, logs_of, open_log_text
from apps.diagnosis.engine.formats.markers import Markers
from apps.diagnosis.enums import Stream
from apps.jobs.enums import DEBUG_STAGE, stage_of_request
from apps.jobs.models import Job

#: Maximum size of each log that is compared; of a longer log, the end is compared.
MOST_BYTES = 2_000_000
MOST_LINES = 20_000
SECONDS = 4.0
CONTEXT = 3
NEAREST = 10
SHORTEST_FOLD = 3
LOOK_AROUND = timedelta(days=60)
#: Maximum number of rows on a page.
MOST_ROWS = 1500


@dataclass(frozen=True, slots=True)
class Sibling:
    """A completed job to compare with, and a text that says what it has in common with the job."""

    job: Job
    common: str


@dataclass(frozen=True, slots=True)
class ShownRow:
    """Two lines side by side; `is_new` if the other log contains no similar line."""

    row: DiffRow
    is_new: bool
    left_number: int | None
    right_number: int | None
    right_offset: int | None
    kind: str = field(default="row", init=False)


@dataclass(frozen=True, slots=True)
class ShownFold:
    """Rows that are not shown: equal lines, or lines of one log that the other has elsewhere."""

    count: int
    text: str
    kind: str = field(default="fold", init=False)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference between the logs; the rows that follow differ."""

    left: int | None
    right: int | None
    phase: str
    kind: str = field(default="divergence", init=False)


@dataclass(frozen=True, slots=True)
class ComparedPhase:
    """A phase with its seconds in both logs; None if a log lacks the phase or its duration."""

    name: str
    left_seconds: int | None
    right_seconds: int | None


@dataclass(frozen=True, slots=True)
class LogComparison:
    """Two logs side by side: of a completed job on the left, of `job` on the right.

    `problem` says why there is nothing to compare.
    """

    job: Job
    stream: Stream
    siblings: tuple[Sibling, ...]
    other: Job | None = None
    rows: tuple[ShownRow | ShownFold | Divergence, ...] = ()
    phases: tuple[ComparedPhase, ...] = ()
    problem: str = ""
    whole: bool = True
    left_lines: int = 0
    right_lines: int = 0


def siblings_of(job: Job, *, user: User) -> tuple[Sibling, ...]:
    """Return completed jobs of the same kind: first on the same host, then nearest in time."""
    # A test is compared with other tests first.
    stages = dict.fromkeys([job.stage.removesuffix(DEBUG_STAGE), stage_of_request(job.stage)])
    kinds = []
    if job.request_key:
        for stage in stages:
            of_stage = Q(request_key=job.request_key, stage=stage)
            kinds.append((f"{job.request_key} {stage}".strip(), of_stage))
    if job.experiment_id:
        for stage in filter(None, stages):
            kinds.append((f"stage {stage}", Q(experiment=job.experiment_id, stage=stage)))
    if job.user and job.name:
        kinds.append((f"{job.user}’s {job.name}", Q(user=job.user, name=job.name)))

    for kind, condition in kinds:
        if siblings := _nearest_completed(job, condition, user):
            siblings.sort(
                key=lambda other: (
                    other.host != job.host,
                    abs(other.ended_at - job.ended_at),
                    other.pk,
                )
            )
            return tuple(Sibling(other, _in_common(job, other, kind)) for other in siblings)
    return ()


def _nearest_completed(job: Job, condition: Q, user: User) -> list[Job]:
    """Return completed jobs that ended next before and next after a job."""
    completed = Job.objects.visible_to(user).filter(condition, state=JobState.COMPLETED)
    completed = completed.exclude(pk=job.pk).select_related("cluster", "experiment")
    before = completed.filter(
        ended_at__lte=job.ended_at, ended_at__gte=job.ended_at - LOOK_AROUND
    ).order_by("-ended_at")
    after = completed.filter(
        ended_at__gt=job.ended_at, ended_at__lte=job.ended_at + LOOK_AROUND
    ).order_by("ended_at")
    return [*before[:NEAREST], *after[:NEAREST]]


def _in_common(job: Job, other: Job, kind: str) -> str:
    host = other.host
    if host and host == job.host:
        host = "same host"
    return f"{other.job_id} · {host}, {kind}"


def compare_logs(
    job: Job, *, user: User, stream: Stream, chosen: Job | None = None, every_line: bool = False
) -> LogComparison:
    """Compare the log of a job with a sibling's log: the chosen one, or else the best."""
    siblings = siblings_of(job, user=user)
    comparison = LogComparison(job, stream, siblings)
    other = chosen or (siblings[0].job if siblings else None)
    if other is None:
        return replace(
            comparison,
            problem="No job of the same request and stage, or of the same name, has completed yet.",
        )
    comparison = replace(comparison, other=other)
    try:
        left, left_whole = _lines(other, stream)
    except NoLog as reason:
        return replace(comparison, problem=f"Log of job {other.job_id}: {reason}")
    try:
        right, right_whole = _lines(job, stream)
    except NoLog as reason:
        return replace(comparison, problem=f"Log of job {job.job_id}: {reason}")
    texts = [_texts(lines) for lines in (left, right)]
    try:
        rows, new = POOL.call(align, *texts, other.job_id, job.job_id, seconds=SECONDS)
    except PoolBusy:
        return replace(
            comparison, problem="The portal is busy with other comparisons. Try again in a moment."
        )
    except BudgetExceeded:
        return replace(
            comparison,
            problem="The comparison took too long. Compare the phases, or open both logs.",
        )
    return replace(
        comparison,
        rows=_shown(rows, new, left, right, every_line=every_line),
        phases=_phases(left, right, job.experiment_id),
        whole=left_whole and right_whole,
        left_lines=len(left),
        right_lines=len(right),
    )


def _lines(job: Job, stream: Stream) -> tuple[list[RawLine], bool]:
    """Return the lines of a log, of a large log only its last, and whether these are all."""
    with open_log_text(logs_of(job), stream) as text:
        if text.end - text.begin <= MOST_BYTES:
            begin = text.begin
        else:
            begin = _tail(text)
        lines = split_lines(text.read(begin, text.end), begin, text.number_at(begin))
    return lines[-MOST_LINES:], begin == text.begin and len(lines) <= MOST_LINES


def _tail(text: LogText) -> int:
    return text.line_start(text.end - MOST_BYTES, reach=LINE_BYTES)


def _texts(lines: Sequence[RawLine]) -> list[str]:
    return [line.plain[:LINE_BYTES].rstrip(b"\r").decode(errors="replace") for line in lines]


def _phases(
    left: Sequence[RawLine], right: Sequence[RawLine], experiment_id: int | None
) -> tuple[ComparedPhase, ...]:
    """Return the phases of both logs."""
    markers = markers_of(experiment_id)
    left_seconds = _seconds_by_phase(left, markers)
    right_seconds = _seconds_by_phase(right, markers)
    compared = []
    for name in left_seconds | right_seconds:
        compared.append(ComparedPhase(name, left_seconds.get(name), right_seconds.get(name)))
    return tuple(compared)


def _seconds_by_phase(lines: Sequence[RawLine], markers: Markers) -> dict[str, int | None]:
    data = b"\n".join(line.raw for line in lines)
    pack_marks, _ = find_pack_marks(markers, data)
    return {phase.name: phase.seconds for phase in list_phases(data, 0, pack_marks)}


def _shown(
    rows: Sequence[DiffRow],
    new: Sequence[bool],
    left: Sequence[RawLine],
    right: Sequence[RawLine],
    *,
    every_line: bool,
) -> tuple[ShownRow | ShownFold | Divergence, ...]:
    """Return the rows of the page: rows that are new in one log with context, others folded."""
    new_rows = [index for index, is_new in enumerate(new) if is_new]
    first = new_rows[0] if new_rows else None
    near: set[int] = set()
    for index in new_rows:
        near.update(range(index - CONTEXT, index + CONTEXT + 1))
    shown: list[ShownRow | ShownFold | Divergence] = []
    hidden: list[int] = []
    for index, row in enumerate(rows):
        if index == first:
            shown.append(_divergence(row, left, right))
        if not every_line and index not in near:
            hidden.append(index)
        else:
            shown += _fold(rows, hidden)
            hidden = []
            shown.append(_shown_row(row, new[index], left, right))
        if len(shown) >= MOST_ROWS:
            return (
                *shown,
                ShownFold(len(rows) - index - 1, f"{len(rows) - index - 1:,} more rows"),
            )
    return (*shown, *_fold(rows, hidden))


def _fold(rows: Sequence[DiffRow], hidden: Sequence[int]) -> list[ShownFold]:
    if not hidden:
        return []
    equal = sum(rows[index].kind == "equal" for index in hidden)
    if equal == len(hidden):
        return [ShownFold(equal, f"{equal:,} equal line{'' if equal == 1 else 's'}")]
    return [
        ShownFold(
            len(hidden),
            f"{equal:,} equal lines, {len(hidden) - equal:,} that both logs have elsewhere",
        )
    ]


def _shown_row(
    row: DiffRow, is_new: bool, left: Sequence[RawLine], right: Sequence[RawLine]
) -> ShownRow:
    return ShownRow(
        row=row,
        is_new=is_new,
        left_number=left[row.left - 1].number if row.left is not None else None,
        right_number=right[row.right - 1].number if row.right is not None else None,
        right_offset=right[row.right - 1].offset if row.right is not None else None,
    )


def _divergence(row: DiffRow, left: Sequence[RawLine], right: Sequence[RawLine]) -> Divergence:
    end = row.right or 0
    if end:
        phases = list_phases(b"\n".join(line.raw for line in right[:end]), 0)
    else:
        phases = []
    return Divergence(
        left=left[row.left - 1].number if row.left is not None else None,
        right=right[row.right - 1].number if row.right is not None else None,
        phase=phases[-1].name if phases else "",
    )
