"""The documentation that comes with the portal, page by page, as it is written."""

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe


@require_safe
def help_page(request: HttpRequest, document: str) -> HttpResponse:
    """Show one page of `docs/`. Only names that are there are opened."""
    pages = {page.stem: page for page in sorted((settings.BASE_DIR / "docs").glob("*.md"))}
    if document not in pages:
        raise Http404
    context = {"document": document, "documents": pages, "text": pages[document].read_text(encoding="utf-8")}
    return render(request, "core/help.html", context)
