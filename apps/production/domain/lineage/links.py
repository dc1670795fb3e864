"""Splitting and combining requests.

The new requests are drafts, the old ones are superseded, and links record both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Prefetch, Q

from apps.accounts.models import User
from apps.core.domain.events import events_of, publish
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.production.domain.actors import may
from apps.production.domain.content.stages import content_of, with_stages
from apps.production.domain.lifecycle.moves import make_move, supersede_request
from apps.production.domain.lineage.combination import (
    MAX_COMBINED,
    Combination,
    KeyedContent,
    combine,
    list_obstacles,
)
from apps.production.domain.lineage.dataset_parts import order_parts
from apps.production.domain.lineage.splits import Split, SplitUnit, split
from apps.production.domain.outputs.datasets import may_define
from apps.production.domain.reasons import MAX_REASON
from apps.production.domain.requests.drafts import create_draft
from apps.production.enums import (
    BEFORE_PRODUCTION,
    CLOSED,
    PORTAL,
    Actor,
    LinkKind,
    RequestState,
    Verb,
)
from apps.production.models import Request, RequestLink, Stage

#: How many requests are offered for combining at a time, and how many links of a kind are shown.
OFFERED = 20
MOST_SHOWN = 50


def may_rearrange(user: User, request: Request) -> bool:
    """Whether a user may split or combine a request. The same users may supersede it."""
    return may(user, Actor.LIAISON_OR_APPROVER, request)


def refusal_to_rearrange(request: Request) -> str:
    """Return why a request cannot be split or combined now, or an empty text."""
    if request.state in BEFORE_PRODUCTION:
        sent = (
            "Jobs were already submitted for it, if only as a test. Supersede it by another "
            "request instead."
        )
        return sent if request.work_began_at else ""
    state = f"It is “{request.get_state_display()}”"
    if request.state in CLOSED:
        return f"{state} and closed. Clone it instead."
    if request.state == RequestState.ON_HOLD:
        return f"{state}. Release it first."
    return (
        f"{state}, and jobs may have been submitted. Wait until it is done, or supersede it by "
        "another request."
    )


def plan_split(*, request: Request, by_what: SplitUnit, size: int) -> Split:
    """Return the parts of a planned split. Raises `InvalidFields`, `InvalidTransition`."""
    if why := refusal_to_rearrange(request):
        raise InvalidTransition(f"{request} cannot be split. {why}")
    planned = split(
        content_of(request), by_what, size, defines=may_define(settings.DATASET_CATALOGUE)
    )
    if level := request.level:
        planned.notes.append(f"Each part keeps the priority set by the OPG: {level}.")
    return planned


@transaction.atomic
def split_request(
    *,
    request: Request,
    by_what: SplitUnit,
    size: int,
    by: User,
    at: datetime,
    reason: str,
    version: int | None = None,
) -> list[Request]:
    """Create drafts of the parts of a request, and supersede it. A draft is cancelled instead.

    Raises `NotAllowed`, `InvalidFields`, `InvalidTransition` if jobs were submitted, `StaleState`.
    """
    _check_allowed(by, [request])
    whole = _lock_requests({request: version})[0]
    planned = plan_split(request=whole, by_what=by_what, size=size)
    made = []
    for part in planned.parts:
        origin = {"split_from": whole.key, "note": part.note}
        made.append(
            create_draft(
                experiment=whole.experiment,
                content=part.content,
                by=by,
                at=at,
                origin=origin,
                editor_ids=whole.editor_ids,
            )
        )
        create_link(LinkKind.SPLIT, whole, made[-1], by, at, part.note)
        _copy_priority(whole, made[-1], at)
    if planned.defines:
        order_parts(whole=whole, parts=made, planned=planned, at=at)
    _supersede_or_cancel(
        whole, made[0], by, at, reason, {"split_into": [part.key for part in made]}
    )
    return made


def plan_combined(*, requests: Sequence[Request]) -> Combination:
    """Return the combination of requests, with the title of the first.

    Raises `InvalidFields`, `InvalidTransition`.
    """
    if len({request.experiment_id for request in requests}) > 1:
        raise InvalidFields({"requests": ["Choose requests of one experiment."]})
    problems = []
    for request in requests:
        if why := refusal_to_rearrange(request):
            problems.append(f"{request}: {why}")
    if problems:
        raise InvalidTransition(" ".join(problems[:5]))
    return combine([KeyedContent(request.key, content_of(request)) for request in requests])


@transaction.atomic
def combine_requests(
    *,
    requests: Sequence[Request],
    by: User,
    at: datetime,
    reason: str,
    versions: Mapping[str, int] | None = None,
) -> Request:
    """Combine several requests into one draft, and supersede them. Drafts are cancelled instead.

    `versions` are the versions that the user saw, by key. Raises `NotAllowed`, `InvalidFields`,
    `InvalidTransition` if jobs were submitted, `StaleState`.
    """
    if len({request.pk for request in requests}) != len(requests) or len(requests) > MAX_COMBINED:
        raise InvalidFields({"requests": [f"Choose at most {MAX_COMBINED} requests, each once."]})
    _check_allowed(by, requests)
    seen = versions or {}
    old = _lock_requests({request: seen.get(request.key) for request in requests})
    content = plan_combined(requests=old).content
    origin = {"combined_from": [request.key for request in old]}
    editors = list(chain.from_iterable(request.editor_ids for request in old))
    made = create_draft(
        experiment=old[0].experiment,
        content=content,
        by=by,
        at=at,
        origin=origin,
        editor_ids=editors,
    )
    for request in old:
        create_link(LinkKind.COMBINED, request, made, by, at)
        _supersede_or_cancel(request, made, by, at, reason, {"combined_into": made.key})
    return made


def _copy_priority(whole: Request, part: Request, at: datetime) -> None:
    """Copy the priority that the OPG set for the whole to a part, so that its approvers see it."""
    level = whole.level
    if not level:
        return
    part.priority = whole.priority
    part.priority_class = whole.priority_class
    part.save(update_fields=["priority", "priority_class"])
    set_for = events_of(whole).filter(kind="request.priority_set").last()
    reason = f"From {whole.key}{f', {set_for.actor}: {set_for.reason}' if set_for else '.'}"
    publish(
        kind="request.priority_set",
        target=part,
        by=PORTAL,
        at=at,
        new=level,
        reason=reason[:MAX_REASON],
        data={"handed_on_from": whole.key, "rank_old": None, "rank_new": None},
    )


def _check_allowed(by: User, requests: Sequence[Request]) -> None:
    for request in requests:
        if not may_rearrange(by, request):
            raise NotAllowed(f"Only liaisons of {request.experiment} and approvers can do this.")


def _lock_requests(versions: Mapping[Request, int | None]) -> list[Request]:
    """Lock the rows in the order of their keys, and return them in the order of `versions`.

    Raises `StaleState` if a request has changed.
    """
    requests = with_stages(Request.objects.select_for_update(of=("self",)))
    requests = requests.filter(pk__in=[request.pk for request in versions])
    current = {request.pk: request for request in requests.order_by("pk")}

    for request, version in versions.items():
        now = current[request.pk]
        if now.version != request.version or version not in {None, now.version}:
            raise StaleState(
                f"{now} was changed in the meantime. Nothing was done. Check it and try again."
            )
    return [current[request.pk] for request in versions]


def create_link(
    kind: LinkKind, earlier: Request, later: Request, by: User, at: datetime, note: str = ""
) -> None:
    """Record how a request was made from an earlier one, in the caller's transaction."""
    RequestLink.objects.create(
        kind=kind, earlier=earlier, later=later, note=note, at=at, by=str(by)[:150]
    )


def _supersede_or_cancel(
    old: Request, new: Request, by: User, at: datetime, reason: str, data: dict[str, Any]
) -> None:
    if old.state == RequestState.DRAFT:
        make_move(verb=Verb.CANCEL, request=old, by=by, at=at, reason=reason, data=data)
    else:
        supersede_request(request=old, by=by, at=at, reason=reason, successor=new, data=data)


@dataclass(frozen=True)
class LinkCandidate:
    request: Request
    reasons: list[str]


@dataclass(frozen=True)
class Candidates:
    """A page of requests to combine with, combinable ones first.

    `older` is where the next page starts, 0 at the end.
    """

    rows: list[LinkCandidate]
    older: int


def candidates_for(
    request: Request, user: User, *, text: str = "", before: int = 0, chosen: Sequence[str] = ()
) -> Candidates:
    """Return a page of the newest candidates for combining, and the chosen ones.

    They are requests before production with the same experiment, type and number of stages. `text`
    filters by key or title, `before` by primary key.
    """
    requests = Request.objects.visible_to(user).filter(
        experiment=request.experiment_id, state__in=BEFORE_PRODUCTION
    )
    requests = requests.exclude(pk=request.pk)

    length = len(request.stages.all())
    stages = Stage.objects.filter(request=OuterRef("pk"))
    alike = requests.filter(
        Exists(stages.filter(position=length - 1)), workflow=request.workflow_id
    )
    alike = alike.exclude(Exists(stages.filter(position=length))).exclude(key__in=chosen)
    if text:
        alike = alike.filter(Q(key__icontains=text) | Q(title__icontains=text))
    if before:
        alike = alike.filter(pk__lt=before)

    offered = list(alike.order_by("-pk").values_list("pk", flat=True)[: OFFERED + 1])
    ticked = (
        requests.filter(key__in=chosen).order_by("-pk").values_list("pk", flat=True)[:MAX_COMBINED]
    )
    order = [*ticked, *offered[:OFFERED]]
    loaded = Request.objects.select_related("created_by", "workflow__type")
    loaded = loaded.prefetch_related(Prefetch("stages", Stage.objects.order_by("position")))
    shown = loaded.in_bulk(order)

    mine = KeyedContent(request.key, content_of(request, services=False))
    rows_shown = []
    for pk in order:
        other = shown.get(pk)
        if other is None:
            continue
        late = refusal_to_rearrange(other)
        # Services never prevent combining, so they are not read.
        theirs = KeyedContent(other.key, content_of(other, services=False))
        reasons = [late] if late else list_obstacles(mine, theirs)
        if not may_rearrange(user, other):
            reasons = ["It is a draft. Only its liaisons can combine it.", *reasons]
        rows_shown.append(LinkCandidate(other, reasons))
    rows_shown.sort(key=lambda candidate: bool(candidate.reasons))
    return Candidates(rows_shown, offered[OFFERED - 1] if len(offered) > OFFERED else 0)


@dataclass(frozen=True)
class Related:
    """A related request, a label for the relation, and a note such as the part it is."""

    label: str
    request: Request
    note: str = ""


#: The label of the relation by kind of link and by whether the other request is the later one.
_WORDS = {
    (LinkKind.SPLIT, True): "Split into",
    (LinkKind.SPLIT, False): "Split from",
    (LinkKind.COMBINED, True): "Combined into",
    (LinkKind.COMBINED, False): "Combined from",
    (LinkKind.RECOVERED, True): "Missing files requested in",
    (LinkKind.RECOVERED, False): "Missing files of",
}


def related_to(request: Request) -> list[Related]:
    """Return the requests that this one was made from, and those made from it."""
    links = RequestLink.objects.filter(Q(earlier=request) | Q(later=request)).select_related(
        "earlier", "later"
    )
    related = []
    for link in links.order_by("pk")[: 2 * MOST_SHOWN]:
        is_later = link.earlier_id == request.pk
        other = link.later if is_later else link.earlier
        related.append(Related(_WORDS[LinkKind(link.kind), is_later], other, link.note))

    linked = {relation.request.pk for relation in related}
    fields = [("Superseded by", request.superseded_by), ("Cloned from", request.cloned_from)]
    for label, origin in fields:
        if origin is not None and origin.pk not in linked:
            related.append(Related(label, origin))

    rows_naming_it = Request.objects.filter(
        Q(superseded_by=request) | Q(cloned_from=request)
    ).exclude(pk__in=linked)
    followers = list(rows_naming_it.order_by("pk")[: 2 * MOST_SHOWN])
    for follower in followers:
        if follower.superseded_by_id == request.pk:
            related.append(Related("Supersedes", follower))
    for follower in followers:
        if follower.cloned_from_id == request.pk:
            related.append(Related("Cloned as", follower))
    return related
