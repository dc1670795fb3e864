"""What is requested, and what it needs."""

from dataclasses import dataclass
from datetime import datetime

from apps.accounts.models import User
from apps.datasets.domain.input_datasets import InputDataset, input_datasets
from apps.datasets.domain.staging import may_stage
from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.stages import ArgumentText, argument_texts
from apps.production.domain.holds import ActiveHold, holds_over
from apps.production.domain.requests.status import (
    RequestTotals,
    RequiredService,
    required_services,
    totals_of,
)
from apps.production.models import Request, Stage
from apps.statusboard.enums import State


@dataclass(frozen=True)
class RequestedContent:
    """The content of a request, the services that it needs, and the holds over it."""

    stages: list[tuple[Stage, list[ArgumentText]]]
    ingredients: list[ArgumentText]
    totals: RequestTotals
    needs: list[RequiredService]
    needs_impaired: list[RequiredService]
    needs_up: list[RequiredService]
    holds: list[ActiveHold]
    inputs: list[InputDataset]
    may_stage: bool


def requested_content(
    request: Request, content: RequestContent, user: User, at: datetime
) -> RequestedContent:
    stages = []
    for stage, stage_content in zip(request.stages.all(), content.stages, strict=True):
        declared = content.workflow.stage(stage_content.kind).arguments
        stages.append((stage, argument_texts(declared, stage_content.arguments)))

    needs = required_services(request, at)
    return RequestedContent(
        stages=stages,
        ingredients=argument_texts(content.workflow.arguments, content.arguments),
        totals=totals_of(request),
        needs=needs,
        needs_impaired=[need for need in needs if need.current.state != State.UP],
        needs_up=[need for need in needs if need.current.state == State.UP],
        holds=holds_over(request),
        inputs=input_datasets(request, content),
        may_stage=may_stage(user, request),
    )
