"""Joining what several requests hold into one whose sums are exactly theirs, where they ask for the same thing."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

from apps.core.errors import InvalidFields
from apps.production.domain.checks.rules.chain import sources
from apps.production.domain.checks.rules.context import NEW_RUNS
from apps.production.domain.checks.rules.declared import number, text
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.lineage.splits import FILES, SEED, Runs, outside, written_runs
from apps.production.domain.types.arguments import Value, runs_in
from apps.production.domain.types.fields import CORE, REQUEST
from apps.production.enums import RequestedPriority

MAX_COMBINED = 50
_PART = re.compile(r"(?P<base>.+)_part(?P<part>[0-9]{1,3})of(?P<of>[0-9]{1,3})", re.DOTALL)
_TITLE = re.compile(r" \(part [0-9]+ of [0-9]+\)$")
#: What must be the same in stages that are joined, and how it is called.
_SAME = {"kind": "kinds", "name": "names", "release": "releases", "configuration": "configurations"}


@dataclass(frozen=True)
class KeyedContent:
    """What a request holds, under its number."""

    key: str
    content: RequestContent


@dataclass(frozen=True)
class Combination:
    """What the requests hold together, and what the person should know of it."""

    content: RequestContent
    notes: list[str]


def obstacles(one: KeyedContent, other: KeyedContent) -> list[str]:
    """Return why two requests cannot become one; nothing where they can."""
    a, b = one.content, other.content
    if a.workflow.key != b.workflow.key or a.workflow.number != b.workflow.number:
        return [f"It is of another type: {b.workflow.title}, version {b.workflow.number}."]
    if len(a.stages) != len(b.stages) or not a.stages:
        return [f"It has another number of stages, {len(b.stages)}, than {one.key} with {len(a.stages)}."]
    found = list(_argument_obstacles(a, b))
    for position, (mine, theirs) in enumerate(zip(a.stages, b.stages, strict=True), start=1):
        found += [f"Stage {position}: {why}" for why in _stage_obstacles(mine, theirs)]
    return found or list(_input_obstacles(a, b))


def combine(requests: Sequence[KeyedContent]) -> Combination:
    """Join requests; title and names of outputs are those of the first. Raises `InvalidFields` with why not."""
    if not 2 <= len(requests) <= MAX_COMBINED:
        raise InvalidFields({"requests": [f"Choose from 1 to {MAX_COMBINED - 1} other requests."]})
    problems = [f"{a.key} and {b.key}: {why}" for a, b in combinations(requests, 2) for why in obstacles(a, b)]
    contents = [request.content for request in requests]
    problems = problems or _scattered(contents)
    if problems:
        raise InvalidFields({"requests": problems[:20]})
    first = contents[0]
    chain = list(zip(*(content.stages for content in contents), strict=True))
    stages = _with_names(tuple(_stage(each) for each in chain), contents)
    joined = replace(first, arguments=_arguments(contents), stages=stages, **_words(contents))
    return Combination(joined, list(_notes(contents)))


def _argument_obstacles(a: RequestContent, b: RequestContent) -> Iterator[str]:
    for argument in a.workflow.arguments:
        mine, theirs = a.arguments.get(argument.name), b.arguments.get(argument.name)
        if argument.type == "runs":
            if common := _common(_ranges(a, argument.name), _ranges(b, argument.name)):
                if argument.name == NEW_RUNS or mine != theirs:
                    yield f"Both have run {common} as “{argument.title}”."
            elif argument.name != NEW_RUNS and bool(mine) != bool(theirs):
                yield f"Only one of them says “{argument.title}”."
        elif argument.name != SEED and mine != theirs:
            yield _differ(argument.title, argument.write(mine), argument.write(theirs))


def _stage_obstacles(mine: StageContent, theirs: StageContent) -> Iterator[str]:
    for name, words in _SAME.items():
        if getattr(mine, name) != getattr(theirs, name):
            yield f"other {words}, {getattr(mine, name) or 'none'} and {getattr(theirs, name) or 'none'}."
    for name in dict.fromkeys([*mine.arguments, *theirs.arguments]):
        if name not in (FILES, *CORE) and mine.arguments.get(name) != theirs.arguments.get(name):
            yield _differ(name.replace("_", " "), mine.arguments.get(name), theirs.arguments.get(name))


def _differ(title: str, mine: Any, theirs: Any) -> str:
    return f"“{title}” is {_shown(mine)} and {_shown(theirs)}."


def _shown(value: Any) -> str:
    return "empty" if value in (None, "", []) else str(value)[:100]


def _input_obstacles(a: RequestContent, b: RequestContent) -> Iterator[str]:
    """Yield why what they read does not go together: it must be one dataset, and not the same of it twice."""
    if sources(a) != sources(b):
        yield "Their stages read each other in another order."
        return
    pairs = zip(a.stages, b.stages, sources(a), strict=True)
    for position, (mine, theirs, source) in enumerate(pairs, start=1):
        if source is not None or not (mine.input_dataset or theirs.input_dataset):
            continue
        one, other = mine.input_dataset, theirs.input_dataset
        if one != other and not _are_parts([one, other]):
            yield f"Stage {position}: they read {one or 'nothing'} and {other or 'nothing'}; one request reads one."
        elif one == other and not _runs_differ(a, b):
            yield f"Stage {position}: both read {one}, and no run numbers say that they read different parts of it."


def _runs_differ(a: RequestContent, b: RequestContent) -> bool:
    names = [one.name for one in a.workflow.arguments if one.type == "runs" and one.name != NEW_RUNS]
    both = [(_ranges(a, name), _ranges(b, name)) for name in names]
    return any(mine and theirs and not _common(mine, theirs) for mine, theirs in both)


def _are_parts(names: Iterable[str]) -> bool:
    """Tell whether the names are those of different parts of one whole."""
    found = [_PART.fullmatch(name) for name in names]
    if None in found:
        return False
    wholes = {(one["base"], one["of"]) for one in found if one}
    return len(wholes) == 1 and len({one["part"] for one in found if one}) == len(found)


def _whole(names: Sequence[str]) -> str | None:
    """Return the one name, or that of the whole where these are all of its parts; else None."""
    if len(set(names)) == 1:
        return names[0]
    found = _PART.fullmatch(names[0])
    return found["base"] if found and _are_parts(names) and len(names) == int(found["of"]) else None


def _scattered(contents: Sequence[RequestContent]) -> list[str]:
    """Return which inputs are parts of a whole of which some are missing."""
    read = zip(*([name for _, name in outside(content)] for content in contents), strict=True)
    return [
        f"{', '.join(names[:5])} are not all parts of their whole: take the others too."
        for names in map(list, read)
        if _whole(names) is None
    ]


def _stage(each: Sequence[StageContent]) -> StageContent:
    files = _sum(int(count) if (count := number(stage, FILES)) else None for stage in each)
    return replace(
        each[0],
        events=_sum(stage.events for stage in each),
        jobs=_sum(stage.jobs for stage in each),
        memory_bytes=_most(stage.memory_bytes for stage in each),
        wall_seconds=_most(stage.wall_seconds for stage in each),
        services=tuple(dict.fromkeys(slug for stage in each for slug in stage.services)),
        arguments={name: value for name, value in each[0].arguments.items() if name != FILES}
        | ({FILES: files} if files else {}),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    """Return the sum; nothing where one is not known."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _most(counts: Iterable[int | None]) -> int | None:
    return max((count for count in counts if count is not None), default=None)


def _with_names(stages: tuple[StageContent, ...], contents: Sequence[RequestContent]) -> tuple[StageContent, ...]:
    """Name outputs as the first request does, or as the whole; inputs of the chain follow them."""
    outputs = [_whole(names) or names[0] for names in _columns(contents, lambda stage: stage.output_dataset)]
    inputs = [_whole(names) or names[0] for names in _columns(contents, lambda stage: stage.input_dataset)]
    named = []
    for stage, source, read, written in zip(stages, sources(contents[0]), inputs, outputs, strict=True):
        inner = stage.input_dataset and source is not None
        named.append(replace(stage, input_dataset=outputs[source or 0] if inner else read, output_dataset=written))
    return tuple(named)


def _columns(contents: Sequence[RequestContent], name: Callable[[StageContent], str]) -> Iterator[list[str]]:
    for each in zip(*(content.stages for content in contents), strict=True):
        yield [name(stage) for stage in each]


def _arguments(contents: Sequence[RequestContent]) -> dict[str, Value]:
    joined: dict[str, Value] = dict(contents[0].arguments)
    for argument in contents[0].workflow.arguments:
        values = [content.arguments.get(argument.name) for content in contents]
        if argument.type == "runs" and any(value != values[0] for value in values):
            joined[argument.name] = _union(_ranges(content, argument.name) for content in contents)
    seeds = [int(seed) for content in contents if (seed := number(content, SEED))]
    return joined | ({SEED: min(seeds)} if seeds else {})


def _ranges(content: RequestContent, name: str) -> Runs:
    try:
        return runs_in(found) if (found := text(content, name)) else []
    except ValueError:
        return []


def _common(mine: Runs, theirs: Runs) -> int | None:
    """Return the first run that both have."""
    return min((max(a, c) for a, b in mine for c, d in theirs if max(a, c) <= min(b, d)), default=None)


def _union(each: Iterable[Runs]) -> str:
    """Write the runs of all, ranges that follow each other as one."""
    joined: Runs = []
    for first, last in sorted(run for runs in each for run in runs):
        if joined and first == joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return written_runs(joined)


def _words(contents: Sequence[RequestContent]) -> dict[str, Any]:
    """Return title, purpose, deadline and priority: the earliest day, the highest priority, all that was said."""
    order = list(RequestedPriority.values)
    days = [content.deadline for content in contents if content.deadline]
    return {
        "title": _TITLE.sub("", contents[0].title),
        "purpose": _joined((content.purpose for content in contents), REQUEST["purpose"].most),
        "priority_reason": _joined((content.priority_reason for content in contents), REQUEST["priority_reason"].most),
        "deadline": min(days, default=None),
        "requested_priority": max((str(content.requested_priority) for content in contents), key=order.index),
    }


def _joined(texts: Iterable[str], most: int) -> str:
    whole = "\n\n".join(dict.fromkeys(text.strip() for text in texts if text.strip()))
    return whole if len(whole) <= most else f"{whole[: most - 2]} …"


def _notes(contents: Sequence[RequestContent]) -> Iterator[str]:
    seeds = sorted((int(seed), content.stages[0].jobs or 0) for content in contents if (seed := number(content, SEED)))
    if any(first + jobs != after for (first, jobs), (after, _) in pairwise(seeds)):
        yield f"Its seeds follow each other from {seeds[0][0]:,}: those of the others are not used."
    for position, each in enumerate(zip(*(content.stages for content in contents), strict=True), start=1):
        for name in ("events", "jobs"):
            if any(getattr(stage, name) for stage in each) and _sum(getattr(stage, name) for stage in each) is None:
                yield f"Stage {position}: not all of them say how many {name}, so the sum is left empty."
        if len({(stage.memory_bytes, stage.wall_seconds) for stage in each}) > 1:
            yield f"Stage {position}: memory and wall time of a job are the largest of them."
    if len({content.deadline for content in contents}) > 1:
        yield "It is needed by the earliest of their days."
