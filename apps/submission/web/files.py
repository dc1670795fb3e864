"""Pages of the files of a stage: their states, the output files, and decisions."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.template.defaultfilters import pluralize
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.pagination import in_order
from apps.core.web.errors import show_errors
from apps.core.web.query import number_in
from apps.core.web.tables import streamed_csv
from apps.datasets.domain.copies import equal_copies
from apps.datasets.domain.making import catalogues_that_make, made_datasets_of, may_make
from apps.datasets.domain.output_files import parents_of
from apps.datasets.enums import NOT_IN_A_JOB, FileState
from apps.datasets.models import InputFile, OutputFile
from apps.jobs.models import Job
from apps.production.models import Request, Stage
from apps.production.web.lookup import request_or_404, stage_or_404
from apps.submission.domain.arrays.submissions import assignment_of
from apps.submission.domain.files import decisions, recovery
from apps.submission.domain.files.page import files_page
from apps.submission.web.forms import CountForm, FilesForm, StageForm, TakeBackForm

PAGE_SIZE = 100
_OTHER_FILTERS = {"missing", "twice", "withdrawn"}
#: Parents of an output file that the list shows.
SHOWN_PARENTS = 20
_INPUT_COLUMNS = ("name", "state", "job", "run", "events", "size_bytes", "reason")
_COPY_COLUMNS = (
    "name",
    "job_id",
    "size_bytes",
    "checksum",
    "counting_name",
    "counting_job_id",
    "is_name_in_use",
)
_OUTPUT_COLUMNS = ("name", "job_id", "counts", "run", "events", "size_bytes", "checksum")


@require_safe
def stage_files(request: AuthenticatedRequest, key: str) -> HttpResponse:
    production_request = request_or_404(request.user, key)
    number = number_in(request.GET, "stage")
    page = files_page(production_request, None if number is None else number - 1)
    if page is None:
        raise Http404
    context = {
        "object": production_request,
        "files": page,
        "assignment": assignment_of(production_request),
        "may_decide": decisions.may_decide(request.user, production_request)
        and production_request.state in decisions.DECIDABLE,
        "may_request": recovery.may_request_missing(request.user, production_request),
        "makers": catalogues_that_make() if may_make(request.user, production_request) else [],
        "made_datasets": made_datasets_of(production_request, page.stage.position),
        "as_of": timezone.now(),
    }
    return render(request, "submission/files/files.html", context)


@require_safe
def file_list(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """List the input files of a stage, by state and beginning of the name."""
    production_request = request_or_404(request.user, key)
    stage = _chosen_stage(request, production_request)
    page = in_order(_chosen_files(request, stage), by="state", query=request.GET, size=PAGE_SIZE)
    keys = [file.job_key for file in page.rows if file.job_key is not None]
    jobs = Job.objects.in_bulk(keys)
    context = {
        "object": production_request,
        "stage": stage,
        "page": page,
        "rows": [(file, jobs.get(file.job_key or 0)) for file in page.rows],
        "states": FileState.choices,
        "chosen_state": _chosen_state(request),
        "text": request.GET.get("q", ""),
    }
    return render(request, "submission/files/list.html", context)


@require_safe
def output_list(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """List the output files of a stage, newest first."""
    production_request = request_or_404(request.user, key)
    stage = _chosen_stage(request, production_request)
    rows = _chosen_outputs(request, stage)
    page = in_order(rows, by="-id", query=request.GET, size=PAGE_SIZE)
    # One more than is shown, to know whether there are more.
    parents = parents_of(page.rows, SHOWN_PARENTS + 1)
    rows_with_parents = []
    for file in page.rows:
        names = parents[file.pk]
        rows_with_parents.append((file, names[:SHOWN_PARENTS], len(names) > SHOWN_PARENTS))
    context = {
        "object": production_request,
        "stage": stage,
        "page": page,
        "rows": rows_with_parents,
        "text": request.GET.get("q", ""),
    }
    return render(request, "submission/files/outputs.html", context)


@require_safe
def download(request: AuthenticatedRequest, key: str) -> HttpResponseBase:
    """Return the files of a stage as CSV or JSON, a SAM query, or the files of a Rucio dataset.

    `what=outputs` returns the output files, `what=copies` as CSV or JSON the equal copies that do
    not count. The rows are streamed.
    """
    production_request = request_or_404(request.user, key)
    stage = _chosen_stage(request, production_request)
    what = request.GET.get("what", "")
    columns: Sequence[str]
    if what == "copies":
        columns = _COPY_COLUMNS
        rows = _copy_rows(stage)
    elif what == "outputs":
        columns = _OUTPUT_COLUMNS
        rows = _output_rows(_chosen_outputs(request, stage).order_by("pk"))
    else:
        columns = _INPUT_COLUMNS
        rows = _input_rows(_chosen_files(request, stage).order_by("pk"))
    name = f"{production_request.key}-{stage.position + 1}-{what or 'files'}"
    match request.GET.get("format", "csv"):
        case "csv":
            return streamed_csv(name, columns, rows)
        case "json":
            return _streamed(name, "json", _as_json(columns, rows))
        case "sam" if what != "copies":
            return _streamed(name, "txt", _as_sam(rows))
        case "rucio" if what != "copies":
            return _streamed(name, "json", _as_rucio(rows))
    raise Http404


def _chosen_stage(request: AuthenticatedRequest, production_request: Request) -> Stage:
    """Return the stage of the query parameter `stage`, from 1. Raises `Http404`."""
    return stage_or_404(production_request, number_in(request.GET, "stage") or 1)


def _chosen_state(request: AuthenticatedRequest) -> str:
    state = request.GET.get("state", "")
    return state if state in FileState.values or state in _OTHER_FILTERS else ""


def _chosen_files(request: AuthenticatedRequest, stage: Stage) -> QuerySet[InputFile]:
    """Return the input files by the state and the beginning of the name in the query."""
    files = InputFile.objects.filter(stage=stage)
    state = _chosen_state(request)
    # The ranges are redundant, but let PostgreSQL read the index by state in order. For a single
    # value it would read the primary key backwards, through the files of all newer stages.
    if state == "missing":
        files = files.filter(state__gte=min(NOT_IN_A_JOB), state__in=NOT_IN_A_JOB)
    elif state == "twice":
        files = files.filter(is_doubled=True)
    elif state == "withdrawn":
        files = files.filter(is_withdrawn=True)
    elif state:
        files = files.filter(state__gte=state, state__lte=state)
    text = request.GET.get("q", "").replace("\0", "")
    return files.filter(name__startswith=text) if text else files


def _chosen_outputs(request: AuthenticatedRequest, stage: Stage) -> QuerySet[OutputFile]:
    output_files = OutputFile.objects.filter(stage=stage)
    text = request.GET.get("q", "").replace("\0", "")
    return output_files.filter(Q(name=text) | Q(key=text)) if text else output_files


def _input_rows(files: QuerySet[InputFile]) -> Iterator[tuple[object, ...]]:
    for file in files.iterator(chunk_size=5_000):
        yield (
            file.name,
            file.state,
            file.number,
            file.run,
            file.events,
            file.size_bytes,
            file.reason,
        )


def _output_rows(files: QuerySet[OutputFile]) -> Iterator[tuple[object, ...]]:
    for file in files.iterator(chunk_size=5_000):
        yield (
            file.name,
            file.key,
            file.counts,
            file.run,
            file.events,
            file.size_bytes,
            file.checksum,
        )


def _copy_rows(stage: Stage) -> Iterator[tuple[object, ...]]:
    for equal in equal_copies(stage):
        yield (
            equal.copy.name,
            equal.copy.key,
            equal.copy.size_bytes,
            equal.copy.checksum,
            equal.counting.name,
            equal.counting.key,
            equal.is_name_in_use,
        )


def _streamed(name: str, suffix: str, parts: Iterable[str]) -> StreamingHttpResponse:
    kind = "application/json" if suffix == "json" else "text/plain; charset=utf-8"
    return StreamingHttpResponse(
        parts,
        content_type=kind,
        headers={"Content-Disposition": f'attachment; filename="{name}.{suffix}"'},
    )


def _as_json(columns: Iterable[str], rows: Iterable[tuple[object, ...]]) -> Iterator[str]:
    separator = "["
    for values in rows:
        yield separator + json.dumps(dict(zip(columns, values, strict=True)))
        separator = ",\n"
    yield "]\n" if separator != "[" else "[]\n"


def _as_sam(rows: Iterable[tuple[object, ...]]) -> Iterator[str]:
    """Return the query of a SAM definition with these files."""
    separator = "file_name "
    for values in rows:
        yield f"{separator}{values[0]}"
        separator = ","
    yield "\n"


def _as_rucio(rows: Iterable[tuple[object, ...]]) -> Iterator[str]:
    """Return the files as Rucio attaches them to a dataset; names without a scope have none."""
    separator = "["
    for values in rows:
        scope, _, name = str(values[0]).rpartition(":")
        yield separator + json.dumps({"scope": scope, "name": name})
        separator = ",\n"
    yield "]\n" if separator != "[" else "[]\n"


@require_http_methods(["GET", "HEAD", "POST"])
def give_up(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Ask for files and a reason, then give them up."""
    message = "Given up: {files}."
    return _decide(
        request, key, FilesForm, decisions.give_up, message, "submission/files/give_up.html"
    )


@require_http_methods(["GET", "HEAD", "POST"])
def take_back(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Ask for files, then let them wait for a job again."""
    message = "Taken back: {files}. A retry reads them again."
    template = "submission/files/take_back.html"
    return _decide(request, key, TakeBackForm, decisions.take_back, message, template)


def _decide(
    request: AuthenticatedRequest,
    key: str,
    form_class: type[FilesForm],
    act: Callable[..., int],
    message: str,
    template: str,
) -> HttpResponse:
    production_request = request_or_404(request.user, key)
    if not decisions.may_decide(request.user, production_request):
        raise PermissionDenied
    if request.method == "POST":
        form = form_class(request.POST)
        if form.is_valid():
            values = form.cleaned_data
            with show_errors(request):
                count = act(
                    request=production_request, by=request.user, at=timezone.now(), **values
                )
                files = f"{count:,} file{pluralize(count)}"
                messages.success(request, message.format(files=files))
            return _to_files(production_request, values["position"])
        position = _position_in(form)
    else:
        position = (number_in(request.GET, "stage") or 1) - 1
        form = form_class(initial={"position": position, "names": request.GET.get("name", "")})
    page = files_page(production_request, position)
    if page is None or page.totals is None:
        raise Http404
    context = {"object": production_request, "files": page, "form": form}
    return render(request, template, context, status=400 if form.is_bound else 200)


def _position_in(form: forms.Form) -> int:
    """Return the position in a form that may be invalid."""
    position: int = form.cleaned_data.get("position") or 0
    return position


@require_POST
def count(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Let the result of another job count for a file that was done twice."""
    production_request = request_or_404(request.user, key)
    if not decisions.may_decide(request.user, production_request):
        raise PermissionDenied
    form = CountForm(request.POST)
    if not form.is_valid():
        return HttpResponse("Choose a file and a job.", status=400, content_type="text/plain")
    values = form.cleaned_data
    with show_errors(request):
        file = decisions.count_result(
            request=production_request, by=request.user, at=timezone.now(), **values
        )
        messages.success(request, f"The other result of {file.name[:200]} counts now.")
    return _to_files(production_request, values["position"])


@require_http_methods(["GET", "HEAD", "POST"])
def request_missing(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Show what a recovery would have, then draft it."""
    production_request = request_or_404(request.user, key)
    if not recovery.may_request_missing(request.user, production_request):
        raise PermissionDenied
    if request.method == "POST":
        form = StageForm(request.POST)
        if not form.is_valid():
            return HttpResponse("Choose a stage.", status=400, content_type="text/plain")
        position = form.cleaned_data["position"]
        with show_errors(request):
            made = recovery.request_missing(
                request=production_request, position=position, by=request.user, at=timezone.now()
            )
            messages.success(request, f"{made.key} was drafted for the missing files.")
            return redirect(made.get_absolute_url())
        return _to_files(production_request, position)
    position = (number_in(request.GET, "stage") or 1) - 1
    page = files_page(production_request, position)
    if page is None or page.totals is None:
        raise Http404
    form = StageForm(initial={"position": position})
    context: dict[str, Any] = {"object": production_request, "files": page, "form": form}
    return render(request, "submission/files/missing.html", context)


def _to_files(production_request: Request, position: int) -> HttpResponse:
    return redirect(
        f"{reverse('submission:files', args=[production_request.key])}?stage={position + 1}"
    )
