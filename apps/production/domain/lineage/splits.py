"""Cutting what a request holds into parts whose sums are exactly its own: by runs, by files, by events."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from apps.core.errors import InvalidFields
from apps.production.domain.checks.rules.chain import sources
from apps.production.domain.checks.rules.context import NEW_RUNS
from apps.production.domain.checks.rules.declared import number, text
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.types.arguments import Value, runs_in
from apps.production.domain.types.fields import REQUEST

MAX_PARTS = 50
#: What is shared out among the parts of a stage, beside its events and jobs: an argument of some types.
FILES = "files"
SEED = "first_seed"

Runs = list[tuple[int, int]]


class SplitUnit(StrEnum):
    """What a part has so many of."""

    RUNS = "runs"
    FILES = "files"
    EVENTS = "events"


@dataclass(frozen=True)
class Part:
    """What one part holds, and which of the original it is, in words."""

    content: RequestContent
    words: str


@dataclass(frozen=True)
class Cut:
    """Part `i` ends with number `ends[i]` of `total`; quantities are shared out along these."""

    total: int
    ends: tuple[int, ...]

    def share(self, quantity: int) -> list[int]:
        """Return whole shares that follow the cut as closely as they can; their sum is the quantity."""
        reached = [quantity * end // self.total for end in (0, *self.ends)]
        return [after - before for before, after in pairwise(reached)]


@dataclass(frozen=True)
class Split:
    """The parts, first to last, what to know of them, and whether the portal defines the datasets that they read."""

    parts: list[Part]
    notes: list[str]
    cut: Cut
    defines: bool


def split_counts(content: RequestContent) -> dict[SplitUnit, int]:
    """Return by what a request can be split, with how many of these it has."""
    runs = _runs_argument(content)
    counts = {
        SplitUnit.RUNS: count_runs(runs_in(text(content, runs))) if runs else 0,
        SplitUnit.FILES: next((int(found) for stage in content.stages if (found := number(stage, FILES))), 0),
        SplitUnit.EVENTS: next((stage.events for stage in content.stages if stage.events), 0),
    }
    return {way: count for way, count in counts.items() if count > 1}


def refusal_to_split(content: RequestContent) -> str:
    """Say why a request of this type can never be split, whatever it holds; an empty text where it can."""
    if not content.workflow.argument("stop_on"):
        return ""
    return (
        "Keep-up takes files as they come, each once: there is nothing to cut beforehand, and two such requests would "
        "take the same files twice. Its stop date may be changed as it is, also while it runs."
    )


def split(content: RequestContent, by: SplitUnit, size: int, *, defines: bool = False) -> Split:
    """Cut into parts of `size` runs, files or events each; the last one has what remains.

    `defines` tells that the portal will define the parts of datasets that are read.

    Raises `InvalidFields` with why it cannot be cut so.
    """
    _check(content, by, size)
    total = split_counts(content)[by]
    cut = Cut(total, tuple(min(end, total) for end in range(size, total + size, size)))
    if short := list(_too_few(content, len(cut.ends))):
        raise InvalidFields({"size": short})
    lead = _runs_argument(content) if by is SplitUnit.RUNS else ""
    runs = {
        name: _cut_runs(text(content, name), cut) for name in dict.fromkeys([lead, NEW_RUNS]) if text(content, name)
    }
    stages = [_cut_stage(stage, cut) for stage in content.stages]
    parts = []
    for i in range(len(cut.ends)):
        own: dict[str, Value] = {name: written_runs(cuts[i]) for name, cuts in runs.items()}
        if seed := number(content, SEED):
            own[SEED] = int(seed) + sum(stage.jobs or 0 for stage in stages[0][:i])
        named = _with_names(tuple(cuts[i] for cuts in stages), i + 1, len(cut.ends), by)
        title = _title(content.title, i + 1, len(cut.ends))
        part = replace(content, title=title, arguments={**content.arguments, **own}, stages=named)
        first = cut.ends[i - 1] + 1 if i else 1
        which = written_runs(runs[lead][i]) if lead else f"{first:,} to {cut.ends[i]:,}"
        parts.append(Part(part, f"part {i + 1} of {len(cut.ends)}: {by} {which}"[:200]))
    return Split(parts, list(_notes(content, by, defines=defines)), cut, defines and by is not SplitUnit.RUNS)


def _check(content: RequestContent, by: SplitUnit, size: int) -> None:
    known = split_counts(content)
    if why := refusal_to_split(content):
        raise InvalidFields({"by": [why]})
    if by not in known:
        raise InvalidFields({"by": [f"It does not say how many {by} it has, or has only one."]})
    if not 0 < size < known[by]:
        raise InvalidFields({"size": [f"A whole number from 1 to {known[by] - 1:,}: it has {known[by]:,} {by}."]})
    count = -(-known[by] // size)
    if count > MAX_PARTS:
        least = -(-known[by] // MAX_PARTS)
        raise InvalidFields({"size": [f"That would be {count:,} parts; at most {MAX_PARTS}: take {least:,} or more."]})


def _too_few(content: RequestContent, parts: int) -> Iterator[str]:
    """Yield what there is too little of for every part to have some."""
    for position, stage in enumerate(content.stages, start=1):
        counts = {"events": stage.events, "jobs": stage.jobs, "files": number(stage, FILES)}
        for what, count in counts.items():
            if count and count < parts:
                yield f"Stage {position} has {int(count):,} {what}, fewer than {parts} parts: take larger parts."
    if (block := text(content, NEW_RUNS)) and count_runs(runs_in(block)) < parts:
        yield f"It has fewer new run numbers than {parts} parts: take larger parts."
    if number(content, SEED) and not (content.stages and content.stages[0].jobs):
        yield "Say first into how many jobs the first stage is cut: each has a seed of its own."


def _runs_argument(content: RequestContent) -> str:
    """Return the name of the first argument that holds runs."""
    names = [argument.name for argument in content.workflow.arguments if argument.type == "runs"]
    return next((name for name in names if _readable(text(content, name))), "")


def _readable(runs: str) -> bool:
    try:
        return bool(runs and runs_in(runs))
    except ValueError:
        return False


def count_runs(runs: Runs) -> int:
    """Return how many runs the ranges have."""
    return sum(last - first + 1 for first, last in runs)


def _cut_runs(runs: str, cut: Cut) -> list[Runs]:
    """Share runs out, lowest first."""
    left, found = runs_in(runs), []
    for share in cut.share(count_runs(left)):
        part: Runs = []
        while missing := share - count_runs(part):
            first, last = left.pop(0)
            end = min(last, first + missing - 1)
            part.append((first, end))
            if end < last:
                left.insert(0, (end + 1, last))
        found.append(part)
    return found


def written_runs(runs: Runs) -> str:
    """Write runs as people do."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _cut_stage(stage: StageContent, cut: Cut) -> list[StageContent]:
    def shares(quantity: float | None) -> list[int] | list[None]:
        return cut.share(int(quantity)) if quantity else [None] * len(cut.ends)

    files = shares(number(stage, FILES))
    return [
        replace(
            stage,
            events=events,
            jobs=jobs,
            arguments=dict(stage.arguments) if some is None else {**stage.arguments, FILES: some},
        )
        for events, jobs, some in zip(shares(stage.events), shares(stage.jobs), files, strict=True)
    ]


def _with_names(stages: tuple[StageContent, ...], part: int, of: int, by: SplitUnit) -> tuple[StageContent, ...]:
    """Give what a part writes a name of its own, and what it reads from outside, unless runs tell that apart."""

    def rename(name: str) -> str:
        return f"{name}_part{part}of{of}" if name else ""

    own = {stage.output_dataset for stage in stages}
    return tuple(
        replace(
            stage,
            output_dataset=rename(stage.output_dataset),
            input_dataset=stage.input_dataset
            if by is SplitUnit.RUNS and stage.input_dataset not in own
            else rename(stage.input_dataset),
        )
        for stage in stages
    )


def _title(title: str, part: int, of: int) -> str:
    more = f" (part {part} of {of})"
    return title[: REQUEST["title"].most - len(more)] + more if title else ""


def outside(content: RequestContent) -> Iterator[tuple[int, str]]:
    """Yield the number of each stage that reads a dataset which none before it writes, and its name."""
    for position, (stage, source) in enumerate(zip(content.stages, sources(content), strict=True), start=1):
        if stage.input_dataset and source is None:
            yield position, stage.input_dataset


def _notes(content: RequestContent, by: SplitUnit, *, defines: bool) -> Iterator[str]:
    read = list(outside(content))
    if by is not SplitUnit.RUNS:
        for position, name in read:
            what = (
                "the portal defines these datasets in the catalogue."
                if defines
                else "define these datasets, or name others, before you submit the parts."
            )
            yield (
                f"Stage {position} of a part reads its own part of {name}, under a name that ends in _part1of2 and the "
                f"like: {what}"
            )
    if not read and not text(content, NEW_RUNS) and not number(content, SEED):
        yield "It has neither seeds nor run numbers: see to it that the parts do not make the same events twice."
