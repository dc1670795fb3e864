"""Bring the input datasets of requests to disk, and follow how far that is.

Pages store a request; workers send it to the catalogue and ask for its progress, with growing
pauses, until all files are on disk, the catalogue refuses, or the deadline has passed. Sending is
repeated safely: a catalogue returns the id of a request that exists.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.domain.work import BackOff, Queue
from apps.core.errors import InvalidTransition, NotAllowed
from apps.datasets.catalogues import base
from apps.datasets.domain.catalogue_queue import ask_in_turn
from apps.datasets.domain.input_datasets import stageable_in
from apps.datasets.domain.look_ups import open_adapter
from apps.datasets.domain.staging_options import StagingTarget, staging_target
from apps.datasets.enums import FOLLOWED, StagingState
from apps.datasets.models import Catalogue, KnownDataset, StagingRequest
from apps.production.domain.actors import may
from apps.production.enums import CLOSED, PORTAL, Actor
from apps.production.models import Request

#: How long the portal waits for a dataset.
DEADLINE = timedelta(days=7)
#: Pauses between two questions grow with the age of the request, within these.
SHORTEST_PAUSE = timedelta(minutes=1)
LONGEST_PAUSE = timedelta(hours=1)
_PAUSE_PER_AGE = 0.25
#: Requests of one run; the next one continues.
MOST_A_RUN = 100
#: Advisory lock of a catalogue, held while datasets are requested in it.
STAGING_LOCK = 4_716_049
_S = StagingState
_KINDS = {
    _S.COMPLETE: "staging.complete",
    _S.REFUSED: "staging.refused",
    _S.OVERDUE: "staging.overdue",
    _S.CANCELLED: "staging.cancelled",
}

#: The lease is longer than an adapter tries.
STAGINGS = Queue(
    name="stagings",
    title="Datasets to bring to disk",
    model=StagingRequest,
    unfinished_rows=Q(state__in=sorted(FOLLOWED)),
    back_off=BackOff((60, 300, 1800)),
    lease=timedelta(minutes=10),
)


def may_stage(user: User, request: Request) -> bool:
    """Return whether a user may bring the input datasets of a request to disk."""
    is_open = request.state not in CLOSED
    return is_open and (may(user, Actor.LIAISON, request) or may(user, Actor.OPERATOR, request))


def check_may_stage(user: User, request: Request) -> None:
    """Raise `NotAllowed` if a user may not stage datasets of a request."""
    if not may_stage(user, request):
        raise NotAllowed(
            f"Only liaisons of {request.experiment}, approvers and shifters can stage the datasets "
            f"of an open request."
        )


@transaction.atomic
def request_staging(*, request: Request, dataset: str, by: User, at: datetime) -> StagingRequest:
    """Store that an input dataset is to be brought to disk, or ask for it again.

    Sends no request. Repeating it changes nothing while the portal still follows the first one.
    Raises `NotAllowed`, `InvalidTransition` if no catalogue can stage it.
    """
    check_may_stage(by, request)
    # One at a time: two clicks make one row.
    request = Request.objects.select_for_update(of=("self",)).get(pk=request.pk)
    catalogue = stageable_in(request, [dataset]).get(dataset)
    target = staging_target(catalogue) if catalogue else None
    if catalogue is None or target is None:
        raise InvalidTransition(f"No active catalogue can bring {dataset} to disk.")

    staging = StagingRequest.objects.filter(
        request=request, catalogue=catalogue, dataset=dataset
    ).first()
    if staging is not None and staging.is_followed:
        return staging
    values = _new_values(target, by, at)
    if staging is None:
        staging = StagingRequest.objects.create(
            request=request, catalogue=catalogue, dataset=dataset, **values
        )
    else:
        StagingRequest.objects.filter(pk=staging.pk).update(**values)
        staging.refresh_from_db()
    _publish(staging, kind="staging.requested", by=by, at=at)
    return staging


def _new_values(target: StagingTarget, by: User, at: datetime) -> dict[str, Any]:
    return {
        "storage": target.storage,
        "lifetime_seconds": int(target.lifetime.total_seconds()),
        "state": _S.QUEUED,
        "external_id": "",
        "files_on_disk": None,
        "files_waiting": None,
        "files_stuck": None,
        "catalogue_state": "",
        "catalogue_error": "",
        "progress_at": None,
        "expires_at": None,
        "requested_by": by.username,
        "requested_at": at,
        "finish_by": at + DEADLINE,
        "due_at": at,
        "attempts": 0,
        "last_error": "",
    }


@transaction.atomic
def ask_now(*, staging: StagingRequest, by: User, at: datetime) -> None:
    """Let the next run ask the catalogue. Raises `NotAllowed`, `InvalidTransition`."""
    check_may_stage(by, staging.request)
    staging = _locked(staging)
    if not staging.is_followed:
        raise InvalidTransition(f"The portal no longer follows {staging.dataset}.")
    # A worker that has it keeps it: its claim is due later than any pause.
    if staging.attempts == 0 or staging.last_error:
        StagingRequest.objects.filter(pk=staging.pk).update(due_at=at)


@transaction.atomic
def cancel_waiting(*, staging: StagingRequest, by: User, at: datetime) -> None:
    """Stop following a dataset; the catalogue's own request stays.

    Raises `NotAllowed`, `InvalidTransition`.
    """
    check_may_stage(by, staging.request)
    staging = _locked(staging)
    if not staging.is_followed:
        raise InvalidTransition(f"The portal no longer follows {staging.dataset}.")
    _end(staging, _S.CANCELLED, by, at)


def _locked(staging: StagingRequest) -> StagingRequest:
    return StagingRequest.objects.select_for_update(of=("self",)).get(pk=staging.pk)


def follow_stagings(catalogue: Catalogue, *, now: Callable[[], datetime]) -> int:
    """Send the stagings that wait, and ask for the progress of the others; return how many."""

    def ask(staging: StagingRequest) -> None:
        _advance(open_adapter(catalogue), staging, now)

    return ask_in_turn(STAGINGS, catalogue, most=MOST_A_RUN, ask=ask, refuse=_refuse, now=now)


def _advance(adapter: base.Catalogue, staging: StagingRequest, now: Callable[[], datetime]) -> None:
    """Send a staging, or ask for its progress. Raises `CatalogueError`."""
    if not isinstance(adapter, base.Stages):
        raise base.Refused("The catalogue cannot bring datasets to disk.")
    if staging.external_id:
        progress = adapter.stage_progress(staging.external_id)
        _store_progress(staging, progress, now())
        return
    external_id = adapter.request_on_disk(
        dataset=staging.dataset,
        storage=staging.storage,
        lifetime_seconds=staging.lifetime_seconds,
        comment=f"opsportal {staging.request.key}",
    )
    _store(staging, now() + SHORTEST_PAUSE, {"state": _S.STAGING, "external_id": external_id})


def _pause(staging: StagingRequest, at: datetime) -> timedelta:
    grown = (at - staging.requested_at) * _PAUSE_PER_AGE
    return min(LONGEST_PAUSE, max(SHORTEST_PAUSE, grown))


def _store(staging: StagingRequest, due_at: datetime, values: Mapping[str, Any]) -> None:
    with transaction.atomic():
        if STAGINGS.hold([staging]):
            StagingRequest.objects.filter(pk=staging.pk).update(
                due_at=due_at, attempts=0, last_error="", **values
            )


@transaction.atomic
def _store_progress(staging: StagingRequest, progress: base.StageProgress, at: datetime) -> None:
    if not STAGINGS.hold([staging]):
        return
    values = {
        "files_on_disk": progress.files_on_disk,
        "files_waiting": progress.files_waiting,
        "files_stuck": progress.files_stuck,
        "catalogue_state": progress.state.replace("\0", "")[:100],
        "catalogue_error": progress.error.replace("\0", "")[:2000],
        "expires_at": progress.expires_at,
        "progress_at": at,
    }
    _store(staging, at + _pause(staging, at), values)
    if progress.is_complete:
        _end(staging, _S.COMPLETE, PORTAL, at)
        # Where its files are has changed.
        known = KnownDataset.objects.filter(catalogue=staging.catalogue_id, name=staging.dataset)
        known.filter(is_waiting=False).update(is_waiting=True, due_at=at, attempts=0, last_error="")


@transaction.atomic
def _refuse(staging: StagingRequest, error: str, at: datetime) -> None:
    if STAGINGS.hold([staging]):
        _end(staging, _S.REFUSED, PORTAL, at, error=error)


def close_overdue(*, at: datetime) -> int:
    """Stop waiting for datasets whose deadline has passed; return how many."""
    overdue = STAGINGS.unfinished().filter(finish_by__lte=at).order_by("pk")
    with transaction.atomic():
        rows = list(overdue.select_for_update(skip_locked=True, of=("self",))[:MOST_A_RUN])
        for staging in rows:
            # The last error stays: it says why.
            _end(staging, _S.OVERDUE, PORTAL, at, error=staging.last_error)
    return len(rows)


def _end(
    staging: StagingRequest, state: StagingState, by: User | str, at: datetime, *, error: str = ""
) -> None:
    StagingRequest.objects.filter(pk=staging.pk).update(state=state, attempts=0, last_error=error)
    _publish(staging, kind=_KINDS[state], by=by, at=at, reason=error)


def _publish(
    staging: StagingRequest, *, kind: str, by: User | str, at: datetime, reason: str = ""
) -> None:
    publish(
        kind=kind,
        target=staging.request,
        by=by,
        at=at,
        reason=reason,
        data={"dataset": staging.dataset, "storage": staging.storage},
    )
