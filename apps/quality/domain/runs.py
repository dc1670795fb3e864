"""Runs of the checks, waivers of results, and closing of requests whose checks have passed."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Max

from apps.accounts.models import Principal, User
from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.core.errors import DomainError, InvalidTransition, NotAllowed
from apps.jobs.domain.records.jobs import totals_as_of
from apps.production.domain.lifecycle.moves import make_move
from apps.production.domain.reasons import MAX_REASON, checked_reason
from apps.production.enums import PORTAL, RequestState, Verb
from apps.production.models import Request
from apps.production.permissions import is_requester
from apps.quality.checks.registry import checks
from apps.quality.domain.data_quality import (
    DataQuality,
    arrival_of,
    current_run,
    data_quality_of,
    has_news,
    results_of,
    waivers_of,
)
from apps.quality.domain.evaluation import evaluate
from apps.quality.domain.facts import ask_catalogue, gather_facts, inputs_of
from apps.quality.domain.log_samples import sample_logs
from apps.quality.domain.thresholds import settings_for
from apps.quality.enums import Outcome, RunState
from apps.quality.models import Finding, QualityResult, QualityRun, Waiver
from apps.quality.permissions import may_run, may_waive

#: Minimum time between runs caused by jobs that finish late. A run on demand starts at once.
JOBS_EVERY = timedelta(minutes=2)
#: How many waivers the reason of the closing move names. The timeline has all of them.
_NAMED = 3
#: Relations that are read with a request.
RELATED = ("experiment", "workflow__type", "created_by", "submitted_by")


@transaction.atomic
def ask_for_run(*, request: Request, by: Principal, at: datetime, reason: str = "") -> QualityRun:
    """Queue a run of the checks on a request in data quality, or reuse a queued run.

    Raises `NotAllowed`, `InvalidFields`, `InvalidTransition` in another state.
    """
    if by != PORTAL and not may_run(by, request):
        raise NotAllowed(
            "Only liaisons of the experiment, approvers and shifters can run the checks."
        )
    text = checked_reason(reason, needed=False)
    request = _lock_in_data_quality(request)
    run = QualityRun.objects.filter(request=request, state=RunState.WAITING).first()
    arrival = arrival_of(request)
    if run is None:
        last = QualityRun.objects.filter(request=request).aggregate(last=Max("number"))["last"] or 0
        run = QualityRun(request=request, number=last + 1)
    elif run.arrival == arrival:
        return run
    run.arrival = arrival
    run.requested_at = at
    run.requested_by = str(by)
    run.reason = text
    run.save()
    if by != PORTAL:
        publish(
            kind="request.quality_asked",
            target=request,
            by=by,
            at=at,
            reason=text,
            data={"run": run.number},
        )
    enqueue("quality.check_request", request_id=request.pk)
    return run


def run_checks(*, request: Request, at: datetime) -> QualityRun | None:
    """Read logs and the catalogue, and evaluate the queued run of a request.

    Return None without a queued run. It runs outside a transaction: slow work is done before the
    request is locked, and is repeated if the worker is killed.
    """
    run = current_run(request)
    if request.state != RequestState.DATA_QUALITY or run is None or run.state != RunState.WAITING:
        return None
    sample = settings_for(request).get("log_errors")
    sample_logs(request=request, sample=int((sample and sample.limits.get("sample")) or 0), at=at)
    catalogued, error = ask_catalogue(request)
    with transaction.atomic():
        request = _lock_in_data_quality(request)
        run = current_run(request)
        if run is None or run.state != RunState.WAITING:
            return None
        settings = settings_for(request)
        inputs = inputs_of(request)
        facts = gather_facts(request, catalogued=catalogued, catalogue_error=error)
        before = (
            QualityRun.objects.filter(request=request, state=RunState.EVALUATED)
            .order_by("-number")
            .first()
        )
        results = evaluate(facts, checks(), settings)
        for result in results:
            result.run = run
        QualityResult.objects.bulk_create(results)
        run.state = RunState.EVALUATED
        run.evaluated_at = at
        run.inputs = inputs
        run.totals_at = totals_as_of()
        run.thresholds = [setting.plain() for setting in settings.values()]
        run.save()
        _publish_run(request, run, before, at)
    return run


def _publish_run(
    request: Request, run: QualityRun, before: QualityRun | None, at: datetime
) -> None:
    """Publish the event of a run, unless the previous run of this stay had the same results."""
    results = results_of(run, waivers_of(request))
    if before and before.arrival == run.arrival:
        digests_before = list(before.results.values_list("digest", flat=True))
        if digests_before == [result.digest for result in results]:
            return

    counts = {outcome.value: 0 for outcome in Outcome}
    for result in results:
        counts[result.outcome] += 1
    opened = [result for result in results if result.is_open]
    data = {
        "run": run.number,
        "counts": counts,
        "open": len(opened),
        "failed": [_finding_label(result) for result in opened[:20]],
    }
    kind = "request.quality_failed" if opened else "request.quality_passed"
    publish(
        kind=kind, target=request, by=PORTAL, at=at, new="open" if opened else "passed", data=data
    )


def _finding_label(finding: Finding) -> str:
    parts = [finding.stage_name, finding.title, finding.subject]
    return ": ".join(part for part in parts if part)[:300]


def waive_result(
    *, request: Request, result: int, by: User, at: datetime, reason: str, in_part: bool = False
) -> Waiver:
    """Waive a single result, as `waive_results`."""
    [waiver] = waive_results(
        request=request, results=[result], by=by, at=at, reason=reason, in_part=in_part
    )
    return waiver


@transaction.atomic
def waive_results(
    *,
    request: Request,
    results: Iterable[int],
    by: User,
    at: datetime,
    reason: str,
    in_part: bool = False,
) -> list[Waiver]:
    """Waive results that did not pass, by their IDs, for one reason: all of them or none.

    With `in_part`, the request closes as partially done. Raises `NotAllowed`, `InvalidFields` for a
    missing reason, `InvalidTransition` if a result needs no waiver.
    """
    check_may_waive(request, by)
    text = checked_reason(reason)
    request = _lock_in_data_quality(request)
    quality = data_quality_of(request)
    by_id = {result.pk: result for result in quality.results}
    waivers = []
    for result in dict.fromkeys(results):
        waived = by_id.get(result)
        if not quality.is_evaluated or waived is None or quality.run != quality.shown:
            raise InvalidTransition(
                f"{request}: the checks have run again since. Review the new results."
            )
        waivers.append(_waive(request, waived, by=by, at=at, reason=text, in_part=in_part))
    enqueue("quality.check_request", request_id=request.pk)
    return waivers


def _waive(
    request: Request, waived: QualityResult, *, by: User, at: datetime, reason: str, in_part: bool
) -> Waiver:
    """Waive a result of a locked request, and publish the event."""
    if not waived.blocks:
        raise InvalidTransition(f"{request}: “{waived.title}” needs no waiver.")
    if waived.waiver:
        raise InvalidTransition(
            f"{request}: “{waived.title}” was already waived by {waived.waiver.by}."
        )
    waiver = Waiver(
        request=request,
        run_number=waived.run.number,
        in_part=in_part,
        reason=reason,
        at=at,
        by=by,
        made_by=request.created_by,
        sent_by=request.submitted_by,
        **{field.name: getattr(waived, field.name) for field in Finding._meta.fields},
    )
    try:
        with transaction.atomic():
            waiver.save()
    except IntegrityError:
        raise InvalidTransition(
            f"{request}: “{waived.title}” was just waived by someone else."
        ) from None
    data = {
        "waiver": waiver.pk,
        "check": _finding_label(waiver),
        "said": waiver.why[:500],
        "in_part": in_part,
    }
    publish(kind="request.waive", target=request, by=by, at=at, reason=reason, data=data)
    return waiver


@transaction.atomic
def withdraw_waiver(
    *, request: Request, waiver: int, by: User, at: datetime, reason: str
) -> Waiver:
    """Withdraw a waiver while the request is open. Every user who may waive can withdraw it.

    Raises `NotAllowed`, `InvalidFields`, `InvalidTransition`.
    """
    check_may_waive(request, by)
    text = checked_reason(reason)
    request = _lock_in_data_quality(request)
    withdrawn = Waiver.objects.filter(request=request, pk=waiver, withdrawn_at=None).first()
    if withdrawn is None:
        raise InvalidTransition(f"{request}: waiver not found, or already withdrawn.")
    withdrawn.withdrawn_at = at
    withdrawn.withdrawn_by = str(by)
    withdrawn.withdrawn_reason = text
    withdrawn.save(update_fields=["withdrawn_at", "withdrawn_by", "withdrawn_reason"])
    data = {"waiver": withdrawn.pk, "check": _finding_label(withdrawn)}
    publish(kind="request.withdraw_waiver", target=request, by=by, at=at, reason=text, data=data)
    return withdrawn


def close_if_passed(*, request: Request, at: datetime) -> Request | None:
    """Close a request as the portal, if its checks have passed or were waived; else return None.

    The guard of the move checks this again under the lock of the request.
    """
    quality = data_quality_of(request)
    if request.state != RequestState.DATA_QUALITY or not quality.passes:
        return None
    verb = Verb.DONE_PARTIAL if quality.in_part else Verb.DONE
    try:
        return make_move(verb=verb, request=request, by=PORTAL, at=at, reason=_why_closed(quality))
    except DomainError:
        return None


def _why_closed(quality: DataQuality) -> str:
    taken = "".join(
        f" {acceptance.stage.name}: {acceptance.summary}" for acceptance in quality.accepted
    )
    taken += "".join(f" {events.summary}." for events in quality.not_produced)
    if not quality.waived:
        return f"All data quality checks passed.{taken}"[:MAX_REASON]

    waivers = [result.waiver for result in quality.waived if result.waiver]
    named = "; ".join(
        f"{_finding_label(waiver)} waived by {waiver.by}" for waiver in waivers[:_NAMED]
    )
    more = ""
    if len(waivers) > _NAMED:
        more = f"; and {len(waivers) - _NAMED:,} more"
    return f"{named}{more}.{taken}"[:MAX_REASON]


def must_run_again(run: QualityRun, request: Request, at: datetime) -> bool:
    """Whether reports, posts or thresholds changed since the run.

    Jobs are compared every `JOBS_EVERY`.
    """
    if run.state != RunState.EVALUATED or run.evaluated_at is None:
        return False
    if has_news(run, request):
        return True
    return at - run.evaluated_at >= JOBS_EVERY and bool(run.inputs != inputs_of(request))


def check_may_waive(request: Request, by: User) -> None:
    """Raise `NotAllowed` with the reason if a user may not waive results."""
    if may_waive(by, request):
        return
    if is_requester(by, request):
        raise NotAllowed(
            f"You created, edited or submitted {request}. Another approver must decide."
        )
    raise NotAllowed("Only approvers can waive results.")


def _lock_in_data_quality(request: Request) -> Request:
    """Lock and re-read the request. Raises `InvalidTransition` if it is not in data quality."""
    current: Request = (
        Request.objects.select_for_update(of=("self",)).select_related(*RELATED).get(pk=request.pk)
    )
    if current.state != RequestState.DATA_QUALITY:
        raise InvalidTransition(
            f"{current} is “{current.get_state_display()}”: it is not in data quality."
        )
    return current
