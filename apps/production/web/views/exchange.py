"""Requests as YAML: download, and import from text or a file."""

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.production.domain.requests.exchange import InvalidText, export_request, import_request
from apps.production.domain.yaml_text import MAX_BYTES, Fault
from apps.production.web.forms.request import writable_experiments
from apps.production.web.lookup import request_or_404

#: Maximum number of faults on a page.
SHOWN_FAULTS = 200


class ImportForm(forms.Form):
    text = forms.CharField(
        required=False,
        strip=False,
        label="Request in YAML",
        widget=forms.Textarea(attrs={"rows": 24, "spellcheck": "false", "class": "mono"}),
        help_text="The format of “Download YAML” on the page of a request.",
    )
    file = forms.FileField(
        required=False, label="Or a file", help_text=f"At most {MAX_BYTES:,} bytes."
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        file = cleaned.get("file")
        if file is not None:
            if file.size > MAX_BYTES:
                self.add_error("file", f"At most {MAX_BYTES:,} bytes; this file has {file.size:,}.")
                return cleaned
            try:
                cleaned["text"] = file.read().decode("utf-8-sig")
            except UnicodeDecodeError:
                self.add_error("file", "Not valid UTF-8.")
        elif "file" not in self.errors and not cleaned.get("text", "").strip():
            self.add_error("text", "Paste a request or choose a file.")
        return cleaned


@require_safe
def download(request: AuthenticatedRequest, key: str) -> HttpResponse:
    production_request = request_or_404(request.user, key)
    answer = HttpResponse(
        export_request(production_request), content_type="application/yaml; charset=utf-8"
    )
    answer["Content-Disposition"] = f'attachment; filename="{production_request.key}.yaml"'
    return answer


@require_http_methods(["GET", "HEAD", "POST"])
def import_page(request: AuthenticatedRequest) -> HttpResponse:
    """Create a draft, or show the text with all faults."""
    if not writable_experiments(request.user).exists():
        raise PermissionDenied("Only liaisons can create requests.")
    if request.method != "POST":
        return _page(request, ImportForm(), [])
    form = ImportForm(request.POST, request.FILES)
    if not form.is_valid():
        return _page(request, form, [])
    text = form.cleaned_data["text"]
    try:
        made = import_request(text=text, by=request.user, at=timezone.now())
    except InvalidText as error:
        return _page(request, ImportForm(initial={"text": text}), error.faults)
    messages.success(request, f"Imported as draft {made}. It is not submitted yet.")
    return redirect(f"{reverse('production:request-edit', args=[made.key])}?check=1")


def _page(request: AuthenticatedRequest, form: ImportForm, faults: list[Fault]) -> HttpResponse:
    status = 400 if faults or form.errors else 200
    context = {"form": form, "faults": faults[:SHOWN_FAULTS], "count": len(faults)}
    return render(request, "production/form/import.html", context, status=status)
