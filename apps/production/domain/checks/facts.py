"""Collect the facts that checks may use, in a fixed number of queries."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import (
    BigIntegerField,
    Case,
    Count,
    Exists,
    F,
    FilteredRelation,
    Func,
    Max,
    Q,
    QuerySet,
    Value,
    When,
)
from django.db.models.fields.json import KT, KeyTextTransform
from django.db.models.functions import Cast, Lower
from django.db.models.lookups import Regex
from django.utils import timezone

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import is_liaison
from apps.clusters.models import Cluster, Host
from apps.core.domain.events import events_of
from apps.core.models import Event
from apps.production.domain.checks.base import (
    ClusterLimits,
    EarlierBlock,
    EarlierStage,
    Facts,
    OtherRequest,
    PlannedWindow,
    ServiceNow,
    StageBefore,
)
from apps.production.domain.checks.rules.declared import ranges
from apps.production.domain.checks.rules.declared import runs as runs_in
from apps.production.domain.checks.rules.runs_and_seeds import NEW_RUNS
from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.scan import at_point, read_scan, scan_of
from apps.production.domain.estimates.figures import Estimate, PastStage, estimate
from apps.production.domain.estimates.past import past_at_once, past_stages, stage_names
from apps.production.domain.outputs.datasets import Dataset, find_datasets, listing_fault
from apps.production.domain.priority.listing import start_of
from apps.production.domain.priority.prospects import (
    QueueNow,
    request_of_draft,
    with_expected_end,
)
from apps.production.enums import SIGNED, UNCLAIMED
from apps.production.models import DatasetPart, Request, Stage, StageHistory
from apps.statusboard.domain.board.board import read_board
from apps.statusboard.models import DowntimeWindow, Service

#: How many of the newest earlier requests count for the usual services of a stage.
MOST_BEFORE = 100
#: How many stages of the newest scans count for the datasets that other requests write.
MOST_SCANS = 200


def basic_facts(at: datetime) -> Facts:
    """Return the facts needed to check whether a draft can be saved."""
    return Facts(
        today=timezone.localdate(at),
        services=frozenset(Service.objects.values_list("slug", flat=True)),
    )


def file_list_fault() -> str:
    """Return why the portal cannot list the files of keep-up processing.

    Empty if it can, or if it submits no jobs.
    """
    submits = Cluster.objects.filter(submits=True).exists()
    return listing_fault(settings.DATASET_CATALOGUE) if submits else ""


def facts_for(
    content: RequestContent,
    *,
    experiment: Experiment,
    at: datetime,
    request: Request | None = None,
    by: User | None = None,
    queue: QueueNow | None = None,
) -> Facts:
    """Return all facts for this content. `by` is its author if there is no request yet.

    Pass `queue`, the result of `read_queue`, to save its queries.
    """
    basic = basic_facts(at)
    earlier = Request.objects.filter(experiment=experiment).exclude(state__in=UNCLAIMED)
    if request is not None:
        earlier = earlier.exclude(pk=request.pk)
    past = past_stages(stage_names(content.stages), experiment)
    outputs = {past_stage.output_dataset for past_stage in chain.from_iterable(past.values())}
    named = _datasets(content)
    writers = _find_writers(named - {""}, experiment, request)
    # Datasets of other experiments are treated as absent, so that their existence is not revealed.
    datasets, fault = find_datasets((outputs | named) - {""} - writers.foreign)
    author = by if request is None else request.created_by
    clusters = Cluster.objects.filter(collects=True).values_list(
        "name", "max_memory_bytes", "max_wall_seconds"
    )
    cluster_limits = [ClusterLimits(name, memory, wall) for name, memory, wall in clusters]
    earlier_stages, earlier_blocks = _earlier_sizes(earlier)
    undefined = {}
    held = set()
    parts = Q(request=request) | Q(name__in=named, is_held=True, request__experiment=experiment)
    for part in DatasetPart.objects.filter(parts).defer("files"):
        if part.request_id == (request and request.pk) and part.defined_at is None:
            undefined[part.name] = part.error
        if part.is_held:
            held.add(part.name)
    completed: Any = StageHistory.objects.filter(request=request).exclude(last_completed_at=None)
    return Facts(
        today=basic.today,
        services=basic.services,
        service_states=_service_states(content, at),
        offers=tuple(cluster_limits),
        others=_similar_requests(content, earlier),
        written_by=writers.own,
        datasets=datasets,
        defining=undefined,
        held=frozenset(held),
        catalogue_fault=fault,
        listing_fault=file_list_fault() if content.workflow.takes_files else "",
        releases=_releases(content, earlier),
        stages_before=_stages_before(content, earlier),
        earlier_stages=earlier_stages,
        earlier_blocks=earlier_blocks,
        largest_outputs=_largest_outputs(past, datasets or {}),
        memory_used_bytes=_memory_used(experiment),
        largest_node_bytes=_largest_node(),
        former_contact=author.username if author and not is_liaison(author, experiment.pk) else "",
        changed_at={} if request is None else _changed_at(request),
        completed_at=dict(completed.values_list("name", "last_completed_at")),
        estimate=_estimate(content, experiment, request, past, datasets or {}, at=at, queue=queue),
    )


def _estimate(
    content: RequestContent,
    experiment: Experiment,
    request: Request | None,
    past: Mapping[str, list[PastStage]],
    datasets: Mapping[str, Dataset],
    *,
    at: datetime,
    queue: QueueNow | None,
) -> Estimate:
    """Return the estimate with expected start and end.

    For an approved request, the start is the stored one. Before approval, the request is treated as
    if it were approved now with the requested priority.
    """
    today = timezone.localdate(at)
    at_once = past_at_once(experiment)
    from_today = estimate(content, past=past, datasets=datasets, today=today, at_once=at_once)
    if request is None or request.state not in SIGNED:
        draft = request_of_draft(request, experiment, content)
        return with_expected_end(from_today, draft, content, start=None, at=at, queue=queue)
    start = start_of(request, at=at)
    days = start.days if start else None
    return with_expected_end(from_today, request, content, start=days, at=at)


def _service_states(content: RequestContent, at: datetime) -> Mapping[str, ServiceNow]:
    slugs = set(chain.from_iterable(stage.services for stage in content.stages))
    if not slugs:
        return {}
    rows = {}
    for board_row in read_board(at, days=0):
        if board_row.service.slug in slugs:
            rows[board_row.service.slug] = board_row
    windows: dict[str, list[PlannedWindow]] = defaultdict(list)
    planned = DowntimeWindow.objects.filter(
        services__slug__in=rows, ends_at__gt=at, cancelled_at=None
    )
    fields = ("services__slug", "title", "starts_at", "ends_at")
    for slug, *window in planned.order_by("starts_at", "pk").values_list(*fields):
        windows[slug].append(PlannedWindow(*window))
    states = {}
    for slug, board_row in rows.items():
        states[slug] = ServiceNow(board_row.service.name, board_row.state, tuple(windows[slug]))
    return states


def _similar_requests(
    content: RequestContent, earlier: QuerySet[Request]
) -> tuple[OtherRequest, ...]:
    """Return other requests with the same title, or with runs or seeds that may overlap."""
    runs = []
    for argument in content.workflow.arguments:
        if argument.type == "runs":
            runs.append(argument.name)
    first = FilteredRelation("stages", condition=Q(stages__position=0))
    rows = earlier.alias(first=first)

    alike = Q()
    for name in runs:
        if mine := runs_in(content, name):
            rows = rows.alias(**_run_bounds(name))
            ends = {f"{name}_first__lte": mine[-1][1], f"{name}_last__gte": mine[0][0]}
            alike |= Q(arguments__has_key=name, **ends)
    if content.arguments.get("first_seed") and content.stages:
        configuration = content.stages[0].configuration.replace("\0", "")
        alike |= Q(arguments__has_key="first_seed", first__configuration=configuration)
    if title := content.title.strip().replace("\0", ""):
        alike |= Q(title__iexact=title)
    if not alike:
        return ()

    arguments = [KT(f"arguments__{name}") for name in (*runs, "first_seed")]
    columns: Any = (
        "key",
        "title",
        "first__jobs",
        "first__configuration",
        "first__release",
        *arguments,
    )
    others = []
    for values in rows.filter(alike).order_by("pk").values_list(*columns):
        key, title, jobs, configuration, release, *texts, seed = values
        other = OtherRequest(
            key=key,
            title=title,
            runs={name: text for name, text in zip(runs, texts, strict=True) if text},
            first_seed=int(seed) if seed and seed.isdecimal() else None,
            jobs=jobs or 0,
            configuration=configuration or "",
            release=release or "",
        )
        others.append(other)
    return tuple(others)


def _run_bounds(name: str) -> dict[str, Case]:
    """Return expressions for the first and last run of an argument that is a single range.

    Any other value spans all runs.
    """
    text = KT(f"arguments__{name}")
    is_one = Regex(text, "^[0-9]{1,12}(-[0-9]{1,12})?$")
    whole = BigIntegerField()
    first = Cast(Func(text, Value("-"), Value(1), function="split_part"), whole)
    last = Cast(Func(text, Value("^.*-"), Value(""), function="regexp_replace"), whole)
    return {
        f"{name}_first": Case(When(is_one, then=first), default=Value(0), output_field=whole),
        f"{name}_last": Case(When(is_one, then=last), default=Value(10**12), output_field=whole),
    }


def _datasets(content: RequestContent) -> set[str]:
    """Return the datasets that the stages read and write, at each point of a scan."""
    contents = [content, *(at_point(content, point) for point in scan_of(content).points)]
    datasets: set[str] = set()
    for at_one_point in contents:
        for stage in at_one_point.stages:
            datasets |= {stage.input_dataset, stage.output_dataset}
    return datasets


class _Writers(NamedTuple):
    """Which requests write datasets.

    `own` has the key of a request of this experiment by dataset. `foreign` are the datasets that
    only requests of other experiments write.
    """

    own: Mapping[str, str]
    foreign: frozenset[str]


def _find_writers(names: set[str], experiment: Experiment, request: Request | None) -> _Writers:
    stages = Stage.objects.filter(output_dataset__in={name for name in names if "\0" not in name})
    stages = stages.exclude(request__state__in=UNCLAIMED).exclude(request=request)
    columns = ("output_dataset", "request__key", "request__experiment_id")
    own: dict[str, str] = {}
    foreign: set[str] = set()
    for name, key, experiment_pk in stages.order_by("-pk").values_list(*columns):
        if experiment_pk == experiment.pk:
            own[name] = key
        else:
            foreign.add(name)

    scans = (
        Stage.objects.filter(request__experiment=experiment)
        .exclude(request__scan="")
        .exclude(request=request)
    )
    scans = scans.exclude(request__state__in=UNCLAIMED).order_by("-pk")
    rows = scans.values_list("output_dataset", "request__scan", "request__key")
    for template, scan, key in rows[:MOST_SCANS]:
        written = {point.text(template) for point in read_scan(scan).points}
        own.update(dict.fromkeys(written & names, key))
    return _Writers(own, frozenset(foreign - own.keys()))


def datasets_of_others(
    names: Collection[str], experiment: Experiment, request: Request | None
) -> frozenset[str]:
    """Return which of these datasets only requests of other experiments write.

    They are not revealed to this experiment.
    """
    return _find_writers(set(names), experiment, request).foreign


def _releases(content: RequestContent, earlier: QuerySet[Request]) -> frozenset[str]:
    """Return this content's releases if all were used before, else every release used so far."""
    named = sorted(
        {stage.release for stage in content.stages if stage.release and "\0" not in stage.release}
    )
    used = (
        Stage.objects.filter(request__in=earlier)
        .exclude(release="")
        .order_by()
        .values_list("release", flat=True)
    )
    # Each EXISTS stops at the first matching row.
    looks = [Exists(used.filter(release=release)) for release in named]
    if not looks:
        return frozenset()
    are_used = Experiment.objects.order_by("pk").values_list(*looks).first() or (False,)
    if all(are_used):
        return frozenset(named)
    return frozenset(used.distinct())


def _stages_before(
    content: RequestContent, earlier: QuerySet[Request]
) -> Mapping[str, StageBefore]:
    latest = earlier.order_by("-created_at", "-pk")[:MOST_BEFORE].values("pk")
    stages = (
        Stage.objects.filter(request__in=latest)
        .annotate(small=Lower("name"))
        .filter(small__in=stage_names(content.stages))
    )
    times = Counter(dict(stages.order_by().values_list("small").annotate(Count("pk"))))
    needed: dict[str, Counter[str]] = defaultdict(Counter)
    for name, slug, count in (
        stages.order_by().values_list("small", "services__slug").annotate(Count("pk"))
    ):
        if slug is not None:
            needed[name][slug] += count
    return {name: StageBefore(count, needed[name]) for name, count in times.items()}


def _earlier_sizes(
    earlier: QuerySet[Request],
) -> tuple[tuple[EarlierStage, ...], tuple[EarlierBlock, ...]]:
    """Return the sizes of stages and run blocks of the newest earlier requests, in one query."""
    latest = earlier.order_by("-created_at", "-pk")[:MOST_BEFORE].values("pk")
    rows: Any = Stage.objects.filter(request__in=latest).order_by("request", "position")
    rows = rows.annotate(block=KeyTextTransform(NEW_RUNS, "request__arguments"))
    columns = ("request__key", "name", "position", "jobs", "wall_seconds", "memory_bytes", "block")
    stages = []
    blocks = []
    for key, name, position, jobs, wall, memory, block in rows.values_list(*columns):
        stages.append(EarlierStage(key, name.casefold(), jobs or 0, wall or 0, memory or 0))
        if position == 0 and block:
            blocks.append(
                EarlierBlock(jobs or 0, sum(last - first + 1 for first, last in ranges(block)))
            )
    return tuple(stages), tuple(blocks)


def _largest_outputs(
    past: Mapping[str, list[PastStage]], datasets: Mapping[str, Dataset]
) -> dict[str, int]:
    """Return the size of the largest catalogued output of past stages, by stage name."""
    largest: dict[str, int] = {}
    for name, stages in past.items():
        written = []
        for past_stage in stages:
            if past_stage.output_dataset in datasets:
                written.append(datasets[past_stage.output_dataset])
        largest[name] = max((dataset.size_bytes or 0 for dataset in written), default=0)
    return largest


def _memory_used(experiment: Experiment) -> float:
    """Return the largest 90th percentile of memory over the experiment's past stages.

    It is 0 if unknown.
    """
    used = StageHistory.objects.filter(experiment=experiment).aggregate(
        most=Max(F("memory_bytes__4"))
    )
    return used["most"] or 0.0


def _largest_node() -> int:
    """Return the memory of the largest node of the collected clusters, 0 if unknown."""
    return (
        Host.objects.filter(cluster__collects=True).aggregate(most=Max("memory_bytes"))["most"] or 0
    )


def _changed_at(request: Request) -> Mapping[int, datetime]:
    """Return when the release or configuration of each stage last changed, by stage position.

    The times come from the request's edit events.
    """
    changed_at: dict[int, datetime] = {}
    edits: Iterable[Event] = events_of(request).filter(kind="request.edited")
    for event in edits:
        for change in event.data.get("changes", ()):
            parts = change["path"].split(".")
            if parts[0] == "stages" and (
                len(parts) == 2 or parts[2] in {"release", "configuration"}
            ):
                changed_at[int(parts[1])] = event.at
    return changed_at
