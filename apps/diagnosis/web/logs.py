"""The page of a job's log, its raw text, and the fragments that other pages load."""

import re
from contextlib import ExitStack

from django.http import FileResponse, Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.query import number_in, number_of, read_query_or_warn
from apps.core.web.turns import one_at_a_time
from apps.diagnosis.domain.log_page.comparison import compare_logs
from apps.diagnosis.domain.log_page.page import PageQuery, log_page
from apps.diagnosis.domain.log_page.search import LogSearch
from apps.diagnosis.domain.reading.log_texts import LogText, NoLog, logs_of, open_log_text
from apps.diagnosis.domain.reading.log_windows import MOST_LINES, default_stream, log_view
from apps.diagnosis.domain.verdicts.job_diagnosis import job_diagnosis
from apps.diagnosis.engine.formats.markers import Level
from apps.diagnosis.enums import Stream
from apps.diagnosis.models import Verdict
from apps.diagnosis.permissions import may_propose_known_errors
from apps.jobs.models import Job
from apps.jobs.web.one_job import of_job

_RANGE = re.compile(r"\s{0,9}(\d{1,18})(?:\s{0,9}[-–]\s{0,9}(\d{1,18}))?\s{0,9}")
_STREAMS = {str(stream): stream for stream in Stream}
_LEVELS: dict[str, Level] = {"error": "error", "warning": "warning"}


def _stream(request: AuthenticatedRequest) -> Stream | None:
    return read_query_or_warn(request, "stream", _STREAMS.get, expected="stdout or stderr")


def _range(text: str) -> tuple[int, int] | None:
    """Return the two numbers of `12-34`, or a single number twice; None for other texts."""
    match = _RANGE.fullmatch(text)
    return (int(match[1]), int(match[2] or match[1])) if match else None


@require_safe
@of_job
def log(request: AuthenticatedRequest, job: Job) -> HttpResponse:
    """Show a log around its cause, or around the place in the query.

    The page lists invalid parameters.
    """
    query = request.GET
    if request.htmx and "open" not in query:
        return _log_card(request, job)
    lines = read_query_or_warn(
        request, "line", _range, expected="a line such as 12, or lines such as 12-34"
    )
    offset = read_query_or_warn(request, "at", number_of, expected="a number of bytes")
    to = read_query_or_warn(request, "to", number_of, expected="a number of bytes")
    level: Level | None = read_query_or_warn(
        request, "level", _LEVELS.get, expected="error or warning"
    )
    part = _range(query.get("open", "")) if request.htmx else None
    text = query.get("find", "")
    search = None
    if text:
        search = LogSearch(
            text,
            regex=query.get("regex") == "yes",
            match_case=query.get("case") == "yes",
            since=number_in(query, "since") or 0,
        )

    stream = _stream(request)
    page_query = PageQuery(
        offset=offset,
        to=to,
        line=(min(lines), max(lines)) if lines else None,
        opened_fold=part,
        level=level,
        search=search,
        debug=query.get("debug") == "yes",
        fold=query.get("fold") != "no",
    )
    if part:
        page = log_page(job, user=request.user, stream=stream, query=page_query)
        return render(request, "diagnosis/log/_part.html", {"page": page, "job": job})

    diagnosis = job_diagnosis(job, timezone.now())
    page = log_page(
        job, user=request.user, stream=stream, query=page_query, verdict=diagnosis.verdict
    )
    context = {
        "page": page,
        "job": job,
        "diagnosis": diagnosis,
        "may_propose": may_propose_known_errors(request.user),
    }
    return render(request, "diagnosis/log/log.html", context)


def _log_card(request: AuthenticatedRequest, job: Job) -> HttpResponse:
    """Return the card with the last lines, or more lines for it."""
    lines, before, offset = (number_in(request.GET, name) for name in ("lines", "before", "at"))
    view = log_view(
        job,
        stream=_STREAMS.get(request.GET.get("stream", "")),
        lines=min(lines, MOST_LINES) if lines else 50,
        before=before,
        offset=offset,
    )
    if before is None:
        template = "diagnosis/log/_log.html"
    else:
        template = "diagnosis/log/_lines.html"
    return render(request, template, {"log": view, "job": job})


@require_safe
@one_at_a_time
@of_job
def compare(request: AuthenticatedRequest, job: Job) -> HttpResponse:
    """Show a log beside the log of a successful job of the same kind.

    The page lists invalid parameters.
    """
    every_line = request.GET.get("lines") == "all"
    diagnosis = job_diagnosis(job, timezone.now())
    stream = _stream(request) or default_stream(diagnosis.verdict, logs_of(job).streams)
    other = read_query_or_warn(
        request,
        "with",
        lambda text: _other(request, text),
        expected="the number of a job you may see",
    )
    comparison = compare_logs(
        job, user=request.user, stream=stream, chosen=other, every_line=every_line
    )
    context = {
        "comparison": comparison,
        "job": job,
        "every_line": every_line,
        "diagnosis": diagnosis,
    }
    return render(request, "diagnosis/log/compare.html", context)


def _other(request: AuthenticatedRequest, text: str) -> Job | None:
    jobs = Job.objects.visible_to(request.user).select_related("cluster", "experiment")
    return jobs.filter(pk=number_of(text) or 0).first()


class _Reader:
    """The text of a log as a file that `FileResponse` can read and close."""

    def __init__(self, text: LogText, opened: ExitStack) -> None:
        self._text = text
        self._opened = opened
        self._position = text.begin

    def read(self, count: int = 64 * 1024) -> bytes:
        data = self._text.read(self._position, self._position + count)
        self._position += len(data)
        return data

    def close(self) -> None:
        self._opened.close()


@require_safe
@one_at_a_time
@of_job
def raw_log(request: AuthenticatedRequest, job: Job) -> HttpResponseBase:
    """Send a whole log as text, to view or download."""
    name = request.GET.get("stream", "")
    if name and name not in _STREAMS:
        raise Http404
    logs = logs_of(job)
    verdict = Verdict.objects.filter(job=job).first()
    stream = _STREAMS.get(name) or default_stream(verdict, logs.streams)
    opened = ExitStack()
    try:
        text = opened.enter_context(open_log_text(logs, stream))
    except NoLog as reason:
        raise Http404(str(reason)) from None
    response = FileResponse(
        _Reader(text, opened),
        as_attachment=request.GET.get("download") == "yes",
        filename=f"{job.job_id}.{stream}.log",
        content_type="text/plain; charset=utf-8",
    )
    response["X-Content-Type-Options"] = "nosniff"
    return response
