"""Pages of experiment packs: versions, detail, upload, and decision."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.enums import Role
from apps.accounts.permissions import is_opg, scope_of
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.errors import show_errors
from apps.diagnosis.domain.packs.changes import checked_pack, decide_pack, effect_of, propose_pack
from apps.diagnosis.domain.packs.current import pack_in_force
from apps.diagnosis.domain.packs.reading import MAX_BYTES, read_pack
from apps.diagnosis.enums import ChangeState
from apps.diagnosis.models import ExperimentPack
from apps.diagnosis.permissions import may_edit_catalogue

SHOWN = 100
#: A pack to begin with.
_SAMPLE = settings.BASE_DIR / "docs" / "experiment-pack.yaml"


class PackForm(forms.Form):
    """The YAML of a pack, pasted or as a file, and the reason for it."""

    text = forms.CharField(
        label="YAML",
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 16, "class": "mono", "spellcheck": "false"}),
    )
    file = forms.FileField(
        required=False, label="Or a file", help_text=f"At most {MAX_BYTES:,} bytes."
    )
    reason = forms.CharField(
        max_length=4000, required=False, help_text="Why; the approver reads it."
    )

    def clean(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().clean() or {}
        file = fields.pop("file", None)
        if file is not None:
            try:
                fields["text"] = file.read(MAX_BYTES + 1).decode("utf-8-sig")
            except UnicodeDecodeError:
                self.add_error("file", "Not valid UTF-8.")
        elif not fields.get("text", "").strip():
            self.add_error("text", "Paste a pack or choose a file.")
        return fields


@require_http_methods(["GET", "HEAD", "POST"])
def packs(request: AuthenticatedRequest) -> HttpResponse:
    """List the packs that the user may see; check an uploaded pack, or propose it."""
    form = PackForm(request.POST or None, request.FILES or None)
    effect = None
    if request.method == "POST" and form.is_valid():
        with show_errors(request, form):
            fields = form.cleaned_data
            if "save" in request.POST:
                proposed = propose_pack(**fields, by=request.user, at=timezone.now())
                messages.success(
                    request, "Pack proposed. It takes effect when the OPG approves it."
                )
                return redirect(proposed)
            effect = effect_of(checked_pack(fields["text"], by=request.user))
    experiment_packs = (
        ExperimentPack.objects.visible_to(request.user)
        .select_related("experiment")
        .defer("text", "markers")
    )
    may_propose = is_opg(request.user) or scope_of(request.user).has_anywhere(Role.LIAISON)
    context = {
        "form": form,
        "effect": effect,
        "packs": experiment_packs[:SHOWN],
        "may_propose": may_propose,
        "sample": _SAMPLE.read_text(encoding="utf-8") if may_propose else "",
    }
    return render(
        request, "diagnosis/known_errors/packs.html", context, status=400 if form.errors else 200
    )


@require_safe
def pack(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Show a version of a pack; for a proposed version, show its changes."""
    experiment_pack = get_object_or_404(
        ExperimentPack.objects.visible_to(request.user).select_related("experiment"), pk=pk
    )
    is_open = experiment_pack.state == ChangeState.PROPOSED
    effect = None
    problems = []
    if is_open:
        read = read_pack(experiment_pack.text)
        problems = [str(fault) for fault in read.faults]
        effect = None if problems else effect_of(read)
    context = {
        "pack": experiment_pack,
        "effect": effect,
        "problems": problems,
        "is_in_force": experiment_pack == pack_in_force(experiment_pack.experiment_id),
        "may_decide": is_open and may_edit_catalogue(request.user),
    }
    return render(request, "diagnosis/known_errors/pack.html", context)


@require_POST
def decide(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Approve or reject a proposed pack."""
    experiment_pack = get_object_or_404(ExperimentPack.objects.visible_to(request.user), pk=pk)
    with show_errors(request):
        approve = request.POST.get("do") == "approve"
        reason = request.POST.get("reason", "")[:4000]
        decide_pack(
            proposed=experiment_pack,
            approve=approve,
            by=request.user,
            at=timezone.now(),
            reason=reason,
        )
        messages.success(request, "Pack approved. It is in force." if approve else "Pack rejected.")
    return redirect(experiment_pack)
