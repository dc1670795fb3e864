"""Keep the input of a form that was rejected because the login ended or changed.

The input is kept on a page that can send it again.
"""

import re

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

#: Fields that pages fill in automatically: counts of rows, versions, buttons.
_TECHNICAL = re.compile(
    r"(_FORMS|^(action|after|checked|do|form_key|next|older|only|seen|seen_rank|shown_workflow"
    r"|touched|until|version(-\d+)?))$"
)


def is_own(request: HttpRequest) -> bool:
    """Return whether a page of the portal sent this request, according to the browser."""
    origin = f"{request.scheme}://{request.get_host()}"
    return (
        request.headers.get("Sec-Fetch-Site") == "same-origin"
        or request.headers.get("Origin") == origin
    )


def label_of(name: str) -> str:
    """Return a readable label for a field name.

    For example, `stages-1-output_dataset` becomes `Stages 2: output dataset`.
    """
    first, *more = (part.replace("_", " ") for part in name.split("-") if part)
    if more and more[0].isdigit():
        first = f"{first} {int(more[0]) + 1}"
        more = more[1:]
    return ": ".join([first.capitalize(), *more])


def keep_input(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Show the input of a form with a button to send it again, with status 403.

    Input from another site is not offered again, nor are passwords.
    """
    kept = []
    typed = []
    has_password = any("password" in name for name in request.POST)
    if is_own(request) and not has_password:
        for name, values in request.POST.lists():
            if name == "csrfmiddlewaretoken":
                continue
            for value in values:
                kept.append((name, value))
                if value and not _TECHNICAL.search(name):
                    typed.append((label_of(name), value))

    context = {
        "kept": kept,
        "typed": typed,
        "files": bool(request.FILES),
        "address": request.get_full_path(),
    }
    return render(request, "accounts/send_again.html", context, status=403)
