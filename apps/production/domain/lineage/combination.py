"""Combining the contents of several requests for the same thing into one with the same totals."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, pairwise
from typing import Any

from apps.core.errors import InvalidFields
from apps.production.domain.checks.rules.chain import source_positions
from apps.production.domain.checks.rules.declared import number, runs
from apps.production.domain.checks.rules.runs_and_seeds import NEW_RUNS
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.lineage.splits import FILES, SEED, list_outside_inputs
from apps.production.domain.types.arguments import Runs, Value, intersect_runs, runs_text
from apps.production.domain.types.fields import CORE, REQUEST
from apps.production.enums import RequestedPriority

MAX_COMBINED = 50
_PART = re.compile(r"\A(?P<base>.+)_part(?P<part>[0-9]{1,3})of(?P<of>[0-9]{1,3})\Z", re.DOTALL)
_TITLE = re.compile(r" \(part [0-9]+ of [0-9]+\)$")
#: Fields that must be equal in combined stages, with their plurals.
_SAME = {"kind": "kinds", "name": "names", "release": "releases", "configuration": "configurations"}


@dataclass(frozen=True)
class KeyedContent:
    key: str
    content: RequestContent


@dataclass(frozen=True)
class Combination:
    """The combined content, and notes for the user."""

    content: RequestContent
    notes: list[str]


def list_obstacles(first: KeyedContent, second: KeyedContent) -> list[str]:
    """Return why two requests cannot be combined. Empty if they can."""
    mine = first.content
    other = second.content
    if mine.workflow.key != other.workflow.key or mine.workflow.number != other.workflow.number:
        return [f"It has another type: {other.workflow.title}, version {other.workflow.number}."]
    if mine.scan.strip() or other.scan.strip():
        return ["Parameter scans cannot be combined, as their jobs are divided among their points."]
    if len(mine.stages) != len(other.stages) or not mine.stages:
        return [f"It has {len(other.stages)} stages, but {first.key} has {len(mine.stages)}."]

    reasons = list(_argument_obstacles(mine, other))
    stages = zip(mine.stages, other.stages, strict=True)
    for position, (stage, other_stage) in enumerate(stages, start=1):
        reasons += [f"Stage {position}: {why}" for why in _stage_obstacles(stage, other_stage)]
    return reasons or list(_input_obstacles(mine, other))


def combine(requests: Sequence[KeyedContent]) -> Combination:
    """Combine requests. Title and output names come from the first. Raises `InvalidFields`."""
    if not 2 <= len(requests) <= MAX_COMBINED:
        raise InvalidFields({"requests": [f"Choose from 1 to {MAX_COMBINED - 1} other requests."]})
    contents = [request.content for request in requests]
    problems: list[str] = []
    for request, other in combinations(requests, 2):
        problems += [
            f"{request.key} and {other.key}: {why}" for why in list_obstacles(request, other)
        ]
    problems = problems or list(_missing_parts(contents))
    if problems:
        raise InvalidFields({"requests": problems[:20]})

    def output_of(alike: Sequence[StageContent]) -> str:
        return _dataset_name([stage.output_dataset for stage in alike])

    first = contents[0]
    positions = list(zip(*(content.stages for content in contents), strict=True))
    outputs = list(map(output_of, positions))
    stages = []
    for alike, source, output in zip(positions, source_positions(first), outputs, strict=True):
        read = _dataset_name([stage.input_dataset for stage in alike])
        if alike[0].input_dataset and source is not None:
            read = outputs[source]
        stages.append(_stage(alike, read, output))
    combined = replace(
        first, arguments=_arguments(contents), stages=tuple(stages), **_fields(contents)
    )
    return Combination(combined, list(_notes(contents)))


def _argument_obstacles(content: RequestContent, other: RequestContent) -> Iterator[str]:
    for argument in content.workflow.arguments:
        mine = content.arguments.get(argument.name)
        theirs = other.arguments.get(argument.name)
        if argument.type == "runs":
            own_runs = runs(content, argument.name)
            other_runs = runs(other, argument.name)
            if common := _first_common_run(own_runs, other_runs):
                if argument.name == NEW_RUNS or mine != theirs:
                    yield f"Both have run {common} as “{argument.title}”."
            elif argument.name != NEW_RUNS and bool(mine) != bool(theirs):
                yield f"Only one of them has “{argument.title}”."
        elif argument.name != SEED and mine != theirs:
            yield _difference(argument.title, argument.write(mine), argument.write(theirs))


def _stage_obstacles(mine: StageContent, theirs: StageContent) -> Iterator[str]:
    for name, plural in _SAME.items():
        if getattr(mine, name) != getattr(theirs, name):
            yield (
                f"different {plural}, {getattr(mine, name) or 'none'} and "
                f"{getattr(theirs, name) or 'none'}."
            )
    for name in dict.fromkeys([*mine.arguments, *theirs.arguments]):
        if name not in (FILES, *CORE) and mine.arguments.get(name) != theirs.arguments.get(name):
            yield _difference(
                name.replace("_", " "), mine.arguments.get(name), theirs.arguments.get(name)
            )


def _missing_parts(contents: Sequence[RequestContent]) -> Iterator[str]:
    """Yield inputs that are parts of a dataset whose other parts are missing."""

    def inputs(content: RequestContent) -> list[str]:
        return [name for _, name in list_outside_inputs(content)]

    for names in zip(*map(inputs, contents), strict=True):
        if _whole_dataset(names) is None:
            yield (
                f"{', '.join(names[:5])} are not all parts of their dataset. Add the other "
                "requests."
            )


def _difference(title: str, mine: Any, theirs: Any) -> str:
    texts = ["empty" if value in (None, "", []) else str(value)[:100] for value in (mine, theirs)]
    return f"“{title}” is {texts[0]} and {texts[1]}."


def _input_obstacles(a: RequestContent, b: RequestContent) -> Iterator[str]:
    """Yield why the inputs cannot be combined.

    They must belong to one dataset, and no part of it may be read twice.
    """
    if source_positions(a) != source_positions(b):
        yield "Their stages read each other in a different order."
        return

    names = []
    for argument in a.workflow.arguments:
        if argument.type == "runs" and argument.name != NEW_RUNS:
            names.append(argument.name)
    both = [(runs(a, name), runs(b, name)) for name in names]
    is_disjoint = any(
        mine and theirs and not _first_common_run(mine, theirs) for mine, theirs in both
    )
    pairs = zip(a.stages, b.stages, source_positions(a), strict=True)
    for position, (mine, theirs, source) in enumerate(pairs, start=1):
        if source is not None or not (mine.input_dataset or theirs.input_dataset):
            continue
        first = mine.input_dataset
        second = theirs.input_dataset
        if first != second and not _are_parts([first, second]):
            yield (
                f"Stage {position}: they read {first or 'nothing'} and {second or 'nothing'}; one "
                "request reads one."
            )
        elif first == second and not is_disjoint:
            yield (
                f"Stage {position}: both read {first}, and no run numbers separate what they read."
            )


def _are_parts(names: Sequence[str]) -> bool:
    """Whether these names are different parts of one dataset."""
    parts = [part for name in names if (part := _PART.fullmatch(name))]
    wholes = {(part["base"], part["of"]) for part in parts}
    numbers = {part["part"] for part in parts}
    return len(parts) == len(names) and len(wholes) == 1 and len(numbers) == len(parts)


def _whole_dataset(names: Sequence[str]) -> str | None:
    """Return the common name, or the dataset's if these are all of its parts; else None."""
    if len(set(names)) == 1:
        return names[0]
    part = _PART.fullmatch(names[0])
    if part and _are_parts(names) and len(names) == int(part["of"]):
        return part["base"]
    return None


def _dataset_name(names: Sequence[str]) -> str:
    return _whole_dataset(names) or names[0]


def _stage(alike: Sequence[StageContent], read: str, output: str) -> StageContent:
    """Return the stage that combines the stages at one position."""
    arguments = {name: value for name, value in alike[0].arguments.items() if name != FILES}
    counts = []
    for stage in alike:
        count = number(stage, FILES)
        counts.append(int(count) if count else None)
    files = _sum(counts)
    if files:
        arguments[FILES] = files
    return replace(
        alike[0],
        input_dataset=read,
        output_dataset=output,
        events=_sum(stage.events for stage in alike),
        jobs=_sum(stage.jobs for stage in alike),
        memory_bytes=_largest([stage.memory_bytes for stage in alike]),
        wall_seconds=_largest([stage.wall_seconds for stage in alike]),
        retry_memory_bytes=_largest([stage.retry_memory_bytes for stage in alike]),
        retry_wall_seconds=_largest([stage.retry_wall_seconds for stage in alike]),
        services=tuple(dict.fromkeys(chain.from_iterable(stage.services for stage in alike))),
        arguments=arguments,
    )


def _largest(values: Iterable[int | None]) -> int | None:
    """Return the largest of the known values; None if there are none."""
    return max((value for value in values if value is not None), default=None)


def _sum(counts: Iterable[int | None]) -> int | None:
    """Return the sum, or None if a count is unknown."""
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)


def _arguments(contents: Sequence[RequestContent]) -> dict[str, Value]:
    combined: dict[str, Value] = dict(contents[0].arguments)
    for argument in contents[0].workflow.arguments:
        values = [content.arguments.get(argument.name) for content in contents]
        if argument.type == "runs" and any(value != values[0] for value in values):
            combined[argument.name] = runs_text(
                _union(runs(content, argument.name) for content in contents)
            )
    seeds = []
    for content in contents:
        if seed := number(content, SEED):
            seeds.append(int(seed))
    return combined | ({SEED: min(seeds)} if seeds else {})


def _first_common_run(mine: Runs, theirs: Runs) -> int | None:
    return min((first for first, _ in intersect_runs(mine, theirs)), default=None)


def _union(runs_of_all: Iterable[Runs]) -> Runs:
    """Return all runs, with adjacent ranges merged."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(chain.from_iterable(runs_of_all)):
        if merged and first == merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return merged


def _fields(contents: Sequence[RequestContent]) -> dict[str, Any]:
    """Return title, earliest deadline, highest priority, and all purposes and reasons."""
    order = list(RequestedPriority.values)
    deadlines = [content.deadline for content in contents if content.deadline]
    priorities = [str(content.requested_priority) for content in contents]
    return {
        "title": _TITLE.sub("", contents[0].title),
        "campaign": contents[0].campaign,
        "purpose": _joined("purpose", contents),
        "priority_reason": _joined("priority_reason", contents),
        "deadline": min(deadlines, default=None),
        "requested_priority": max(priorities, key=order.index),
    }


def _joined(name: str, contents: Sequence[RequestContent]) -> str:
    texts = (getattr(content, name).strip() for content in contents)
    most = REQUEST[name].most
    whole = "\n\n".join(dict.fromkeys(text for text in texts if text))
    return whole if len(whole) <= most else f"{whole[: most - 2]} …"


def _notes(contents: Sequence[RequestContent]) -> Iterator[str]:
    seeds = []
    for content in contents:
        if seed := number(content, SEED):
            seeds.append((int(seed), content.stages[0].jobs or 0))
    seeds.sort()
    if any(first + jobs != after for (first, jobs), (after, _) in pairwise(seeds)):
        yield (
            f"Seeds are consecutive from {seeds[0][0]:,}; the seeds of the other requests are not "
            "used."
        )

    for position, alike in enumerate(
        zip(*(content.stages for content in contents), strict=True), start=1
    ):
        for name in ("events", "jobs"):
            numbers = [getattr(stage, name) for stage in alike]
            if any(numbers) and _sum(numbers) is None:
                yield (
                    f"Stage {position}: some requests do not state their number of {name}, so the "
                    "sum is empty."
                )
        if len({(stage.memory_bytes, stage.wall_seconds) for stage in alike}) > 1:
            yield f"Stage {position}: memory and wall time per job are the largest of all requests."
    if len({content.deadline for content in contents}) > 1:
        yield "The deadline is the earliest of all requests."
