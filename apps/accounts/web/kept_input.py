"""A form that was refused because its login ended or changed: its input is kept on a page that sends it again."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


def is_own(request: HttpRequest) -> bool:
    """Whether a page of the portal sent this, as the browser says."""
    origin = f"{request.scheme}://{request.get_host()}"
    return request.headers.get("Sec-Fetch-Site") == "same-origin" or request.headers.get("Origin") == origin


def keep_input(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Show what was sent from a page of the portal, with a button to send it again; 403.

    Input that another site sent is not offered again, nor are passwords.
    """
    secret = any("password" in name for name in request.POST)
    kept = [] if secret or not is_own(request) else [(n, v) for n, values in request.POST.lists() for v in values]
    context = {
        "kept": [(name, value) for name, value in kept if name != "csrfmiddlewaretoken"],
        "files": bool(request.FILES),
        "address": request.get_full_path(),
    }
    return render(request, "accounts/send_again.html", context, status=403)
