"""Values proposed in a new request: of the last request, of past jobs, and free numbers."""

from collections.abc import Iterable
from dataclasses import replace
from math import ceil
from typing import Any

from django.db.models import Case, IntegerField, When
from django.db.models.fields.json import KT

from apps.accounts.models import Experiment
from apps.production.domain.checks.rules.chain import source_positions
from apps.production.domain.checks.rules.declared import ranges, text
from apps.production.domain.checks.rules.runs_and_seeds import MAX_RUN, MAX_SEED, NEW_RUNS
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.content.stage_names import named_or_synonym
from apps.production.domain.content.stages import content_of, with_stages
from apps.production.domain.estimates.figures import StageEstimate, estimate_stages
from apps.production.domain.estimates.past import past_stages, stage_names
from apps.production.domain.types.arguments import Value
from apps.production.domain.types.declaration import StageType
from apps.production.domain.types.fields import CORE
from apps.production.enums import RequestState
from apps.production.models import Request

#: The types of arguments whose values belong to one request.
_OF_ONE_REQUEST = frozenset({"count", "dataset", "date", "lines", "runs", "text"})
_FREE = (RequestState.REJECTED, RequestState.CANCELLED)
GB = 10**9
HOUR = 3600


def propose_values(content: RequestContent, experiment: Experiment) -> RequestContent:
    """Fill empty fields of a new request.

    The values are those of the experiment's last request, of this type if there is any, and those
    that past jobs of the same stages needed. A stage reads the type that the stage before it
    writes. Run numbers and seed are the first free ones.
    """
    last = _last_request(experiment, content.workflow.key)
    if last:
        content = _with_past_values(content, content_of(last))
    content = _with_past_use(content, experiment)
    return _with_free_numbers(with_input_types(content), experiment)


def _last_request(experiment: Experiment, workflow_key: str) -> Request | None:
    """Return the experiment's newest submitted request, of this type if there is any.

    Rejected and cancelled requests are skipped.
    """
    submitted = Request.objects.filter(experiment=experiment).exclude(
        state__in=(RequestState.DRAFT, *_FREE)
    )
    is_other_type = Case(
        When(workflow__type__key=workflow_key, then=0), default=1, output_field=IntegerField()
    )
    return with_stages(submitted).order_by(is_other_type, "-pk").first()


def _with_past_values(content: RequestContent, last: RequestContent) -> RequestContent:
    """Fill stages from the first stage of their kind in `last`, or else of their name."""
    same_type = last.workflow.key == content.workflow.key
    by_kind = {stage.kind: stage for stage in reversed(last.stages)} if same_type else {}
    by_name = {stage.name.casefold(): stage for stage in reversed(last.stages)}
    stages = list(content.stages)
    for position, stage in enumerate(stages):
        _, named = named_or_synonym(by_name, stage.name)
        past = by_kind.get(stage.kind) or named
        if past:
            stages[position] = _filled(stage, past, content.workflow.stage(stage.kind))
    return replace(content, stages=tuple(stages))


def _filled(stage: StageContent, past: StageContent, kind: StageType) -> StageContent:
    arguments: dict[str, Value] = {}
    for argument in kind.arguments:
        is_lasting = argument.name not in CORE and argument.type not in _OF_ONE_REQUEST
        if is_lasting and argument.name in past.arguments:
            arguments[argument.name] = past.arguments[argument.name]
    return replace(
        stage,
        release=stage.release or past.release,
        configuration=stage.configuration or past.configuration,
        memory_bytes=stage.memory_bytes or past.memory_bytes,
        wall_seconds=stage.wall_seconds or past.wall_seconds,
        retry_memory_bytes=stage.retry_memory_bytes or past.retry_memory_bytes,
        retry_wall_seconds=stage.retry_wall_seconds or past.retry_wall_seconds,
        services=stage.services or past.services,
        arguments={**arguments, **stage.arguments},
    )


def _with_past_use(content: RequestContent, experiment: Experiment) -> RequestContent:
    """Set memory and wall time a little above what nine in ten past jobs used, where known."""
    past = past_stages(stage_names(content.stages), experiment)
    figures = estimate_stages(content.stages, past=past, datasets={})
    stages = []
    for stage, estimate in zip(content.stages, figures, strict=True):
        memory_bytes = stage.memory_bytes
        if estimate.memory_most:
            memory_bytes = ceil(estimate.memory_most * 1.1 / GB) * GB
        wall_seconds = stage.wall_seconds
        if estimate.wall_most:
            wall_seconds = ceil(estimate.wall_most * 1.2 / HOUR) * HOUR
            wall_seconds = min(wall_seconds, CORE["wall_seconds"].most)
        proposed = replace(stage, memory_bytes=memory_bytes, wall_seconds=wall_seconds)
        stages.append(_with_bounds_of_retries(proposed, estimate))
    return replace(content, stages=tuple(stages))


def _with_bounds_of_retries(stage: StageContent, estimate: StageEstimate) -> StageContent:
    """Fill empty bounds of retries with twice what nine in ten past jobs needed, where known."""
    memory_bytes = stage.retry_memory_bytes
    if memory_bytes is None and estimate.memory_most and stage.memory_bytes:
        memory_bytes = min(2 * stage.memory_bytes, CORE["retry_memory_bytes"].most)
    wall_seconds = stage.retry_wall_seconds
    if wall_seconds is None and estimate.wall_most and stage.wall_seconds:
        wall_seconds = min(2 * stage.wall_seconds, CORE["retry_wall_seconds"].most)
    return replace(stage, retry_memory_bytes=memory_bytes, retry_wall_seconds=wall_seconds)


def with_input_types(content: RequestContent) -> RequestContent:
    """Fill empty input types: a stage reads the type that its source stage writes."""
    stages = list(content.stages)
    for position, source in enumerate(source_positions(content)):
        stage = stages[position]
        takes_type = content.workflow.stage(stage.kind).argument("input_type")
        if source is None or not takes_type or text(stage, "input_type"):
            continue
        written = text(stages[source], "output_type")
        if written:
            stages[position] = replace(stage, arguments={**stage.arguments, "input_type": written})
    return replace(content, stages=tuple(stages))


def _with_free_numbers(content: RequestContent, experiment: Experiment) -> RequestContent:
    """Fill empty run numbers and the empty seed with numbers after the ones of all other requests.

    The block is as long as the newest request's. Without an earlier request, the experiment's
    first number is unknown, and nothing is proposed.
    """
    declared = {argument.name for argument in content.workflow.arguments}
    if NEW_RUNS not in declared:
        return content
    columns: Any = (KT(f"arguments__{NEW_RUNS}"), KT("arguments__first_seed"), "stages__jobs")
    requests = Request.objects.filter(experiment=experiment, arguments__has_key=NEW_RUNS)
    claimed = list(
        requests.exclude(state__in=_FREE)
        .filter(stages__position=0)
        .order_by("pk")
        .values_list(*columns)
    )
    free: dict[str, Value | None] = {NEW_RUNS: _free_block(block for block, _, _ in claimed)}
    if "first_seed" in declared:
        free["first_seed"] = _free_seed((seed, jobs) for _, seed, jobs in claimed)
    proposed = {name: value for name, value in free.items() if value}
    return replace(content, arguments={**proposed, **content.arguments})


def _free_block(blocks: Iterable[str]) -> str:
    size = 0
    last_used = 0
    for block in blocks:
        runs = ranges(block)
        if runs:
            size = sum(last - first + 1 for first, last in runs)
            last_used = max(last_used, *(last for _, last in runs))
    if not size or last_used + size >= MAX_RUN:
        return ""
    return f"{last_used + 1}-{last_used + size}"


def _free_seed(seeds: Iterable[tuple[str | None, int | None]]) -> int | None:
    free = 0
    for seed, jobs in seeds:
        if seed and seed.isdecimal():
            free = max(free, int(seed) + max(jobs or 0, 1))
    return free if 0 < free < MAX_SEED else None
