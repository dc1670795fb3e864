"""Pages of retries: the dry run of a batch, the batch, and the list of batches."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.models import User
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.events import events_of
from apps.core.domain.quantities import count_noun
from apps.core.web.errors import show_errors
from apps.core.web.query import read_query_or_warn
from apps.core.web.tables import csv_file
from apps.core.web.turns import one_at_a_time
from apps.diagnosis.domain.groups.triage import visible_groups
from apps.diagnosis.models import Verdict
from apps.jobs.models import Job
from apps.production.domain.outlook import Obstacle, read_outlook
from apps.statusboard.models import Announcement, Incident
from apps.submission.domain.retries import batches
from apps.submission.domain.retries.bad_hosts import find_bad_hosts
from apps.submission.domain.retries.bundle import retry_bundle
from apps.submission.domain.retries.eligibility import MOST_JOBS, DryRun, RetryLimits, Source
from apps.submission.domain.retries.links import finished_retries
from apps.submission.domain.retries.obstacles import find_obstacles, obstacles_by_batch
from apps.submission.domain.retries.offers import bundled_jobs, offer_from
from apps.submission.enums import IN_BATCH, ONLY_BY_OWNER, BatchState, LeftOut, RetryState
from apps.submission.models import RetryBatch
from apps.submission.web.forms import BatchForm, CancelBatchForm

#: Lines of the dry run that are shown, and jobs that are listed behind one of them.
MOST_LINES = 100
MOST_LISTED = 20
PAGE_SIZE = 50
ELIGIBLE = "eligible"


@dataclass(frozen=True, slots=True)
class DryRunLine:
    """Failed jobs of a stage with equal verdicts, those that ended last first."""

    verdicts: Sequence[Verdict]

    @property
    def newest(self) -> Verdict:
        return self.verdicts[0]

    @property
    def hosts(self) -> int:
        return len({verdict.job.host for verdict in self.verdicts if verdict.job.host})

    @property
    def wall_seconds(self) -> int:
        return sum(verdict.job.wall_seconds for verdict in self.verdicts)

    @property
    def listed(self) -> Sequence[Verdict]:
        return self.verdicts[:MOST_LISTED]

    @property
    def not_listed(self) -> int:
        return len(self.verdicts) - len(self.listed)


class BatchRow(NamedTuple):
    """A batch, its number of jobs by state and of `open` ones, and what it waits for."""

    batch: RetryBatch
    counts: dict[str, int]
    obstacles: list[Obstacle]


def source_or_404(user: User, kind: str, pk: int) -> Source:
    """Return the group, incident or job, if the user may see it."""
    rows: dict[str, Any] = {
        "group": visible_groups(user),
        "incident": Incident.objects.select_related("service"),
        "job": Job.objects.visible_to(user).select_related("cluster"),
    }
    if kind not in rows:
        raise Http404
    source: Source = get_object_or_404(rows[kind], pk=pk)
    return source


@require_http_methods(["GET", "HEAD", "POST"])
@one_at_a_time
def retry_jobs(request: AuthenticatedRequest, kind: str, pk: int) -> HttpResponse:
    """Show what a batch would retry and what not; POST plans it, unless it only previews."""
    source = source_or_404(request.user, kind, pk)
    at = timezone.now()
    data = None
    if request.method == "POST":
        data = request.POST
    elif "step" in request.GET:
        data = request.GET
    with_planned = request.GET.get("with_planned") == "on"
    form = BatchForm(data, initial={"with_planned": with_planned})
    if request.method == "POST" and request.POST.get("do") != "preview" and form.is_valid():
        with show_errors(request, form):
            return _plan_batch(request, source, form, at)

    dry_run = _dry_run(request.user, source, form, with_planned=with_planned, at=at)
    listed = _listed_reason(request)
    verdicts = _listed_verdicts(dry_run, listed)
    if request.GET.get("format") == "csv":
        return _csv(f"retry-{kind}-{pk}-{listed}", verdicts)
    if request.GET.get("format") == "tar":
        return _bundle(request, dry_run, f"retry-{kind}-{pk}.tar", at)

    form.fields["step"].initial = batches.default_step(len(dry_run.eligible))
    form.propose(find_bad_hosts(dry_run.eligible, user=request.user, at=at))
    lines = _dry_run_lines(verdicts)
    context = {
        "kind": kind,
        "source": source,
        "title": batches.batch_title(source),
        "dry_run": dry_run,
        "offer": offer_from(dry_run, request.user, at),
        "announcements": _announcements_against(dry_run, at),
        "form": form,
        "with_planned": with_planned,
        "shown": listed,
        "has_bundle": listed in ONLY_BY_OWNER,
        "label": LeftOut(listed).label if listed in LeftOut.values else "to retry",
        "jobs": len(verdicts),
        "lines": lines[:MOST_LINES],
        "more": sum(len(line.verdicts) for line in lines[MOST_LINES:]),
        "most": MOST_JOBS if dry_run.jobs >= MOST_JOBS else 0,
        "earlier": _batch_rows(batches.latest_batches(source, request.user), request.user, at),
        "at": at,
    }
    status = 400 if form.is_bound and form.errors else 200
    return render(request, "submission/retry_jobs.html", context, status=status)


def _plan_batch(
    request: AuthenticatedRequest, source: Source, form: BatchForm, at: datetime
) -> HttpResponse:
    batch = batches.plan_batch(source=source, by=request.user, at=at, **form.cleaned_data)
    jobs = batch.jobs.count()
    messages.success(request, f"{count_noun(jobs, 'job')} will be retried.")
    return redirect(batch)


def _dry_run(
    user: User, source: Source, form: BatchForm, *, with_planned: bool, at: datetime
) -> DryRun:
    """Return the dry run with the limits of the form if they are valid, else with the default."""
    options: dict[str, Any] = {}
    if form.is_bound and form.is_valid():
        options = form.cleaned_data
    limits = RetryLimits(options.get("attempts", batches.ATTEMPTS), options.get("of_stage"))
    return batches.dry_run(
        source=source,
        user=user,
        limits=limits,
        at=at,
        with_planned=options.get("with_planned", with_planned),
    )


def _listed_reason(request: AuthenticatedRequest) -> str:
    """Return which jobs `?list=` chooses: a reason to leave them out, or `ELIGIBLE`."""
    lists = {str(reason): reason.value for reason in LeftOut} | {ELIGIBLE: ELIGIBLE}
    reason = read_query_or_warn(request, "list", lists.get, expected=f"one of {', '.join(lists)}")
    return reason or ELIGIBLE


def _bundle(
    request: AuthenticatedRequest, dry_run: DryRun, filename: str, at: datetime
) -> HttpResponse:
    """Return the bundle of the jobs that only their owners can submit again."""
    with show_errors(request):
        verdicts = bundled_jobs(dry_run, request.user)
        content = retry_bundle(verdicts=verdicts, by=request.user, at=at)
        headers = {"Content-Disposition": f'attachment; filename="{filename}"'}
        return HttpResponse(content, content_type="application/x-tar", headers=headers)
    bundle_list = offer_from(dry_run, request.user, at).bundle_list
    return redirect(f"{request.path}?list={bundle_list}")


def _announcements_against(dry_run: DryRun, at: datetime) -> list[tuple[Announcement, int]]:
    """Return the announcements that keep jobs from being submitted, with the number of jobs."""
    obstacles = find_obstacles(dry_run.eligible, read_outlook(at)).values()
    announcements = [obstacle.announcement for obstacle in obstacles if obstacle.announcement]
    return Counter(announcements).most_common()


def _listed_verdicts(dry_run: DryRun, listed: str) -> list[Verdict]:
    if listed in LeftOut.values:
        return dry_run.left_out.get(LeftOut(listed), [])
    return [candidate.verdict for candidate in dry_run.eligible]


def _dry_run_lines(verdicts: Iterable[Verdict]) -> list[DryRunLine]:
    """Return the jobs in lines of the same request, stage and verdict, most jobs first."""
    alike: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in verdicts:
        job = verdict.job
        alike.setdefault((job.request_key, job.stage, verdict.verdict), []).append(verdict)
    lines = [DryRunLine(same) for same in alike.values()]
    return sorted(lines, key=lambda line: -len(line.verdicts))


def _csv(name: str, verdicts: list[Verdict]) -> HttpResponse:
    columns = (
        "cluster",
        "job",
        "attempt",
        "request",
        "stage",
        "host",
        "ended_at",
        "verdict",
        "service",
        "core_seconds",
    )
    return csv_file(
        name,
        columns,
        (
            (
                verdict.job.cluster.name,
                verdict.job.job_id,
                verdict.job.attempt,
                verdict.job.request_key,
                verdict.job.stage,
                verdict.job.host,
                verdict.ended_at.isoformat(),
                verdict.verdict,
                verdict.service,
                verdict.job.core_seconds,
            )
            for verdict in verdicts
        ),
    )


@require_safe
def retry_batches(request: AuthenticatedRequest) -> HttpResponse:
    page = Paginator(batches.visible_batches(request.user), PAGE_SIZE).get_page(
        request.GET.get("page")
    )
    rows = _batch_rows(list(page.object_list), request.user, timezone.now())
    context = {"page": page, "rows": rows}
    return render(request, "submission/retry_batches.html", context)


def _batch_rows(retry_batches: Sequence[RetryBatch], user: User, at: datetime) -> list[BatchRow]:
    all_counts = batches.counts_by_batch(retry_batches)
    all_obstacles = obstacles_by_batch(retry_batches, user, at)

    batch_rows = []
    for batch in retry_batches:
        counts = all_counts.get(batch.pk, {})
        counts["open"] = sum(counts.get(state, 0) for state in IN_BATCH)
        batch_rows.append(BatchRow(batch, counts, all_obstacles.get(batch.pk, [])))
    return batch_rows


def _batch(request: AuthenticatedRequest, pk: int) -> RetryBatch:
    return get_object_or_404(batches.visible_batches(request.user), pk=pk)


@require_safe
def retry_batch(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Show the progress of a batch; the page refreshes while the batch runs."""
    batch = _batch(request, pk)
    jobs = batch.jobs.filter(job__in=Job.objects.visible_to(request.user))
    states = {str(retry_state): retry_state for retry_state in RetryState}
    if state := read_query_or_warn(
        request, "state", states.get, expected=f"one of {', '.join(states)}"
    ):
        jobs = jobs.filter(state=state)
    paginator = Paginator(jobs.select_related("job__cluster", "submission__request"), PAGE_SIZE)
    page = paginator.get_page(request.GET.get("page"))
    retries = finished_retries(list(page))
    events = events_of(batch.source or batch).filter(
        kind__startswith="retry.", data__batch=batch.pk
    )
    counts = batches.counts_by_batch([batch]).get(batch.pk, {})
    context = {
        "batch": batch,
        "counts": counts,
        "obstacles": obstacles_by_batch([batch], request.user, timezone.now()).get(batch.pk),
        "done": counts.get(RetryState.SUCCEEDED, 0),
        "all": sum(counts.values()),
        "waiting": counts.get(RetryState.WAITING, 0),
        "is_open": batch.state in {BatchState.RELEASING, BatchState.STOPPED},
        "goes_on": batch.state in {BatchState.RELEASING, BatchState.RELEASED}
        or counts.get(RetryState.RELEASED),
        "may_change": batches.may_change(request.user, batch),
        "page": page,
        "rows": [(row, retries.get(row.pk)) for row in page],
        "as_owner": batch.jobs.filter(as_owner=True).exists(),
        "states": [
            (name, label, counts[name]) for name, label in RetryState.choices if name in counts
        ],
        "state": state or "",
        "events": events,
    }
    return render(request, "submission/retry_batch.html", context)


@require_POST
def act_on_batch(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Cancel the jobs that are not released, or resume after a stop."""
    batch = _batch(request, pk)
    form = CancelBatchForm(request.POST)
    if not form.is_valid():
        messages.error(request, "Choose what to do, with a reason of at most 4,000 characters.")
        return redirect(batch)

    actions = {"cancel": batches.cancel_batch, "resume": batches.resume_batch}
    action = form.cleaned_data["do"]
    with show_errors(request):
        actions[action](
            batch=batch, by=request.user, at=timezone.now(), reason=form.cleaned_data["reason"]
        )
        messages.success(request, form.DONE[action])
    return redirect(batch)
