"""Make a dataset in a catalogue of the files of a stage. No page asks a catalogue."""

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.errors import DomainError
from apps.core.web.query import number_in
from apps.datasets.domain.making import (
    MOST_FILES,
    catalogues_that_make,
    check_may_make,
    made_datasets_of,
    names_of_files,
    order_dataset,
    suggest_name,
)
from apps.datasets.enums import ChosenFiles
from apps.production.models import Request, Stage
from apps.production.web.lookup import request_or_404, stage_or_404


class MakeForm(forms.Form):
    """Which files, and the name of their dataset in a catalogue."""

    position = forms.IntegerField(min_value=0, max_value=1000, widget=forms.HiddenInput)
    catalogue = forms.ChoiceField()
    chosen = forms.ChoiceField(label="Files", choices=ChosenFiles.choices)
    name = forms.CharField(
        label="Name of the dataset",
        max_length=500,
        help_text="It cannot be changed or deleted from here.",
    )

    def __init__(self, names: list[str], *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.fields["catalogue"] = forms.ChoiceField(choices=[(name, name) for name in names])


@require_http_methods(["GET", "HEAD", "POST"])
def make(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Ask for files, catalogue and name; then store that the dataset is to be made."""
    production_request = request_or_404(request.user, key)
    check_may_make(request.user, production_request)
    names = [catalogue.name for catalogue in catalogues_that_make()]
    if request.method == "POST":
        form = MakeForm(names, request.POST)
        if form.is_valid():
            try:
                dataset = order_dataset(
                    request=production_request,
                    by=request.user,
                    at=timezone.now(),
                    **form.cleaned_data,
                )
            except DomainError as error:
                form.add_error(None, str(error))
            else:
                messages.success(
                    request,
                    f"The dataset {dataset.name} will be made in {dataset.catalogue} shortly.",
                )
                address = reverse("submission:files", args=[key])
                return redirect(f"{address}?stage={dataset.position + 1}#made-datasets")
        position = form.cleaned_data.get("position") or 0
        return _page(
            request, production_request, stage_or_404(production_request, position + 1), form
        )

    stage = stage_or_404(production_request, number_in(request.GET, "stage") or 1)
    chosen = request.GET.get("chosen", "")
    choice = ChosenFiles(chosen) if chosen in ChosenFiles.values else ChosenFiles.MISSING
    initial = {
        "position": stage.position,
        "catalogue": request.GET.get("catalogue", ""),
        "chosen": choice,
        "name": suggest_name(production_request, stage, choice),
    }
    return _page(request, production_request, stage, MakeForm(names, initial=initial))


def _page(
    request: AuthenticatedRequest, production_request: Request, stage: Stage, form: MakeForm
) -> HttpResponse:
    counts = []
    for choice in ChosenFiles:
        # Enough to tell whether there are too many; no page counts a million rows.
        files = names_of_files(stage, choice)[: MOST_FILES + 1].count()
        counts.append((choice, files, files > MOST_FILES))
    context = {
        "object": production_request,
        "stage": stage,
        "form": form,
        "is_possible": bool(form.fields["catalogue"].choices),  # type: ignore[attr-defined]
        "counts": counts,
        "most_files": MOST_FILES,
        "made_datasets": made_datasets_of(production_request, stage.position),
    }
    return render(request, "datasets/make.html", context, status=400 if form.is_bound else 200)
