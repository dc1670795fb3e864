"""Pages of debug re-runs: what would change, the re-run, and the bundle.

The bundle is for jobs that the portal did not submit.
"""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.archive.domain.differences import fold
from apps.archive.domain.store.contents import archived_job_for
from apps.core.errors import DomainError
from apps.core.web.errors import show_errors
from apps.jobs.models import Job
from apps.jobs.web.one_job import of_job
from apps.submission.domain.arrays.submissions import may_submit, submission_of
from apps.submission.domain.debugging import rerun
from apps.submission.domain.debugging.bundle import debug_bundle, may_download
from apps.submission.models import DebugProfile
from apps.submission.web.forms import DebugForm


@require_http_methods(["GET", "HEAD", "POST"])
@of_job
def debug_run(request: AuthenticatedRequest, job: Job) -> HttpResponse:
    """Show what a profile changes about a job; POST submits it, unless it only previews."""
    profiles = rerun.profiles_for(job)
    form = DebugForm(profiles, request.POST if request.method == "POST" else request.GET or None)
    profile = _chosen(form, profiles)
    previews = request.POST.get("do") == "preview"
    if request.method == "POST" and not previews and form.is_valid():
        with show_errors(request, form):
            reason = form.cleaned_data["reason"]
            rerun.start_debug_run(
                job=job, profile=profile, by=request.user, at=timezone.now(), reason=reason
            )
            messages.success(
                request, f"A debug re-run of job {job.job_id} will be submitted shortly."
            )
            return redirect("submission:debug-run", pk=job.pk)

    origin = submission_of(job)
    archived = archived_job_for(job)
    context = {
        "job": job,
        "form": form,
        "profile": profile,
        "runs": rerun.debug_runs_of(job),
        "origin": origin,
        "has_bundle": archived is not None and may_download(request.user, archived),
        "archived": archived,
        "may_rerun": origin is not None and may_submit(request.user, origin.request),
    }
    if context["may_rerun"]:
        try:
            preview = rerun.preview(job=job, profile=profile, by=request.user, at=timezone.now())
            shows_all = request.GET.get("all") == "1"
            context["rows"] = preview.rows if shows_all else fold(preview.rows)
            context["preview"] = preview
        except DomainError as error:
            context["obstacle"] = str(error)
    return render(request, "submission/debug_run.html", context, status=400 if form.errors else 200)


@require_safe
@of_job
def bundle(request: AuthenticatedRequest, job: Job) -> HttpResponse:
    """Return script, environment and the command of a debug re-run as a tar."""
    profiles = rerun.profiles_for(job)
    profile = _chosen(DebugForm(profiles, request.GET or None), profiles)
    with show_errors(request):
        content = debug_bundle(job=job, profile=profile, by=request.user, at=timezone.now())
        headers = {"Content-Disposition": f'attachment; filename="debug-{job.pk}.tar"'}
        return HttpResponse(content, content_type="application/x-tar", headers=headers)
    return redirect("submission:debug-run", pk=job.pk)


def _chosen(form: DebugForm, profiles: list[DebugProfile]) -> DebugProfile:
    """Return the profile chosen in the form; the first one if none or an unknown one is chosen."""
    name = form.cleaned_data["profile"] if form.is_valid() else None
    return next((profile for profile in profiles if profile.name == name), profiles[0])
