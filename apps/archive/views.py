"""Pages of the archive: the list, one job, and its contents as they are."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from apps.archive.filters import ArchivedJobs
from apps.archive.models import ArchivedJob, Blob
from apps.archive.selectors import DamagedContent, jobs_for_list, read_blob, shown_environment, shown_script
from apps.core.pagination import newest_first


def _job(request: HttpRequest, pk: int) -> ArchivedJob:
    return get_object_or_404(jobs_for_list(request.user).defer(None), pk=pk)


@require_safe
def jobs(request: HttpRequest) -> HttpResponse:
    chosen = ArchivedJobs(request.GET, jobs_for_list(request.user))
    rows = chosen.qs if chosen.is_valid() else ArchivedJob.objects.none()
    page = newest_first(rows, by="submitted_at", query=request.GET)
    return render(request, "archive/jobs.html", {"filter": chosen, "page": page, "filtered": any(request.GET.values())})


@require_safe
def job(request: HttpRequest, pk: int) -> HttpResponse:
    archived = _job(request, pk)
    context = {
        "archived": archived,
        "script": shown_script(archived),
        "environment": shown_environment(archived),
    }
    return render(request, "archive/job.html", context)


@require_safe
def script(request: HttpRequest, pk: int) -> HttpResponse:
    archived = _job(request, pk)
    return _download(archived.script, f"job.{archived.job_id}_script")


@require_safe
def environment(request: HttpRequest, pk: int) -> HttpResponse:
    archived = _job(request, pk)
    return _download(archived.environment, f"job.{archived.job_id}_environment")


def _download(blob: Blob, name: str) -> HttpResponse:
    """Answer with bytes that no browser is to take for a page of the portal."""
    try:
        content = read_blob(blob)
    except DamagedContent as error:
        text = f"This {blob.kind} is damaged in the archive: it {error}.\n"
        return HttpResponse(text, content_type="text/plain; charset=utf-8", status=410)
    response = HttpResponse(content, content_type="text/plain; charset=utf-8")
    safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
    response["Content-Disposition"] = f'attachment; filename="{safe.encode("ascii", "replace").decode()}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
