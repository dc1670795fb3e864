"""How many stages read a dataset."""

from collections import Counter
from collections.abc import Collection, Mapping

from django.db.models import Count, Exists, OuterRef, QuerySet

from apps.accounts.models import Principal
from apps.datasets.domain.steps import (
    concrete_names,
    names_that_fit,
    stages_of_scans,
    visible_stages,
)
from apps.production.models import Stage


def count_uses(names: Collection[str], user: Principal) -> Mapping[str, int]:
    """Return how many stages of visible requests read each of these datasets, in four queries.

    A stage reads its input dataset or, if it has none, the output of the previous stage. A stage of
    a scan counts once for each dataset that it reads at one of its points.
    """
    uses: Counter[str] = Counter()
    if not names:
        return uses
    stages = visible_stages(user).order_by()
    by_name = stages.filter(input_dataset__in=names).values_list("input_dataset")
    for name, count in by_name.annotate(stages=Count("pk")):
        uses[name] += count
    continued = _read_by_next_stage(stages)
    for name, count in (
        continued.filter(output_dataset__in=names)
        .values_list("output_dataset")
        .annotate(stages=Count("pk"))
    ):
        uses[name] += count

    concrete = concrete_names(names)
    for rows, column in ((stages, "input_dataset"), (continued, "output_dataset")):
        if concrete:
            scans = stages_of_scans(rows, column, concrete)
            for template, scan in scans.values_list(column, "request__scan"):
                uses.update(names_that_fit(concrete, template, scan))
    return uses


def _read_by_next_stage(stages: QuerySet[Stage]) -> QuerySet[Stage]:
    """Return the stages whose output is the input of the next stage of their request."""
    following = Stage.objects.filter(
        request=OuterRef("request"), position=OuterRef("position") + 1, input_dataset=""
    )
    return stages.filter(Exists(following))
