"""Values of earlier requests, suggested while the user types and used as defaults."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.db.models import Max, QuerySet

from apps.accounts.models import Experiment
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.content.stages import content_of, with_stages
from apps.production.enums import RequestState
from apps.production.models import Request, Stage

#: The columns with the values of each kind. Campaigns are columns of requests, all others of their
#: stages.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "campaign": ("campaign",),
    "release": ("release",),
    "configuration": ("configuration",),
    "dataset": ("output_dataset", "input_dataset"),
}
MOST = 20


def known_values(
    requests: QuerySet[Request], *, kind: str, text: str = "", most: int = MOST
) -> list[str]:
    """Return values of a kind in these requests and their stages that contain a text.

    The last used values come first. Raises `KeyError` for a kind that is not in `COLUMNS`.
    """
    last: dict[str, int] = {}
    for column in COLUMNS[kind]:
        rows: QuerySet[Any] = requests
        if kind != "campaign":
            rows = Stage.objects.filter(request__in=requests.order_by())
        matching = rows.filter(**{f"{column}__icontains": text}).exclude(**{column: ""}).order_by()
        for value, place in (
            matching.values_list(column).annotate(last=Max("pk")).order_by("-last")[:most]
        ):
            last[value] = max(place, last.get(value, 0))
    return sorted(last, key=lambda value: -last[value])[:most]


def last_request(experiment: Experiment, workflow_key: str) -> Request | None:
    """Return the experiment's newest submitted request of this type.

    Rejected and cancelled requests are skipped.
    """
    excluded = (RequestState.DRAFT, RequestState.REJECTED, RequestState.CANCELLED)
    mine = Request.objects.filter(experiment=experiment, workflow__type__key=workflow_key).exclude(
        state__in=excluded
    )
    return with_stages(mine).order_by("-pk").first()


def with_past_values(content: RequestContent, last: Request) -> RequestContent:
    """Fill release, configuration and services of stages from stages of their kind in `last`."""
    before = {stage.kind: stage for stage in reversed(content_of(last).stages)}
    return replace(
        content,
        stages=tuple(_fill_empty(stage, before.get(stage.kind)) for stage in content.stages),
    )


def _fill_empty(stage: StageContent, before: StageContent | None) -> StageContent:
    if before is None:
        return stage
    return replace(
        stage,
        release=stage.release or before.release,
        configuration=stage.configuration or before.configuration,
        services=stage.services or before.services,
    )
