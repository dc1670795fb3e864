"""How many stages read a dataset."""

from collections import Counter
from collections.abc import Collection, Mapping

from django.db.models import Count, Exists, OuterRef

from apps.accounts.models import Principal
from apps.datasets.domain.steps import (
    concrete_names,
    has_placeholder,
    names_that_fit,
    stages_of_scans,
    visible_stages,
)
from apps.production.models import Stage

#: Whether the output of a stage is the input of the next stage of its request.
_IS_READ_BY_NEXT = Exists(
    Stage.objects.filter(
        request=OuterRef("request"), position=OuterRef("position") + 1, input_dataset=""
    )
)


def count_uses(names: Collection[str], user: Principal) -> Mapping[str, int]:
    """Return how many stages of visible requests read each of these datasets, in three queries.

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

    # The index of outputs has no empty ones, so the query must say that it looks for none.
    writing = stages.filter(output_dataset__in=names).exclude(output_dataset="")
    continued = writing.filter(_IS_READ_BY_NEXT).values_list("output_dataset")
    for name, count in continued.annotate(stages=Count("pk")):
        uses[name] += count

    concrete = concrete_names(names)
    if concrete:
        scans = stages_of_scans(stages, ("input_dataset", "output_dataset"), concrete)
        columns = ("input_dataset", "output_dataset", "request__scan", "is_read_by_next")
        rows = scans.annotate(is_read_by_next=_IS_READ_BY_NEXT).values_list(*columns)
        for input_template, output_template, scan, is_read_by_next in rows:
            if has_placeholder(input_template):
                uses.update(names_that_fit(concrete, input_template, scan))
            if is_read_by_next and has_placeholder(output_template):
                uses.update(names_that_fit(concrete, output_template, scan))
    return uses
