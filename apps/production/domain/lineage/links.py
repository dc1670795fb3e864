"""Splitting a request and combining several: the new ones are drafts, the old ones give way, links keep both ways."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
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
from apps.production.domain.lineage.combination import MAX_COMBINED, Combination, KeyedContent, combine, obstacles
from apps.production.domain.lineage.dataset_parts import order_parts
from apps.production.domain.lineage.splits import Split, SplitUnit, split
from apps.production.domain.outputs.datasets import may_define
from apps.production.domain.reasons import MAX_REASON
from apps.production.domain.requests.drafts import create_draft
from apps.production.enums import BEFORE_PRODUCTION, CLOSED, PORTAL, Actor, LinkKind, RequestState, Verb
from apps.production.models import Request, RequestLink, Stage

#: So many requests are offered for combining at a time, and so many links of one kind shown.
OFFERED = 20
MOST_SHOWN = 50


def may_rearrange(user: User, request: Request) -> bool:
    """Tell whether the person may split or combine it: who may let another request take its place."""
    return may(user, Actor.LIAISON_OR_APPROVER, request)


def refusal_to_rearrange(request: Request) -> str:
    """Return why a request cannot be split or combined now, or an empty text."""
    if request.state in BEFORE_PRODUCTION:
        sent = "Jobs were sent for it already, if only as a test. Supersede it by another request instead."
        return sent if request.work_began_at else ""
    words = f"It is “{request.get_state_display()}”: "
    if request.state in CLOSED:
        return words + "it has ended. Clone it instead."
    if request.state == RequestState.ON_HOLD:
        return words + "release it first; once jobs were sent, it stays as it is."
    return words + "jobs may have been sent for it. Let it end, or supersede it by another request."


def plan_split(*, request: Request, by_what: SplitUnit, size: int) -> Split:
    """Return the parts that a split would make. Raises `InvalidFields`, `InvalidTransition`."""
    if why := refusal_to_rearrange(request):
        raise InvalidTransition(f"{request} cannot be split. {why}")
    planned = split(content_of(request), by_what, size, defines=may_define(settings.DATASET_CATALOGUE))
    if level := request.level:
        planned.notes.append(f"Each part keeps the priority that the OPG has set: {level}.")
    return planned


@transaction.atomic
def split_request(
    *, request: Request, by_what: SplitUnit, size: int, by: User, at: datetime, reason: str, version: int | None = None
) -> list[Request]:
    """Make drafts of the parts of a request, which is superseded by them; a draft is cancelled.

    Raises `NotAllowed`, `InvalidFields`, `InvalidTransition` where jobs were sent, `StaleState`.
    """
    _allowed(by, [request])
    whole = _locked({request: version})[0]
    planned = plan_split(request=whole, by_what=by_what, size=size)
    made = []
    for part in planned.parts:
        origin = {"split_from": whole.key, "note": part.words}
        made.append(create_draft(experiment=whole.experiment, content=part.content, by=by, at=at, origin=origin))
        _link(LinkKind.SPLIT, whole, made[-1], by, at, part.words)
        _hand_on_priority(whole, made[-1], at)
    if planned.defines:
        order_parts(whole=whole, parts=made, planned=planned, at=at)
    _give_way(whole, made[0], by, at, reason, {"split_into": [part.key for part in made]})
    return made


def plan_combined(*, requests: Sequence[Request]) -> Combination:
    """Return what combined requests would be, the first one naming it. Raises `InvalidFields`, `InvalidTransition`."""
    if len({request.experiment_id for request in requests}) > 1:
        raise InvalidFields({"requests": ["All must be of one experiment."]})
    if problems := [f"{request}: {why}" for request in requests if (why := refusal_to_rearrange(request))]:
        raise InvalidTransition(" ".join(problems[:5]))
    return combine([KeyedContent(request.key, content_of(request)) for request in requests])


@transaction.atomic
def combine_requests(
    *, requests: Sequence[Request], by: User, at: datetime, reason: str, versions: Mapping[str, int] | None = None
) -> Request:
    """Make one draft of several requests, which it supersedes; drafts are cancelled. `versions` are those seen, by key.

    Raises `NotAllowed`, `InvalidFields`, `InvalidTransition` where jobs were sent, `StaleState`.
    """
    if len({request.pk for request in requests}) != len(requests) or len(requests) > MAX_COMBINED:
        raise InvalidFields({"requests": [f"Name each once, at most {MAX_COMBINED}."]})
    _allowed(by, requests)
    seen = versions or {}
    old = _locked({request: seen.get(request.key) for request in requests})
    content = plan_combined(requests=old).content
    origin = {"combined_from": [request.key for request in old]}
    made = create_draft(experiment=old[0].experiment, content=content, by=by, at=at, origin=origin)
    for request in old:
        _link(LinkKind.COMBINED, request, made, by, at)
        _give_way(request, made, by, at, reason, {"combined_into": made.key})
    return made


def _hand_on_priority(whole: Request, part: Request, at: datetime) -> None:
    """Give a part the class and number that the OPG has set for the whole; the approvers who sign it see them."""
    level = whole.level
    if not level:
        return
    part.priority, part.priority_class = whole.priority, whole.priority_class
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


def _allowed(by: User, requests: Sequence[Request]) -> None:
    for request in requests:
        if not may_rearrange(by, request):
            raise NotAllowed(f"Only a liaison of {request.experiment} or an approver of the OPG may do this.")


def _locked(versions: Mapping[Request, int | None]) -> list[Request]:
    """Hold the rows, always in the same order, and return them as they are now, in the order given."""
    rows = with_stages(Request.objects.select_for_update(of=("self",))).filter(pk__in=[each.pk for each in versions])
    found = {row.pk: row for row in rows.order_by("pk")}
    for request, version in versions.items():
        now = found[request.pk]
        if now.version != request.version or version not in {None, now.version}:
            raise StaleState(f"{now} was changed meanwhile: look at it again. Nothing was done.")
    return [found[request.pk] for request in versions]


def _link(kind: LinkKind, earlier: Request, later: Request, by: User, at: datetime, note: str = "") -> None:
    RequestLink.objects.create(kind=kind, earlier=earlier, later=later, note=note, at=at, by=str(by)[:150])


def _give_way(old: Request, new: Request, by: User, at: datetime, reason: str, data: dict[str, Any]) -> None:
    if old.state == RequestState.DRAFT:
        make_move(verb=Verb.CANCEL, request=old, by=by, at=at, reason=reason, data=data)
    else:
        supersede_request(request=old, by=by, at=at, reason=reason, successor=new, data=data)


@dataclass(frozen=True)
class Candidate:
    """A request that might be combined with another, and why it cannot."""

    request: Request
    reasons: list[str]


@dataclass(frozen=True)
class Candidates:
    """Some of the requests to combine with, those that fit first; `older` is where the next begin, 0 at the end."""

    rows: list[Candidate]
    older: int


def candidates_for(
    request: Request, user: User, *, text: str = "", before: int = 0, chosen: Sequence[str] = ()
) -> Candidates:
    """Return the latest requests of the experiment that may have no jobs, of this type and length, and those chosen.

    With `text`, only those of this number or title; with `before`, only those made before that primary key.
    """
    rows = Request.objects.visible_to(user).filter(experiment=request.experiment_id, state__in=BEFORE_PRODUCTION)
    rows = rows.exclude(pk=request.pk)
    length, stages = len(request.stages.all()), Stage.objects.filter(request=OuterRef("pk"))
    alike = rows.filter(Exists(stages.filter(position=length - 1)), workflow=request.workflow_id)
    alike = alike.exclude(Exists(stages.filter(position=length))).exclude(key__in=chosen)
    if text:
        alike = alike.filter(Q(key__icontains=text) | Q(title__icontains=text))
    if before:
        alike = alike.filter(pk__lt=before)
    found = list(alike.order_by("-pk").values_list("pk", flat=True)[: OFFERED + 1])
    ticked = rows.filter(key__in=chosen).order_by("-pk").values_list("pk", flat=True)[:MAX_COMBINED]
    order = [*ticked, *found[:OFFERED]]
    loaded = Request.objects.select_related("created_by", "workflow__type")
    loaded = loaded.prefetch_related(Prefetch("stages", Stage.objects.order_by("position")))
    shown = loaded.in_bulk(order)
    others = [shown[pk] for pk in order if pk in shown]
    return Candidates(_judged(request, user, others), found[OFFERED - 1] if len(found) > OFFERED else 0)


def _judged(request: Request, user: User, others: Sequence[Request]) -> list[Candidate]:
    mine, found = _named(request), []
    for other in others:
        late = refusal_to_rearrange(other)
        reasons = [late] if late else obstacles(mine, _named(other))
        if not may_rearrange(user, other):
            reasons = ["It is a draft. Only its liaisons can combine it.", *reasons]
        found.append(Candidate(other, reasons))
    return sorted(found, key=lambda candidate: bool(candidate.reasons))


def _named(request: Request) -> KeyedContent:
    """Return what tells whether it can be combined: the services that stages need never keep it from that."""
    return KeyedContent(request.key, content_of(request, services=False))


@dataclass(frozen=True)
class Related:
    """Another request, what it is to this one, and which part."""

    words: str
    request: Request
    note: str = ""


#: What the other one is, by kind of the link and whether it is the later.
_WORDS = {
    (LinkKind.SPLIT, True): "Split into",
    (LinkKind.SPLIT, False): "Split from",
    (LinkKind.COMBINED, True): "Combined into",
    (LinkKind.COMBINED, False): "Combined from",
}


def related_to(request: Request) -> list[Related]:
    """Return the requests that this one came out of, and that came out of it, from both ends of every link."""
    rows = RequestLink.objects.filter(Q(earlier=request) | Q(later=request)).select_related("earlier", "later")
    found = []
    for row in rows.order_by("pk")[: 2 * MOST_SHOWN]:
        is_later = row.earlier_id == request.pk
        found.append(Related(_WORDS[LinkKind(row.kind), is_later], row.later if is_later else row.earlier, row.note))
    told = {each.request.pk for each in found}
    fields = [("Superseded by", request.superseded_by), ("Cloned from", request.cloned_from)]
    found += [Related(words, other) for words, other in fields if other is not None and other.pk not in told]
    others = Request.objects.filter(Q(superseded_by=request) | Q(cloned_from=request)).exclude(pk__in=told)
    rest = list(others.order_by("pk")[: 2 * MOST_SHOWN])
    found += [Related("Supersedes", other) for other in rest if other.superseded_by_id == request.pk]
    return found + [Related("Cloned as", other) for other in rest if other.cloned_from_id == request.pk]
