"""The last sections of the request form: resources next to what past jobs used, and the review."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.accounts.models import Experiment, User
from apps.production.domain.approvals.requirements import signers_of
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.content.scan import Point, scan_of
from apps.production.domain.content.stages import ArgumentText, argument_texts
from apps.production.domain.estimates.figures import Estimate
from apps.production.domain.priority.prospects import QueueNow, prospects_of_draft
from apps.production.models import Request
from apps.production.web.forms.request import RequestForms


@dataclass(frozen=True)
class Review:
    """The content to be submitted, its size, and who must sign it.

    `outputs` are the datasets of each point of a scan.
    """

    experiment: Experiment | None
    content: RequestContent
    arguments: list[ArgumentText]
    stages: list[tuple[StageContent, list[ArgumentText]]]
    outputs: list[tuple[Point, list[str]]]
    estimate: Estimate
    signers: list[tuple[str, list[str]]]

    @property
    def jobs(self) -> int:
        return sum(stage.jobs or 0 for stage, _ in self.stages)

    @property
    def limit_seconds(self) -> int:
        """The time of all jobs if each runs until its limit."""
        return sum((stage.jobs or 0) * (stage.wall_seconds or 0) for stage, _ in self.stages)


def review_context(
    forms: RequestForms,
    estimate: Estimate,
    experiment: Experiment | None,
    production_request: Request | None,
    user: User,
    *,
    at: datetime,
    queue: QueueNow | None = None,
) -> dict[str, Any]:
    """Return the context of the sections: `prospects` by class, `resources`, `review`.

    Each of the `resources` is a form, stage and estimate. `queue` is the queue now, if it has been
    read.
    """
    content = forms.content
    requesters = {user.pk}
    if production_request:
        requesters |= production_request.requester_ids
    count = len(forms.stages.forms)
    figures = [*estimate.stages, *[None] * count]
    # Stages whose input cannot be read are shown too.
    stages = [
        *content.stages,
        *[StageContent()] * count,
    ]

    prospects = {}
    if experiment and (production_request is None or production_request.approved_at is None):
        prospects = prospects_of_draft(
            experiment, content, estimate, request=production_request, at=at, queue=queue
        )
    datasets = [stage.output_dataset for stage in content.stages]
    stages_with_texts = []
    for stage in content.stages:
        declared = content.workflow.stage(stage.kind).arguments
        stages_with_texts.append((stage, argument_texts(declared, stage.arguments)))
    return {
        "prospects": prospects,
        "resources": list(zip(forms.stages.forms, stages, figures, strict=False)),
        "review": Review(
            experiment=experiment,
            content=content,
            arguments=argument_texts(content.workflow.arguments, content.arguments),
            stages=stages_with_texts,
            outputs=[(point, list(map(point.text, datasets))) for point in scan_of(content).points],
            estimate=estimate,
            signers=signers_of(content, experiment=experiment, requesters=requesters, at=at)
            if experiment
            else [],
        ),
    }
