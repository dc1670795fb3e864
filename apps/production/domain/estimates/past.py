"""Past jobs of the same stages, for estimates, in a fixed number of queries."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime

from django.db.models import OuterRef, Subquery
from django.utils import timezone

from apps.accounts.models import Experiment
from apps.production.domain.content.model import STAGE_FIELDS, RequestContent, StageContent
from apps.production.domain.estimates.figures import Estimate, PastStage, StageEstimate, estimate, estimate_stages
from apps.production.domain.outputs.datasets import find_datasets
from apps.production.models import Request, Stage, StageHistory

#: An estimate uses at most this many past stages, the newest.
MOST_PAST = 200
#: The earliest, likeliest and latest of some days.
Days = tuple[date, date, date]


def estimate_for(
    content: RequestContent, experiment: Experiment, at: datetime, *, begins: Days | None = None
) -> Estimate:
    """Return only the estimate. Its finish counts from the expected start, `begins`, if that is known."""
    past = past_stages(stage_names(content.stages), experiment)
    datasets, _ = find_datasets({row.output_dataset for rows in past.values() for row in rows} - {""})
    return estimate(content, past=past, datasets=datasets or {}, today=timezone.localdate(at), begins=begins)


def past_of_stages(stages: Sequence[Stage], experiment_id: int) -> dict[int, StageEstimate]:
    """Return estimates for stages of one experiment by primary key, in one query; without disk use."""
    contents = [StageContent(**{name: getattr(stage, name) for name in STAGE_FIELDS}) for stage in stages]
    found = estimate_stages(contents, past=past_stages(stage_names(contents), experiment_id), datasets={})
    return {stage.pk: one for stage, one in zip(stages, found, strict=True)}


def stage_names(stages: Iterable[StageContent]) -> set[str]:
    return {stage.name.casefold() for stage in stages if stage.name and "\0" not in stage.name}


def past_stages(names: set[str], experiment: Experiment | int) -> Mapping[str, list[PastStage]]:
    rows = StageHistory.objects.filter(experiment=experiment, name__in=names).order_by("-last_ended_at")
    # A join would read the requests of all rows; this reads only those of the rows kept.
    rows = rows.annotate(key=Subquery(Request.objects.filter(pk=OuterRef("request")).values("key")))
    found: dict[str, list[PastStage]] = defaultdict(list)
    for row in rows[:MOST_PAST] if names else ():
        found[row.name].append(
            PastStage(
                request=row.key,
                release=row.release,
                configuration=row.configuration,
                output_dataset=row.output_dataset,
                events_per_job=row.events_per_job,
                completed=row.completed,
                core_seconds=row.core_seconds,
                completed_wall_seconds=row.completed_wall_seconds,
                wall_seconds=tuple(row.wall_seconds),
                memory_bytes=tuple(row.memory_bytes),
                per_day=tuple(row.per_day),
            )
        )
    return found
