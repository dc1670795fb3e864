"""Export and import known errors as YAML."""

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.errors import NotAllowed
from apps.diagnosis.domain.known_errors.exchange import import_known_errors, write_known_errors
from apps.diagnosis.filters import KnownErrors
from apps.diagnosis.models import KnownError
from apps.diagnosis.permissions import may_edit_catalogue, may_propose_known_errors

#: Known errors to begin with.
_EXAMPLE = settings.BASE_DIR / "docs" / "known-errors.yaml"


class ImportForm(forms.Form):
    """The YAML of known errors, and the reason for the import."""

    text = forms.CharField(
        label="YAML",
        strip=False,
        widget=forms.Textarea(attrs={"rows": 16, "class": "mono", "spellcheck": "false"}),
    )
    reason = forms.CharField(
        max_length=4000, required=False, help_text="Why; shown in the history of each."
    )


@require_safe
def export_known_errors(request: AuthenticatedRequest) -> HttpResponse:
    """Return the filtered known errors as YAML."""
    rows = KnownErrors(request.GET, KnownError.objects.select_related("experiment")).qs
    headers = {"Content-Disposition": 'attachment; filename="known-errors.yaml"'}
    return HttpResponse(
        write_known_errors(rows), content_type="application/yaml; charset=utf-8", headers=headers
    )


@require_http_methods(["GET", "HEAD", "POST"])
def import_page(request: AuthenticatedRequest) -> HttpResponse:
    """Check YAML, or import it: all of it or, with a fault, nothing."""
    if not may_propose_known_errors(request.user):
        raise NotAllowed("Only the OPG and liaisons can propose known errors.")
    form = ImportForm(request.POST or None)
    done = None
    if request.method == "POST" and form.is_valid():
        dry_run = "save" not in request.POST
        done = import_known_errors(
            **form.cleaned_data, by=request.user, at=timezone.now(), dry_run=dry_run
        )
        if not dry_run and not done.faults:
            count = len(done.added) + len(done.changed)
            what = "imported" if may_edit_catalogue(request.user) else "proposed"
            messages.success(request, f"{count} known error{'s' * (count != 1)} {what}.")
            return redirect("diagnosis:known-errors")
    status = 400 if form.errors or (done and done.faults) else 200
    context = {"form": form, "done": done, "example": _EXAMPLE.read_text(encoding="utf-8")}
    return render(request, "diagnosis/known_errors/import.html", context, status=status)
