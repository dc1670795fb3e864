"""Pinning and unpinning a job, from its page."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from apps.accounts.web.request import AuthenticatedRequest
from apps.archive.domain.retention import pin_job, unpin_job
from apps.archive.models import ArchivedJob
from apps.archive.web.pin_forms import PinForm


def _job(request: AuthenticatedRequest, pk: int) -> ArchivedJob:
    return get_object_or_404(ArchivedJob.objects.visible_to(request.user).select_related("cluster"), pk=pk)


@require_POST
def pin(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    job, form = _job(request, pk), PinForm(request.POST)
    if form.is_valid():
        pin_job(job=job, by=request.user, reason=form.cleaned_data["reason"], at=timezone.now())
        messages.success(request, "Pinned: the job stays in the archive.")
    else:
        messages.error(request, "Say in up to 200 characters why the job is needed.")
    return redirect("archive:job", pk=pk)


@require_POST
def unpin(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    unpin_job(job=_job(request, pk), by=request.user, at=timezone.now())
    messages.success(request, "No longer pinned: the rules of retention count again.")
    return redirect("archive:job", pk=pk)
