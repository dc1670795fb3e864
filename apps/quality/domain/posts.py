"""Posts of jobs, users and tools: files, histograms, and results of external tools."""

import math
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from django.db import transaction
from django.db.models import F

from apps.accounts.models import User
from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.datasets.domain.output_files import NamedFile, name_problems
from apps.production.domain.outputs.counts import REPORTABLE
from apps.production.enums import RequestState
from apps.production.models import Request, Stage
from apps.quality.checks.facts import Histogram, Posted
from apps.quality.enums import External
from apps.quality.models import ExternalResult, HistogramPair, QualityInput
from apps.quality.permissions import may_run
from apps.submission.domain.arrays.output_files import store_files

#: Limits of one post, and of all posts of a stage or request.
MOST_BINS = 1_000
HISTOGRAMS_A_STAGE = 200
RESULTS_A_REQUEST = 500
MAX_WHY = 2_000
_LARGEST = 1e15


@transaction.atomic
def name_files(
    *, stage: Stage, key: str, files: Sequence[NamedFile], by: User, at: datetime
) -> int:
    """Store the files of one reporter. Posting the same key again replaces them.

    Raises `NotAllowed`, `InvalidTransition`, `InvalidFields` with every fault.
    """
    _check_poster(stage.request, by)
    stored = store_files(stage=stage, key=key, files=files, by=by.username, at=at)
    _count_post(stage.request)
    return stored.stored


@transaction.atomic
def post_histogram(
    *, stage: Stage, posted: Histogram, by: User, at: datetime
) -> tuple[HistogramPair, bool]:
    """Store a histogram with its reference. Return it, and whether its name is new.

    The same name replaces it. Raises `NotAllowed`, `InvalidTransition`, `InvalidFields` with every
    fault.
    """
    _check_poster(stage.request, by)
    problems = (
        name_problems("name", posted.name)
        | _link_problems(posted.link)
        | histogram_problems(posted)
    )
    if problems:
        raise InvalidFields(problems)
    _publish_post(stage.request, by, at, stage, f"histogram {posted.name}")
    if (
        HistogramPair.objects.filter(stage=stage).exclude(name=posted.name).count()
        >= HISTOGRAMS_A_STAGE
    ):
        raise InvalidFields(
            {"name": [f"A stage can have at most {HISTOGRAMS_A_STAGE} histograms."]}
        )
    values = vars(posted) | {"by": by.username, "at": at}
    return HistogramPair.objects.update_or_create(stage=stage, name=posted.name, defaults=values)


def histogram_problems(posted: Histogram) -> dict[str, list[str]]:
    """Return the problems of the bins, by field."""
    problems: dict[str, list[str]] = {}
    edges = posted.edges
    if not 2 <= len(edges) <= MOST_BINS + 1:
        problems["edges"] = [f"Enter 2 to {MOST_BINS + 1:,} edges, one more than bins."]
    elif not all(_is_number(edge) for edge in edges) or any(a >= b for a, b in pairwise(edges)):
        problems["edges"] = ["Enter increasing numbers."]
    for field, contents in (("reference", posted.reference), ("observed", posted.observed)):
        if len(contents) != len(edges) - 1:
            problems[field] = [f"Enter one number for each of the {max(0, len(edges) - 1):,} bins."]
        elif not all(_is_number(content) and content >= 0 for content in contents):
            problems[field] = [f"Enter numbers from 0 to {_LARGEST:.0e}."]
    return problems


@transaction.atomic
def post_result(
    *, request: Request, posted: Posted, by: User, at: datetime, stage: Stage | None = None
) -> tuple[ExternalResult, bool]:
    """Store a result of an external tool. Return it, and whether its name is new.

    The same name replaces it. Raises `NotAllowed`, `InvalidTransition`, `InvalidFields` with every
    fault.
    """
    _check_poster(request, by)
    problems = name_problems("name", posted.name) | _link_problems(posted.link)
    if posted.outcome not in External.values:
        problems["outcome"] = [f"Choose one of: {', '.join(External.values)}."]
    why = posted.why.strip()
    if not why or len(posted.why) > MAX_WHY or "\0" in why:
        problems["why"] = [f"Give a reason in at most {MAX_WHY:,} characters."]
    for field, number in (("value", posted.value), ("threshold", posted.threshold)):
        if number is not None and not _is_number(number):
            problems[field] = ["Enter a number."]
    if problems:
        raise InvalidFields(problems)
    _publish_post(request, by, at, stage, f"{posted.name}: {posted.outcome}")
    if (
        ExternalResult.objects.filter(request=request)
        .exclude(stage=stage, name=posted.name)
        .count()
        >= RESULTS_A_REQUEST
    ):
        raise InvalidFields(
            {"name": [f"A request can have at most {RESULTS_A_REQUEST} results of external tools."]}
        )
    values = vars(posted) | {"why": why, "by": by.username, "at": at}
    return ExternalResult.objects.update_or_create(
        request=request, stage=stage, name=posted.name, defaults=values
    )


def _check_poster(request: Request, by: User) -> None:
    if not may_run(by, request):
        raise NotAllowed(
            "Only liaisons of the experiment, approvers and shifters can post results."
        )
    if request.state not in REPORTABLE:
        raise InvalidTransition(
            f"{request} is “{request.get_state_display()}”: results cannot be posted in this state."
        )


def _count_post(request: Request) -> None:
    """Count a post, so that runs before it and runs in progress become stale."""
    QualityInput.objects.get_or_create(request=request)
    QualityInput.objects.filter(request=request).update(revision=F("revision") + 1)
    if request.state == RequestState.DATA_QUALITY:
        enqueue("quality.check_request", request_id=request.pk, countdown=2)


def _publish_post(request: Request, by: User, at: datetime, stage: Stage | None, what: str) -> None:
    _count_post(request)
    data = {"stage": stage.position + 1 if stage else None, "what": what[:300]}
    publish(kind="request.quality_posted", target=request, by=by, at=at, data=data)


def _link_problems(link: str) -> dict[str, list[str]]:
    if not link or (
        link.startswith(("http://", "https://")) and len(link) <= 500 and link.isprintable()
    ):
        return {}
    return {"link": ["Enter an http:// or https:// address of at most 500 characters."]}


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and abs(value) <= _LARGEST
